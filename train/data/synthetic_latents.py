"""Synthetic latents: the 16 numbers of `train.data.latent_species` as features, made in memory.

There are no files. Validation, test and training examples follow the distribution, and the classes
of the balanced test, if there is one, are equally frequent. The best classifier of the latents is
known.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from train.configuration.datasets import LatentsFields
from train.data import augmentation, label_noise, species_options
from train.data.dataset import Dataset, DatasetFamily, DatasetSpec, TrueDistribution
from train.data.label_noise import LabelNoise
from train.data.latent_species import LATENT_SIZE, LatentSpecies, check_integer
from train.data.organs_model import OrgansModel
from train.data.power_law_model import PowerLawModel
from train.data.records import Split
from train.data.species_model import SpeciesModel
from train.foundation import host_memory, ranks

# The laws by the name that `config.dataset.generator` has for them.
GENERATORS: dict[str, type[LatentSpecies]] = {
    "gaussian": SpeciesModel,
    "organs": OrgansModel,
    "power_law": PowerLawModel,
}

# The fields that the sizes of the parts come from.
_FIELDS = {
    "train": "config.dataset.num_train",
    "validation": "config.dataset.num_validation",
    "test": "config.dataset.num_test",
    "balanced_test": "config.dataset.balanced_per_class",
}


@dataclass(frozen=True, kw_only=True)
class SyntheticLatentsSpec(DatasetSpec):
    """Examples of a law.

    Attributes:
        law: the classes, and the latents of each.
        sizes: the number of examples of "train", "validation", "test" and "balanced_test"; 0 of the
            last for no such test.
        label_noise: the noise of the training labels; `None` for none.
    """

    law: LatentSpecies
    sizes: Mapping[str, int]
    label_noise: LabelNoise | None

    def load(self, data_dir: str | None, *, seed: int = 0) -> Dataset:
        """Draws the examples; see `DatasetSpec`."""
        del data_dir  # There are no files.
        self._check_memory()
        train, labels = self._sample("train")
        if self.label_noise is not None:
            labels = label_noise.apply(self.label_noise, labels, seed=seed)
        return Dataset(
            train=Split(train, labels),
            validation=Split(*self._sample("validation")),
            test=Split(*self._sample("test")),
            balanced_test=Split(*self._sample("balanced_test"))
            if self.sizes["balanced_test"]
            else None,
            class_names=tuple(self.law.class_names),
            ranks=ranks.first_words(self.law.class_names),
            image_shape=(LATENT_SIZE,),
            mean=tuple(train.mean(axis=0, dtype=np.float64).tolist()),
            std=tuple(train.std(axis=0, dtype=np.float64).tolist()),
        )

    def _check_memory(self) -> None:
        # The numbers are drawn in 64 bits, a part at a time, and kept in 32 bits with the labels.
        for part, size in self.sizes.items():
            what = f"the {size:,} examples of {_FIELDS[part]}"
            host_memory.check_fits(what, size * LATENT_SIZE * 8)
        total = sum(self.sizes.values())
        what = f"the {total:,} examples of {', '.join(_FIELDS.values())} together"
        host_memory.check_fits(what, total * (LATENT_SIZE + 1) * 4)

    def _sample(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """The latents float32 [n, 16] and labels int32 [n] of a part."""
        latents, labels = self.law.sample(part, self.sizes[part])
        return latents.astype(np.float32), labels.astype(np.int32)


def _spec(fields: LatentsFields) -> DatasetSpec:
    law = GENERATORS[fields.generator](**species_options.law_arguments(fields))
    check_integer("num_train", fields.num_train, minimum=law.fewest_training_examples)
    return SyntheticLatentsSpec(
        name=fields.name,
        num_classes=law.num_classes,
        image_shape=(LATENT_SIZE,),
        augment=augmentation.unchanged,
        attribution="drawn from a model by topk_jax, without data of others",
        mean=(),
        std=(),
        inputs="features",
        true_distribution=TrueDistribution(law.posterior, np.exp(law.log_prior)),
        law=law,
        sizes={
            "train": fields.num_train,
            "validation": fields.num_validation,
            "test": fields.num_test,
            "balanced_test": fields.balanced_per_class * law.num_classes,
        },
        label_noise=label_noise.asked_for(fields, tuple(law.genera.tolist())),
    )


SYNTHETIC_LATENTS = DatasetFamily(_spec, fields=LatentsFields)
