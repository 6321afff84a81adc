"""The outlier scores by name, for classes that a classifier does not know.

Nothing is computed here: the help of commands names the scores without waiting for JAX.
"""

DEFAULT = "either"
# The number of neighbours. The distance to only the nearest one would depend on single examples.
NEIGHBORS = 5
# Each score in words. All are smaller for usual examples.
OF_LOGITS = {
    "energy": "minus the logarithm of the sum of the exponentials of the logits",
    "logit": "minus the largest logit",
    "probability": "1 minus the largest probability of the softmax",
}
OF_FEATURES = {
    "neighbors": f"the distance to the training example that is number {NEIGHBORS} by nearness, "
    "of features of length 1",
    "mahalanobis": "the distance to the nearest mean of a class, in the covariance of the features "
    "within classes",
}
OF_BOTH = {
    "either": "the larger of energy and mahalanobis, each in units of its own spread over training "
    "examples; energy without training examples",
}
SCORES = OF_BOTH | OF_LOGITS | OF_FEATURES
IN_WORDS = "; ".join(f"{name}: {what}" for name, what in SCORES.items())
