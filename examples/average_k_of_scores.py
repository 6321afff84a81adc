"""Sets of a given mean size from somebody else's scores, which come in batches.

    python -m examples.average_k_of_scores

The scores are of scikit-learn's logistic regression here; any probabilities [n, L] will do. The
calibrator keeps the K n largest of them, so that the rest never has to be in memory.
"""

import jax.numpy as jnp
from sklearn.linear_model import LogisticRegression

from examples import digits_data
from topk_jax import metrics, sets

K = 1.5
BATCH_SIZE = 50


def main() -> tuple[float, float]:
    """Returns the accuracy and the mean size of the sets of the test images."""
    train, train_labels, test, test_labels = digits_data.load()
    fitted, calibration = train[:-300], train[-300:]
    # Few iterations: a classifier that is not too sure.
    classifier = LogisticRegression(C=0.01, max_iter=200).fit(fitted, train_labels[:-300])
    calibrator = sets.AverageKCalibrator(K, num_examples=len(calibration))
    for start in range(0, len(calibration), BATCH_SIZE):
        calibrator.update(classifier.predict_proba(calibration[start : start + BATCH_SIZE]))
    threshold = calibrator.threshold()
    probabilities = jnp.asarray(classifier.predict_proba(test), jnp.float32)
    chosen = sets.threshold_set(probabilities, threshold)
    accuracy = float(
        metrics.accuracy(metrics.threshold_hits(probabilities, test_labels, threshold))
    )
    size = float(metrics.tally(metrics.set_sizes(chosen)).mean())
    top_1 = float(metrics.accuracy(metrics.top_k_hits(probabilities, test_labels, k=1)))
    print(f"top-1 accuracy {top_1:.3f}")
    print(f"sets of {K} classes on average: {accuracy:.3f}, with {size:.2f} classes a set")
    return accuracy, size


if __name__ == "__main__":
    main()
