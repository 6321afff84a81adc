"""Sets of a given mean size from the scores of another classifier, in batches.

    python -m examples.average_k_of_scores

Here a logistic regression of scikit-learn makes the scores; any probabilities [n, L] work. The
calibrator keeps only the K n largest of them in memory.
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
    # Strong regularization, for a classifier that is not too confident.
    classifier = LogisticRegression(C=0.01, max_iter=200).fit(fitted, train_labels[:-300])
    calibrator = sets.AverageKCalibrator(K, num_examples=len(calibration))
    for start in range(0, len(calibration), BATCH_SIZE):
        calibrator.update(classifier.predict_proba(calibration[start : start + BATCH_SIZE]))
    threshold = calibrator.threshold()
    probabilities = jnp.asarray(classifier.predict_proba(test), jnp.float32)
    chosen = sets.threshold_set(probabilities, threshold)
    accuracy = float(metrics.threshold_hits(probabilities, test_labels, threshold).mean())
    size = float(metrics.tally(metrics.set_sizes(chosen)).mean())
    top_1 = float(metrics.top_k_hits(probabilities, test_labels, k=1).mean())
    print(f"top-1 accuracy {top_1:.3f}")
    print(f"sets of {K} classes on average: {accuracy:.3f}, with {size:.2f} classes per set")
    return accuracy, size


if __name__ == "__main__":
    main()
