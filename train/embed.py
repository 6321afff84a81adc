"""Features of a network: `python -m train.embed --weights=FILE --images=DIR --out=features.npz`.

--workdir=DIR names a finished run instead of a file of weights. The features are those below the
head of the network, for each image of the folder or of the table. The file has them with the labels
and splits of the images: --config=configs/features.py trains a head on it. A folder that has images
and no folders of classes gives features without labels, for train.predict.

The same command, started again, goes on where it was stopped.
"""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags

from train.foundation import command_line, fields, flag_types
from train.foundation.errors import InterruptedRunError, UserError
from train.foundation.spelling import flags_for_fields
from train.workdir import output_files, run_inputs

_WORKDIR = flags.DEFINE_string("workdir", None, "The folder of a finished run on images.")
_WEIGHTS = flags.DEFINE_string(
    "weights",
    None,
    "Instead of --workdir: a file of the weights of a network, of safetensors or torch.save.",
)
_MODEL = flags.DEFINE_string(
    "model",
    None,
    "With --weights: the name of the network, as config.model.name has it; needed where the file "
    "fits several.",
)
_IMAGE_SIZE = flag_types.define_whole_number(
    "image_size",
    "With --weights: the height and width that the network gets; by default those of the images "
    "that it was published for, such as 224.",
    lower_bound=1,
)
_NORMALIZATION = flags.DEFINE_string(
    "normalization",
    None,
    "With --weights: how images are normalized, imagenet, halves (values from -1 to 1) or clip; by "
    "default as the network was first published.",
)
_DECODING = flags.DEFINE_string(
    "decoding",
    None,
    "With --weights: exact, by Pillow, or fast, as config.dataset.decoding; exact by default.",
)
_TRANSPARENCY = flags.DEFINE_string(
    "transparency",
    None,
    "With --weights: drop or white, as config.dataset.transparency; drop by default.",
)
_READ_TRUNCATED = flags.DEFINE_boolean(
    "read_truncated",
    None,
    "With --weights: whether a file that lacks its end is read as far as it goes, as "
    "config.dataset.read_truncated.",
)
_IMAGES = flags.DEFINE_string(
    "images", None, "A folder with a folder for each class, as for configs/folder.py."
)
_TABLE = flags.DEFINE_string(
    "table", None, "Instead of --images: a table of images, as for configs/table.py."
)
_NESTED = flags.DEFINE_boolean(
    "nested", False, "With --images: whether each folder with images is a class."
)
_VALIDATION_FRACTION = flags.DEFINE_float(
    "validation_fraction",
    0.15,
    "The part of each class that is held out for validation where no split is given.",
    lower_bound=0,
    upper_bound=1,
)
_TEST_FRACTION = flags.DEFINE_float(
    "test_fraction", 0.15, "As --validation_fraction, for the test.", lower_bound=0, upper_bound=1
)
_SKIP_UNREADABLE = flags.DEFINE_boolean(
    "skip_unreadable",
    False,
    "Whether images that cannot be read are left out; otherwise they are an error.",
)
_MAX_IMAGE_MB = flag_types.define_max_image_mb()
_OUT = flags.DEFINE_string("out", None, "Needed. The .npz file for the features.")

# Fields of the configuration that have flags here, but `config.dataset.path`.
_FLAGS = {
    "config.model.pretrained": "--weights",
    "config.model.name": "--model",
    **{
        f"config.dataset.{flag.name}": f"--{flag.name}"
        for flag in (
            _DECODING,
            _TRANSPARENCY,
            _READ_TRUNCATED,
            _NESTED,
            _VALIDATION_FRACTION,
            _TEST_FRACTION,
        )
    },
}


def main() -> None:
    """Writes the features of the images."""
    network_flag, network_path = _one_of({"workdir": _WORKDIR.value, "weights": _WEIGHTS.value})
    images_flag, images_path = _one_of({"images": _IMAGES.value, "table": _TABLE.value})
    if _IMAGE_SIZE.value is not None and network_flag == "workdir":
        raise UserError("--image_size is for --weights: a run has the size of its own images")
    if _MODEL.value is not None and network_flag == "workdir":
        raise UserError("--model is for --weights: a run has its own network")
    if _NORMALIZATION.value is not None and network_flag == "workdir":
        raise UserError("--normalization is for --weights: a run has its own")
    given = {
        flag.name: flag.value
        for flag in (_DECODING, _TRANSPARENCY, _READ_TRUNCATED)
        if flag.value is not None
    }
    if given and network_flag == "workdir":
        raise UserError(f"--{next(iter(given))} is for --weights: a run has its own")
    if _NESTED.value and images_flag == "table":
        raise UserError("--nested is for --images")
    if _OUT.value is None:
        raise UserError("--out is needed: the .npz file for the features")
    if not _OUT.value.endswith(".npz"):
        raise UserError(f"--out must be an .npz file; got {_OUT.value!r}")
    used_files = (
        {network_path: "the file of --weights"}
        if network_flag == "weights"
        else run_inputs.of_run(network_path)
    )
    kept = {images_path: f"what --{images_flag} names"} | used_files
    out = output_files.checked("out", _OUT.value, kept)
    with flags_for_fields({**_FLAGS, "config.dataset.path": f"--{images_flag}"}):
        _embed(network_flag, network_path, images_flag, images_path, out, given)


def _embed(
    network_flag: str,
    network_path: Path,
    images_flag: str,
    images_path: Path,
    out: Path,
    given: Mapping[str, Any],
) -> None:
    from train.configuration.datasets import FolderFields
    from train.configuration.declaring import of_group
    from train.models import NORMALIZATIONS
    from train.prediction.embedding import archive, found, network
    from train.prediction.embedding.embedding import embed

    if _NORMALIZATION.value is not None and (
        wrong := fields.one_of(NORMALIZATIONS)(_NORMALIZATION.value)
    ):
        raise UserError(f"--normalization must be {wrong}; got {_NORMALIZATION.value!r}")
    declared = of_group(FolderFields)
    for name, value in given.items():
        if wrong := declared[name].check(value):
            raise UserError(f"--{name} must be {wrong}; got {value!r}")
    if out.exists() and archive.identity_of(out) is None:
        raise UserError(f"--out must not be a file of another kind; {out} is no .npz file")
    settings = {
        "validation_fraction": _VALIDATION_FRACTION.value,
        "test_fraction": _TEST_FRACTION.value,
        "max_image_mb": _MAX_IMAGE_MB() // 2**20,
    }
    images = (
        found.in_table(images_path, **settings)
        if images_flag == "table"
        else found.in_folder(images_path, nested=_NESTED.value, **settings)
    )
    used = (
        network.of_weights(
            network_path,
            _MODEL.value,
            _IMAGE_SIZE.value,
            _NORMALIZATION.value,
            **given,
        )
        if network_flag == "weights"
        else network.of_run(network_path)
    )
    try:
        embed(used, images, out, skip_unreadable=_SKIP_UNREADABLE.value)
    except KeyboardInterrupt as error:
        raise InterruptedRunError(signal.SIGINT, "the same command goes on from here") from error


def _one_of(values: Mapping[str, str | None]) -> tuple[str, Path]:
    """The one flag of several that is given, and the path that it names."""
    given = [(name, Path(value).expanduser()) for name, value in values.items() if value]
    named = " or ".join(f"--{name}" for name in values)
    if not given:
        raise UserError(f"{named} is needed")
    if len(given) > 1:
        raise UserError(f"only one of {named} can be given")
    return given[0]


if __name__ == "__main__":
    command_line.run(main)
