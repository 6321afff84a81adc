"""The data set `features`: a matrix of features of your own, with labels."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.configuration.datasets import FeaturesFields
from train.data import division
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec
from train.data.examples import Split
from train.data.own_images import divided, warn_of_likely
from train.data.sources import features


@dataclass(frozen=True, kw_only=True)
class FeaturesSpec(DatasetSpec):
    """Features in files; the rows of a batch are read when it wants them.

    Attributes:
        fields: `config.dataset`.
    """

    fields: FeaturesFields

    def load(self, data_dir: str | None) -> Dataset:
        """Opens the files, and goes through all features once; see `DatasetSpec`."""
        del data_dir  # They are at `config.dataset.path`.
        fields, path = self.fields, Path(self.fields.path).expanduser().absolute()
        found = features.find(path, kind=fields.labels, rule=fields.votes, group=fields.group)
        examples = divided(found, fields, example="row")
        warn_of_likely(examples, "an array group")
        training = np.zeros(len(found), np.bool_)
        training[examples.of_split(Split.TRAIN).places] = True
        mean, std, content = features.summarize(found.array, training, found.where)
        examples = dataclasses.replace(examples, content=content)
        return Dataset(
            train=examples.of_split(Split.TRAIN),
            validation=examples.of_split(Split.VALIDATION),
            test=examples.of_split(Split.TEST),
            class_names=examples.class_names,
            image_shape=found.array.shape[1:],
            digest=examples.digest(),
            mean=tuple(mean.tolist()),
            std=tuple(std.tolist()),
            embedded_by=features.embedded_by(features.arrays(path)),
        )


def _spec(fields: FeaturesFields) -> DatasetSpec:
    division.check_fractions(fields.validation_fraction, fields.test_fraction)
    return FeaturesSpec(
        name=fields.name,
        num_classes=None,
        image_shape=None,
        mean=(),
        std=(),
        inputs="features",
        fields=fields,
    )


FEATURES = DatasetFamily(_spec, fields=FeaturesFields)
