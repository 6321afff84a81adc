"""The fields of `config.dataset`: of every data set, and of some data sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from train.configuration.declaring import field
from train.foundation.fields import Number, integer, text
from train.foundation.files import MOST_IMAGE_BYTES

# More do not fit into the memory of a host: a class has a name, a count and a prior there.
MOST_CLASSES = 10**8
# On any machine. The limit of this one's memory is known when the examples are made.
MOST_EXAMPLES = 10**15


@dataclass(frozen=True, kw_only=True)
class DatasetFields:
    """The fields of every data set. A data set with more fields has a subclass."""

    name: str = field("The data set: a name, or the import path of a `DatasetFamily`.")
    batch_size: int = field("The training examples of a step, on all devices.", integer(1))
    data_dir: str | None = field(
        "The folder of the prepared data sets. None for TFDS_DATA_DIR or ~/tensorflow_datasets.",
        default=None,
        of_machine=True,
    )
    mixup: float = field(
        "Training examples are mixed in pairs, with shares from Beta(mixup, mixup). 0 for no "
        "mixup.",
        Number(at_least=0, at_most=1000),
        default=0.0,
        is_input=True,
    )
    sampling: Literal["uniform", "class_balanced"] = field(
        "`uniform` draws every training example equally often, `class_balanced` every class.",
        default="uniform",
    )
    taxonomy: str | None = field(
        "What is above the classes: a table with a column for each rank, from the classes up or "
        "from the top down, or `first_word`, the genera of names of species. None for what the "
        "data set has: continents, genera, superclasses, or nested folders.",
        text("the path of a table, or first_word"),
        default=None,
        may_change=True,
    )
    max_image_mb: int = field(
        "The largest file of one of your own images that is read, in MiB.",
        integer(1),
        default=MOST_IMAGE_BYTES // 2**20,
        of_machine=True,
    )

    @property
    def most_bytes(self) -> int:
        """The largest file of one of your own images that is read, in bytes."""
        return 2**20 * self.max_image_mb


@dataclass(frozen=True, kw_only=True)
class StreamedFields(DatasetFields):
    """The fields of data sets whose images are read while the network trains."""

    num_workers: int = field(
        "The number of processes that decode images. 0 for threads of the program's own process.",
        integer(0, 256),
        default=0,
        of_machine=True,
    )
    skip_unreadable: bool = field(
        "Whether images that cannot be read are left out and listed. If not, they stop the run.",
        default=False,
        of_machine=True,
    )
    decoding: Literal["exact", "fast"] = field(
        "The packages that decode and resize images: Pillow (`exact`), which gave the published "
        "results, or others in 0.6 of the time, whose pixels differ by at most a step of 255 "
        "(`fast`).",
        default="exact",
    )


@dataclass(frozen=True, kw_only=True)
class TrainSizeFields(DatasetFields):
    """The field of data sets that may be used in part."""

    train_size: int | None = field(
        "The number of training examples, in the same proportions of classes. None for all.",
        integer(1),
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class ImbalanceFields(DatasetFields):
    """The field of data sets that can be made long-tailed."""

    imbalance_factor: float = field(
        "The training images of the largest class for one of the smallest, in a long tail that is "
        "made of them. 1 for the classes as they are.",
        Number(at_least=1),
        default=1.0,
    )


@dataclass(frozen=True, kw_only=True)
class NoisyFields(DatasetFields):
    """The field of data sets whose labels can be made noisy."""

    label_noise: float = field(
        "The probability that a training label is drawn again, from the group of its class.",
        Number(at_least=0, at_most=1),
        default=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class GroupedFields(NoisyFields):
    """The fields of data sets with superclasses whose labels can be made noisy."""

    label_noise_kind: Literal["superclass", "blocks", "across", "uniform"] = field(
        "The groups: the `superclass` or genus, `blocks` of five classes that are neighbours, five "
        "classes `across` the others, or all classes (`uniform`).",
        default="superclass",
    )


@dataclass(frozen=True, kw_only=True)
class DividedFields(DatasetFields):
    """The fields of your own data, which the program divides into splits."""

    validation_fraction: float = field(
        "The part of each class that is held out for validation if no such split is given.",
        Number(at_least=0, below=1),
        default=0.15,
    )
    test_fraction: float = field(
        "The part of each class that is held out for the test if no such split is given.",
        Number(at_least=0, below=1),
        default=0.15,
    )
    unseen_classes: Literal["refuse", "leave_out", "count_as_unknown"] = field(
        "What becomes of classes without training examples: the data are refused, the examples of "
        "these classes are left out, or their test examples count as misses.",
        default="refuse",
    )
    corrections: str | None = field(
        "A table of corrected labels, as train.audit writes it.",
        text("the path of a table"),
        default=None,
        may_change=True,
    )


@dataclass(frozen=True, kw_only=True)
class LabelsFields(DividedFields):
    """The fields of your own data whose examples may have more than one label."""

    labels: Literal["one", "votes", "several"] = field(
        "What the labels of an example are: `one` class, `votes` for what its one class is, or "
        "`several` classes that are present at once.",
        default="one",
    )
    votes: Literal["shares", "majority", "weighted", "dawid_skene"] = field(
        "How votes become the plausibilities of classes. All votes count alike (`shares`), the "
        "most voted class alone is plausible (`majority`), people who have named more classes "
        "count more (`weighted`), or the confusions of each person are estimated (`dawid_skene`).",
        default="shares",
    )


@dataclass(frozen=True, kw_only=True)
class OwnImageFields(StreamedFields, ImbalanceFields, NoisyFields, DividedFields):
    """The fields of your own images, whatever holds them."""

    image_size: int | None = field(
        "The height and width that the network gets. None for that of the images if all have one "
        "size of at most 64 pixels, and for 224 otherwise.",
        integer(1, 4096),
        default=None,
    )
    augmentation: Literal["none", "flip", "crop_flip", "random_resized_crop", "randaugment"] = (
        field("How training images are changed.", default="random_resized_crop")
    )
    respect_exif_orientation: bool = field(
        "Whether photographs are rotated as the camera noted.", default=True
    )
    transparency: Literal["drop", "white"] = field(
        "Transparent pixels have their colour (`drop`), or are on `white`.", default="drop"
    )
    read_truncated: bool = field(
        "Whether a file that lacks its end is read as far as it goes. If not, it cannot be read.",
        default=False,
    )
    check_images: Literal["headers", "all"] = field(
        "How images are looked at before the first step: their first and last bytes (`headers`), "
        "or `all` are decoded, which takes as long as an epoch reads.",
        default="headers",
        of_machine=True,
    )
    list_near_duplicates: bool = field(
        "Whether images of different splits that look alike are listed before the first step, for "
        "which all images are read.",
        default=True,
        of_machine=True,
    )
    normalization: Literal["imagenet", "half"] = field(
        "`imagenet`, which pretrained networks expect, or `half`: values from -1 to 1.",
        default="imagenet",
    )
    train_per_class: int | None = field(
        "The largest number of training images of a class. None for all.", integer(1), default=None
    )
    label_noise_kind: Literal["blocks", "across", "uniform"] = field(
        "The groups: `blocks` of five classes that are neighbours, five classes `across` the "
        "others, or all classes (`uniform`).",
        default="blocks",
    )


_A_PATH = text("the path of a file or a folder")
# In messages and in the help of flags, which name no more of the package.
HOW_GROUPS_ARE_FOUND = (
    r"a regular expression with one capture, such as (obs\d+)_, or parent, exif:FIELD, "
    "burst:SECONDS or near_duplicates"
)
_GROUPS = "what belongs together, as the photographs of one plant, stays in one split"


@dataclass(frozen=True, kw_only=True)
class TableFields(OwnImageFields, LabelsFields):
    """The fields of `table`."""

    path: str = field("The table.", _A_PATH, may_change=True)
    image: str | None = field("The column of the paths. None for `path`.", default=None)
    label: str | None = field(
        "The column of the labels, or several with commas between them. None for `label`.",
        default=None,
    )
    annotator: str | None = field(
        "The column of who gave a vote. None for `annotator` if there is one.", default=None
    )
    group: str | None = field(
        f"The column of the groups: {_GROUPS}. None for the column `group` if there is one.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class FolderFields(OwnImageFields):
    """The fields of `folder`."""

    path: str = field("The folder with the images.", _A_PATH, may_change=True)
    nested: bool = field(
        "Whether each folder with images is a class, as in genus/species.", default=False
    )
    group: str | None = field(
        f"How the group of an image is found: {_GROUPS}. A regular expression with one capture, "
        "which is searched for in its path; `parent`, its folder; `exif:FIELD`; `burst:SECONDS`; "
        "or `near_duplicates`. None for no groups.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class NamedSplitFields(OwnImageFields):
    """The fields of data sets of images whose splits have names."""

    train_split: str | None = field(
        "The split for training. None for the one that is named so.", default=None
    )
    validation_split: str | None = field(
        "The split for validation. None for the one that is named so.", default=None
    )
    test_split: str | None = field(
        "The split for the test. None for the one that is named so.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class HuggingfaceFields(NamedSplitFields):
    """The fields of `huggingface`."""

    path: str | None = field("A folder or a .parquet file.", default=None, may_change=True)
    huggingface_name: str | None = field(
        "The name on the hub, as in user/name, if there is no path.", default=None
    )
    huggingface_config: str | None = field(
        "The part of the data set, if it has several.", default=None
    )
    image_column: str | None = field(
        "The column of the images. None for the only one of their type.", default=None
    )
    label_column: str | None = field(
        "The column of the labels. None for the only one of their type.", default=None
    )
    group: str | None = field(
        f"The column of the groups: {_GROUPS}. None for the column `group` if there is one.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class TfdsFields(NamedSplitFields):
    """The fields of `tfds`."""

    tfds_name: str = field(
        "The name of the data set, possibly with a config and a version: name/config:1.0.0."
    )


@dataclass(frozen=True, kw_only=True)
class FeaturesFields(LabelsFields):
    """The fields of `features`."""

    path: str = field("The file or the folder with the features.", _A_PATH, may_change=True)
    group: str | None = field(
        f"The array of the groups: {_GROUPS}. None for the array `group` if there is one.",
        default=None,
    )


_VALIDATION_SIZE = "The number of training examples that are held out for validation."


@dataclass(frozen=True, kw_only=True)
class Cifar100Fields(TrainSizeFields, ImbalanceFields, GroupedFields):
    """The fields of `cifar100`."""

    validation_size: int = field(_VALIDATION_SIZE, integer(1))
    holdout: Literal["balanced", "permuted"] = field(
        "Whether every class has equally many validation images (`balanced`), or any number."
    )


@dataclass(frozen=True, kw_only=True)
class ImagenetFields(TrainSizeFields, StreamedFields):
    """The fields of `imagenet`."""

    validation_size: int = field(_VALIDATION_SIZE, integer(1))


@dataclass(frozen=True, kw_only=True)
class PlaceNamesFields(TrainSizeFields):
    """The fields of `place_names`."""

    target: Literal["country", "region"] = field("What a name is classified by.")
    labels: Literal["one", "votes"] = field(
        "`one` for an example of each country of a name, or `votes` for one example of a name, "
        "with the share of each country in the places of that name.",
        default="one",
    )
    fewest_names: int | None = field(
        "The names that a country or region needs to be a class. None for any number that leaves 3 "
        "for training.",
        integer(1),
        default=None,
    )
    balanced_per_class: int | None = field(
        "The names of each class in the class-balanced test. None for 10 of a country and 2 of a "
        "region.",
        integer(1),
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class SpeciesFields(GroupedFields):
    """The fields of `synthetic_species`."""

    num_classes: int = field("The number of classes.", integer(2, MOST_CLASSES))
    num_genera: int = field("The number of genera, groups of similar classes.", integer(1))
    ambiguity: float = field("How much the classes of a genus overlap.", Number(above=0))
    long_tail_exponent: float = field(
        "How much more frequent the first class is than the last. 0 for equal frequencies.",
        Number(at_least=0),
    )
    data_seed: int = field(
        "The seed of the data set. The run has another one.", integer(0, 2**32 - 1), default=0
    )
    num_train: int = field("The number of training examples.", integer(1, MOST_EXAMPLES))
    num_validation: int = field("The number of validation examples.", integer(1, MOST_EXAMPLES))
    num_test: int = field("The number of test examples.", integer(1, MOST_EXAMPLES))


@dataclass(frozen=True, kw_only=True)
class LatentsFields(SpeciesFields):
    """The fields of `synthetic_latents`."""

    generator: Literal["gaussian", "organs", "power_law"] = field("The law of the examples.")
    balanced_per_class: int = field(
        "The examples of each class in the class-balanced test. 0 for no such test.",
        integer(0, MOST_EXAMPLES),
    )


@runtime_checkable
class _HasLabels(Protocol):
    @property
    def labels(self) -> str: ...


def labels_of(fields: DatasetFields) -> str:
    """What the labels of an example are: "one", "votes" or "several"."""
    return fields.labels if isinstance(fields, _HasLabels) else "one"


@runtime_checkable
class _HasPath(Protocol):
    @property
    def path(self) -> str | None: ...


def path_of(fields: DatasetFields) -> str | None:
    """Where the data of a run are; None for data sets without such a field."""
    return fields.path if isinstance(fields, _HasPath) else None


# The fields of each data set by its name.
FIELDS_OF: Mapping[str, type[DatasetFields]] = {
    "cifar100": Cifar100Fields,
    "digits": DatasetFields,
    "features": FeaturesFields,
    "folder": FolderFields,
    "huggingface": HuggingfaceFields,
    "imagenet": ImagenetFields,
    "imagenet_lt": StreamedFields,
    "place_names": PlaceNamesFields,
    "plantnet300k": StreamedFields,
    "plantnet300k_v2": StreamedFields,
    "synthetic_latents": LatentsFields,
    "synthetic_species": SpeciesFields,
    "table": TableFields,
    "tfds": TfdsFields,
}
