"""Features of a network: `python -m train.embed --weights=FILE --images=DIR --out=features.npz`.

--workdir=DIR names a finished run instead of a file of weights. The features are those below the
head of the network, for each image of the folder or of the table. The file has them with the labels
and splits of the images: --config=configs/features.py trains a head on it. A folder that has images
and no folders of classes gives features without labels, for train.predict.

If a command that was stopped is given again, it computes only the features that are missing. With
--shard=i/n, the file has every n-th image; a folder with the files of all shares is one data set.
"""

from absl import flags

from train.foundation import command, kinds
from train.foundation.errors import explained, naming_flags
from train.foundation.flags import Flag, Needed, check, declare, path_of
from train.prediction import shares
from train.run import output_files

_WORKDIR = flags.DEFINE_string("workdir", None, "The folder of a finished run on images.")
_WEIGHTS = flags.DEFINE_string(
    "weights", None, "Instead of --workdir: a file of weights, of safetensors or torch.save."
)
_MODEL = flags.DEFINE_string(
    "model", None, "the network, as in config.model.name; needed if the file fits several."
)
_IMAGE_SIZE = flags.DEFINE_integer(
    "image_size",
    None,
    "the side of the images; by default that of the published network.",
    lower_bound=1,
)
_NORMALIZATION = flags.DEFINE_string(
    "normalization", None, "imagenet, halves (values from -1 to 1) or clip; by default its own."
)
_IMAGES = flags.DEFINE_string(
    "images",
    None,
    "Needed. A folder with a folder for each class, or a table, as configs/images.py.",
)
_NESTED = flags.DEFINE_boolean("nested", False, "Whether each folder with images is a class.")
_GROUP = flags.DEFINE_string(
    "group", None, "How the group of an image is found: as config.dataset.group."
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
    "skip_unreadable", False, "Whether images that cannot be read are left out; else an error."
)
_OUT = flags.DEFINE_string("out", None, "Needed. The .npz file for the features.")
_SHARE = shares.define(_OUT)
_OF_DATA = (_NESTED, _GROUP, _VALIDATION_FRACTION, _TEST_FRACTION, _SKIP_UNREADABLE)
_ROWS = declare(
    Needed(("workdir", "weights"), "the folder of a finished run, or a file of weights"),
    Flag("workdir", excludes=("weights",)),
    Needed(("images",), "a folder of images, or a table that lists them"),
    Needed(("out",), "the .npz file for the features"),
    *(
        Flag(flag.name, needs=("weights",), because="a run has its own")
        for flag in (_IMAGE_SIZE, _MODEL, _NORMALIZATION)
    ),
    *(Flag(name, kinds.TEXT, exists=True) for name in ("workdir", "weights")),
    Flag("images", kinds.TEXT),
    Flag("group", kinds.TEXT),
)
# Fields of the configuration that have flags here.
_FLAGS = {
    "config.model.pretrained": "--weights",
    "config.model.name": "--model",
    "config.dataset.path": "--images",
    **{f"config.dataset.{flag.name}": f"--{flag.name}" for flag in _OF_DATA},
}


def main() -> None:
    """Writes the features of the images."""
    check(_ROWS)
    images, weights, workdir = map(path_of, (_IMAGES, _WEIGHTS, _WORKDIR))
    assert images is not None
    kept = {images.expanduser(): "what --images names"}
    kept |= {} if weights is None else {weights: "the file of --weights"}
    out = output_files.checked("out", _OUT.value or "", kept, suffixes=(".npz",))
    share = _SHARE()
    from train.classifiers import network
    from train.prediction import embedding

    with (
        naming_flags(_FLAGS),
        explained("the same command continues from here"),
    ):
        every = embedding.find(images, **{flag.name: flag.value for flag in _OF_DATA})
        given = every.take(shares.places(share, len(every)))
        if workdir is not None:
            used = network.of_run(workdir)
        else:
            assert weights is not None
            more = (_MODEL.value, _IMAGE_SIZE.value, _NORMALIZATION.value)
            used = network.of_weights(weights.expanduser(), *more)
        embedding.embed(used, given, out)


if __name__ == "__main__":
    command.run(main)
