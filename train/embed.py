"""Features of a network: `python -m train.embed --weights=FILE --images=DIR --out=features.npz`.

--workdir=DIR names a finished run instead of a file of weights. The features are those below the
head of the network, for each image of the folder or of the table. The file has them with the labels
and splits of the images: --config=configs/features.py trains a head on it. A folder that has images
and no folders of classes gives features without labels, for train.predict.

If a command that was stopped is given again, it computes only the features that are missing. With
--shard=i/n, the file has every n-th image; a folder with the files of all shares is one data set.
"""

from pathlib import Path

from absl import flags

from train.foundation import command_line, fields, flag_rules, flag_types, interruption
from train.foundation.errors import UserError
from train.foundation.flag_rules import Exclusive, Flag, Needed
from train.foundation.spelling import flags_for_fields
from train.prediction import shares
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
    "the name of the network, as config.model.name has it; needed if the file fits several.",
)
_IMAGE_SIZE = flag_types.define_integer(
    "image_size",
    "the height and width of the images for the network; by default as it was "
    "published, such as 224.",
    lower_bound=1,
)
_NORMALIZATION = flags.DEFINE_string(
    "normalization",
    None,
    "how images are normalized, imagenet, halves (values from -1 to 1) or clip; by "
    "default as the network was first published.",
)
_IMAGES = flags.DEFINE_string(
    "images", None, "A folder with a folder for each class, as for configs/images.py."
)
_TABLE = flags.DEFINE_string(
    "table", None, "Instead of --images: a table of images, as for configs/images.py."
)
_NESTED = flags.DEFINE_boolean("nested", False, "whether each folder with images is a class.")
_GROUP = flags.DEFINE_string(
    "group",
    None,
    "How the group of an image is found, as config.dataset.group; with --table, the column of the "
    "groups.",
)
_VALIDATION_FRACTION = flags.DEFINE_float(
    "validation_fraction",
    0.15,
    "The part of each class that is held out for validation if no split is given.",
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
_OUT = flags.DEFINE_string("out", None, "Needed. The .npz file for the features.")
_SHARE = shares.define(_OUT)

_ROWS = flag_rules.declare(
    Needed(("workdir", "weights"), "the folder of a finished run, or a file of weights"),
    Exclusive(("workdir", "weights")),
    Needed(("images", "table"), "a folder of images, or a table that lists them"),
    Exclusive(("images", "table")),
    *(
        Flag(flag.name, needs=("weights",), because="a run has its own")
        for flag in (_IMAGE_SIZE, _MODEL, _NORMALIZATION)
    ),
    Flag("nested", needs=("images",)),
    *(Flag(flag.name, fields.text("a path")) for flag in (_WORKDIR, _WEIGHTS, _IMAGES, _TABLE)),
    Flag("group", fields.text()),
    Needed(("out",), "the .npz file for the features"),
)
# Fields of the configuration that have flags here, but `config.dataset.path`.
_FLAGS = {
    "config.model.pretrained": "--weights",
    "config.model.name": "--model",
    **{
        f"config.dataset.{flag.name}": f"--{flag.name}"
        for flag in (_NESTED, _GROUP, _VALIDATION_FRACTION, _TEST_FRACTION)
    },
}


def main() -> None:
    """Writes the features of the images."""
    flag_rules.check(_ROWS)
    images, weights, workdir = (_path(flag) for flag in (_IMAGES, _WEIGHTS, _WORKDIR))
    found_in, flag = (_path(_TABLE), "table") if images is None else (images, "images")
    assert found_in is not None
    assert _OUT.value is not None
    if not _OUT.value.endswith(".npz"):
        raise UserError(field="--out", must_be="an .npz file", got=_OUT.value)
    kept = {} if workdir is None else run_inputs.of_run(workdir)
    kept |= {} if weights is None else {weights: "the file of --weights"}
    out = output_files.checked("out", _OUT.value, {found_in: f"what --{flag} names"} | kept)
    share = _SHARE()
    with flags_for_fields({**_FLAGS, "config.dataset.path": f"--{flag}"}):
        _embed(out, share)


def _embed(out: Path, share: slice) -> None:
    from train.models import NORMALIZATIONS
    from train.prediction.embedding import archive, found, network
    from train.prediction.embedding.embedding import embed

    flag_rules.check((Flag("normalization", fields.one_of(NORMALIZATIONS)),))
    if out.exists() and archive.identity_of(out) is None:
        raise UserError(
            field="--out", must_be="an .npz file, or a new one", but=f"{out} is of another kind"
        )
    settings = {
        "validation_fraction": _VALIDATION_FRACTION.value,
        "test_fraction": _TEST_FRACTION.value,
        "group": _GROUP.value,
        "skip_unreadable": _SKIP_UNREADABLE.value,
    }
    table, images, weights, workdir = map(_path, (_TABLE, _IMAGES, _WEIGHTS, _WORKDIR))
    place = table if images is None else images
    assert place is not None
    every = found.find(found.configuration(place, nested=_NESTED.value, **settings))
    given = every.take(shares.places(share, len(every)))
    if weights is not None:
        size, normalization = _IMAGE_SIZE.value, _NORMALIZATION.value
        used = network.of_weights(weights, _MODEL.value, size, normalization)
    else:
        assert workdir is not None
        used = network.of_run(workdir)
    with interruption.explained("the same command continues from here"):
        embed(used, given, out)


def _path(flag: flags.FlagHolder[str | None]) -> Path | None:
    """The path that a flag gives, if it does."""
    return None if flag.value is None else Path(flag.value).expanduser()


if __name__ == "__main__":
    command_line.run(main)
