"""The fields of `config.dataset` that say how examples are divided."""

from train.configuration.datasets import DividedFields


def fields(validation=0.2, test=0.2, unseen="refuse"):
    return DividedFields(
        name="divided",
        batch_size=1,
        validation_fraction=validation,
        test_fraction=test,
        unseen_classes=unseen,
    )
