"""Where the label stands among the classes."""

from typing import Any


def label_ranks(scores: Any, labels: Any) -> Any:
    """How many classes come before the label: a larger score, or an equal one and a lower index.

    Args:
        scores: [n, L], an array of NumPy, in any precision, or of JAX.
        labels: [n], of the same.

    Returns:
        [n]; L where a score is NaN, so that no K is large enough.
    """
    arrays = scores.__array_namespace__()
    num_classes = scores.shape[-1]
    score = arrays.take_along_axis(scores, labels[:, None], axis=-1)
    first = arrays.arange(num_classes)[None, :] < labels[:, None]
    before = (scores > score) | ((scores == score) & first)
    is_bad = arrays.isnan(scores).any(axis=-1)
    return arrays.where(is_bad, num_classes, before.sum(axis=-1))
