"""The check that every class has training images."""

import numpy as np

from train.foundation.errors import UserError


def check_all_positive(class_counts: np.ndarray, rule: str) -> None:
    """Raises `UserError` if a class has no training images.

    Args:
        class_counts: the training images of each class, [L].
        rule: the start of the message: what the configuration must be in that case.
    """
    if not class_counts.all():
        without = int(np.flatnonzero(class_counts == 0)[0])
        raise UserError(f"{rule} if a class has no training images, as class {without} here")
