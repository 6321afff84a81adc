"""The fields of `config.dataset`: of every data set, and of some data sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from train.configuration.declaring import field

# More classes do not fit into the memory of a host, which has a name, a count and a prior of each.
MOST_CLASSES = 10**8
# They are drawn in memory, 128 bytes of each.
MOST_EXAMPLES = 10**8


@dataclass(frozen=True, kw_only=True)
class DatasetFields:
    """The fields of every data set. A data set with more fields has a subclass."""

    name: str = field(
        "A data set ([published](data.md), [your own](own_data.md)), or the import path of a "
        "`DatasetFamily`."
    )
    batch_size: int = field("The examples of a step, on all devices.", ge=1)
    data_dir: str | None = field(
        "The folder of prepared data. None: TFDS_DATA_DIR or ~/tensorflow_datasets.",
        default=None,
        of_machine=True,
    )
    mixup: float = field(
        "Mixes pairs with shares from Beta(mixup, mixup). 0: no mixup.",
        default=0.0,
        ge=0,
        le=1000,
        is_input=True,
    )
    sampling: Literal["uniform", "class_balanced"] = field(
        "Draws every example (`uniform`), or every class (`class_balanced`), equally often.",
        default="uniform",
    )
    taxonomy: str | None = field(
        "A column for each rank (`TABLE`, or `TABLE:family,genus,species`), or the genera of "
        "species (`first_word`). None: the data set's.",
        default=None,
        may_change=True,
    )
    train_per_class: int | None = field(
        "The most training examples of a class. None: all.", default=None, ge=1
    )
    imbalance_factor: float = field(
        "The largest class over the smallest in a made long tail. 1: as they are.",
        default=1.0,
        ge=1,
    )
    label_noise: float = field(
        "The probability that a training label is drawn again from the group of its class.",
        default=0.0,
        ge=0,
        le=1,
    )
    label_noise_kind: Literal["superclass", "blocks", "uniform"] = field(
        "The groups: [label noise](data.md#label-noise).", default="superclass"
    )


@dataclass(frozen=True, kw_only=True)
class StreamedFields(DatasetFields):
    """The fields of data sets whose images are read while the network trains."""

    num_workers: int = field(
        "Processes that decode images. 0: threads.", default=0, ge=0, le=256, of_machine=True
    )


@dataclass(frozen=True, kw_only=True)
class FilesFields(StreamedFields):
    """The fields of data sets of images whose files are looked at before the first step."""

    skip_unreadable: bool = field(
        "Leaves out and lists unreadable images; else they stop the run.",
        default=False,
        of_machine=True,
    )


_PATH = "Where the data is: [your own data](own_data.md)."
_PART = "The part of each class that is held out, unless the split is given."
# In messages and in the help of flags, which name no more of the package.
HOW_GROUPS_ARE_FOUND = (
    r"a regular expression with one capture, such as (obs\d+)_, or parent or near_duplicates"
)


@dataclass(frozen=True, kw_only=True)
class OwnFields(DatasetFields):
    """The fields of your own data, which the program divides into splits."""

    path: str = field(_PATH, may_change=True)
    group: str | None = field(
        "What stays in one split: [groups](own_data.md#groups). None: `group` if it exists.",
        default=None,
    )
    labels: Literal["one", "votes", "several"] = field(
        "`one` class, `votes` for one class, or `several` classes at once.", default="one"
    )
    votes: Literal["shares", "majority", "weighted", "dawid_skene"] = field(
        "How votes become plausibilities: [votes](labels.md#votes-and-several-labels).",
        default="shares",
    )
    validation_fraction: float = field(_PART, default=0.15, ge=0, lt=1)
    test_fraction: float = field(_PART, default=0.15, ge=0, lt=1)
    unseen_classes: Literal["refuse", "leave_out"] = field(
        "Classes without training examples are an error (`refuse`), or left out (`leave_out`).",
        default="refuse",
    )
    corrections: str | None = field(
        "Corrected labels, as `train.audit` writes them.", default=None, may_change=True
    )


FEATURES_ARE_IN = "an .npy or .npz file, or a folder of one of these"
IMAGES_ARE_IN = "a folder of images, a table (.csv, .tsv, .parquet), hf:NAME or tfds:NAME"


@dataclass(frozen=True, kw_only=True)
class FeaturesFields(OwnFields):
    """The fields of `features`."""

    path: str = field(_PATH, may_change=True, description=FEATURES_ARE_IN)


@dataclass(frozen=True, kw_only=True)
class ImagesFields(OwnFields, FilesFields):
    """The fields of `images`."""

    path: str = field(_PATH, may_change=True, description=IMAGES_ARE_IN)
    image_size: int | None = field(
        "Height and width. None: the images' if equal and ≤ 64, else 224.",
        default=None,
        ge=1,
        le=4096,
    )
    augmentation: Literal["none", "flip", "crop_flip", "random_resized_crop", "randaugment"] = (
        field("How training images are changed.", default="random_resized_crop")
    )
    normalization: Literal["imagenet", "half"] = field(
        "`imagenet` for pretrained networks, or `half`: values from -1 to 1.", default="imagenet"
    )
    nested: bool = field("Each folder with images is a class, as in genus/species.", default=False)
    image: str | None = field("The column of images. None: `path`, or by its type.", default=None)
    label: str | None = field("The column of labels. None: `label`, or by its type.", default=None)
    annotator: str | None = field("The column of voters. None: `annotator`.", default=None)
    part: str | None = field("The part (config) of hf:NAME, if there are several.", default=None)
    train_split: str | None = field("None: the split of that name.", default=None)
    validation_split: str | None = field("None: the split of that name.", default=None)
    test_split: str | None = field("None: the split of that name.", default=None)


@dataclass(frozen=True, kw_only=True)
class HeldOutFields(DatasetFields):
    """The field of published data sets without a validation split."""

    validation_size: int = field("Training examples that are held out for validation.", ge=1)


@dataclass(frozen=True, kw_only=True)
class Cifar100Fields(HeldOutFields):
    """The fields of `cifar100`."""

    holdout: Literal["balanced", "permuted"] = field(
        "Validation images: equally many of each class (`balanced`), or any number (`permuted`)."
    )


@dataclass(frozen=True, kw_only=True)
class ImagenetFields(StreamedFields, HeldOutFields):
    """The fields of `imagenet`."""


_EXAMPLES = "The examples of the split."


@dataclass(frozen=True, kw_only=True)
class SpeciesFields(DatasetFields):
    """The fields of `synthetic_species`."""

    num_classes: int = field("The classes.", ge=2, le=MOST_CLASSES)
    num_genera: int = field("The genera, groups of similar classes.", ge=1)
    # Below, eight bits no longer resolve the noise of an image.
    ambiguity: float = field("How much the classes of a genus overlap.", ge=0.01, le=100)
    # A power law of 10 gives the rarest of 10^8 species a probability of 1e-80, which is not 0.
    long_tail_exponent: float = field("How unequal the frequencies are. 0: equal.", ge=0, le=10)
    data_seed: int = field("The seed of the data, not of the run.", default=0, ge=0, le=2**32 - 1)
    num_train: int = field(_EXAMPLES, ge=1, le=MOST_EXAMPLES)
    num_validation: int = field(_EXAMPLES, ge=1, le=MOST_EXAMPLES)
    num_test: int = field(_EXAMPLES, ge=1, le=MOST_EXAMPLES)


@dataclass(frozen=True, kw_only=True)
class LatentsFields(SpeciesFields):
    """The fields of `synthetic_latents`."""

    generator: Literal["gaussian", "organs", "power_law"] = field(
        "The [distribution](data.md#synthetic-data)."
    )
    balanced_per_class: int = field(
        "Examples of each class in the class-balanced test. 0: no test.", ge=0, le=MOST_EXAMPLES
    )


def labels_of(fields: DatasetFields) -> str:
    """What the labels of an example are: "one", "votes" or "several"."""
    return fields.labels if isinstance(fields, OwnFields) else "one"


def path_of(fields: DatasetFields) -> str | None:
    """The place of the data of a run; None for data sets without such a field."""
    return fields.path if isinstance(fields, OwnFields) else None


# The fields of each data set by its name.
FIELDS_OF: Mapping[str, type[DatasetFields]] = {
    "cifar100": Cifar100Fields,
    "digits": DatasetFields,
    "features": FeaturesFields,
    "images": ImagesFields,
    "imagenet": ImagenetFields,
    "imagenet_lt": FilesFields,
    "plantnet300k": StreamedFields,
    "plantnet300k_v2": StreamedFields,
    "synthetic_latents": LatentsFields,
    "synthetic_species": SpeciesFields,
}
