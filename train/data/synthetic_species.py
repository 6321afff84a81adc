"""Synthetic species: images drawn from a seed, with a known probability of each class."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from train.configuration.datasets import SpeciesFields
from train.data import augmentation, label_noise, species_options
from train.data.dataset import DatasetFamily, DatasetSpec, TrueDistribution
from train.data.latent_species import LatentExamples, check_integer
from train.data.prepared_spec import PreparedSpec
from train.data.species_model import CHUNK_SIZE, IMAGE_SHAPE, SpeciesModel
from train.foundation import host_memory, ranks


@dataclasses.dataclass(eq=False, kw_only=True)
class SpeciesConfig(tfds.core.BuilderConfig):
    """The distribution of the examples, and how many there are.

    All of it is in the name, so that data sets of different parameters have different folders.
    """

    name: str = dataclasses.field(init=False)
    model: SpeciesModel = dataclasses.field(default_factory=SpeciesModel)
    num_train: int = 20_000
    num_validation: int = 5_000
    num_test: int = 10_000

    def __post_init__(self) -> None:
        check_integer("num_train", self.num_train, minimum=self.model.num_classes)
        check_integer("num_validation", self.num_validation, minimum=1)
        check_integer("num_test", self.num_test, minimum=1)
        model = self.model
        self.name = (
            f"{model.num_classes}_classes_{model.num_genera}_genera"
            f"_ambiguity_{float(model.ambiguity)}_exponent_{float(model.long_tail_exponent)}"
            f"_seed_{model.seed}_sizes_{self.num_train}_{self.num_validation}_{self.num_test}"
        )


class SyntheticSpecies(tfds.core.GeneratorBasedBuilder):
    """Species within genera, long-tailed, whose posterior p(y | x) is known in closed form.

    `train.data.species_model` describes the distribution. Examples are independent. The
    validation and test examples are drawn from the long-tailed distribution itself. The training
    part has its class frequencies as closely as integers can, with at least one example of each
    class.
    An example is a function of the distribution, its part and its index: another size of a part
    changes neither the other parts nor the examples that both sizes have.
    """

    name = "synthetic_species"
    VERSION = tfds.core.Version("1.0.1")
    RELEASE_NOTES: dict[str, str] = {  # noqa: RUF012 (tfds's convention)
        "1.0.0": "First version.",
        "1.0.1": "Classes far from the others lie within the grey levels.",
    }

    def __init__(self, *, config: SpeciesConfig | None = None, **kwargs: Any) -> None:
        super().__init__(config=SpeciesConfig() if config is None else config, **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        model = self.builder_config.model
        return self.dataset_info_from_configs(
            description="Images of Gaussian latents in classes of known means.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=IMAGE_SHAPE, dtype=np.uint8),
                    "label": tfds.features.ClassLabel(names=model.class_names),
                }
            ),
            supervised_keys=("image", "label"),
            metadata=tfds.core.MetadataDict(genera=model.genera.tolist()),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        del dl_manager  # Nothing to download.
        config = self.builder_config
        sizes = {
            "train": config.num_train,
            "validation": config.num_validation,
            "test": config.num_test,
        }
        for part, size in sizes.items():
            what = f"the {size:,} images of config.dataset.num_{part}"
            host_memory.check_fits(what, size * math.prod(IMAGE_SHAPE))
        return {
            part: self._generate_examples(config.model.sample(part, size))
            for part, size in sizes.items()
        }

    def _generate_examples(self, examples: LatentExamples) -> Iterator[tuple[int, dict[str, Any]]]:
        labels = examples.labels.tolist()
        for start in range(0, len(labels), CHUNK_SIZE):
            images = self.builder_config.model.render(examples.latents[start : start + CHUNK_SIZE])
            for index, image in enumerate(images, start):
                # An image object: tfds encodes arrays with TensorFlow, but this without it.
                yield index, {"image": Image.fromarray(image), "label": labels[index]}


def _spec(fields: SpeciesFields) -> DatasetSpec:
    model = SpeciesModel(**species_options.law_arguments(fields))
    builder_config = SpeciesConfig(
        model=model,
        num_train=fields.num_train,
        num_validation=fields.num_validation,
        num_test=fields.num_test,
    )
    return PreparedSpec(
        name=fields.name,
        num_classes=model.num_classes,
        image_shape=IMAGE_SHAPE,
        builder=functools.partial(SyntheticSpecies, config=builder_config),
        # A shifted or flipped image would follow another distribution.
        augment=augmentation.unchanged,
        attribution="drawn from a model by topk_jax, without data of others",
        mean=model.channel_mean,
        std=model.channel_std,
        generated_on_use=True,
        label_noise=label_noise.asked_for(fields, tuple(model.genera.tolist())),
        ranks_of=ranks.first_words,
        true_distribution=TrueDistribution(model.bayes_probabilities, np.exp(model.log_prior)),
    )


SYNTHETIC_SPECIES = DatasetFamily(_spec, SyntheticSpecies, fields=SpeciesFields)
