"""One file of a classifier and its rule: `python -m train.export --workdir=DIR --out=F --top_k=5`.

The file is a serialized StableHLO program with the parameters and the threshold inside, made by
`jax.export`: uint8 images [n, height, width, channels], for any n, to the probabilities [n, L],
float32, and the sets [n, L], booleans. It runs where jax is (and flatbuffers, with which jax reads
it), without this program, on CPUs, NVIDIA GPUs and TPUs. What the numbers mean lies beside it in a
JSON file: the classes in their order, the rule, and how images are prepared.
"""

from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
from absl import flags

from train import command_line
from train.data import DatasetSpec, images
from train.foundation import files, output_files
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.prediction import calibrated_rule, inference, trained
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.trained import TrainedClassifier

_PLATFORMS = ("cpu", "cuda", "tpu")

_WORKDIR = flags.DEFINE_string("workdir", None, "Needed. The folder of a finished run.")
_RULE = calibrated_rule.define_flags()
_OUT = flags.DEFINE_string(
    "out",
    None,
    "Needed. The file for the program; a description is written beside it, as FILE.json.",
)


def main() -> None:
    """Exports what the flags ask for."""
    if not _WORKDIR.value:
        raise UserError("--workdir is needed: the folder of a finished run")
    make_rule = _RULE()
    if _OUT.value is None:
        raise UserError("--out is needed: the file for the program")
    out = output_files.checked("out", _OUT.value)
    classifier = trained.load(Path(_WORKDIR.value))
    rule = make_rule(classifier)
    program = export(classifier, rule)
    described = out.with_name(f"{out.name}.json")
    # First, for the program is what is loaded.
    files.write_whole(described, files.to_json(describe(classifier, rule), indent=1))
    files.write_whole(out, program)
    show_line(f"program      {out} ({len(program) / 1e6:,.1f} MB)")
    show_line(f"description  {described}")
    show_line("to run it, where jax and flatbuffers are installed:")
    show_line("  import jax.export, pathlib")
    show_line(f"  program = jax.export.deserialize(pathlib.Path({str(out)!r}).read_bytes())")
    show_line("  probabilities, chosen = program.call(images)")


def export(classifier: TrainedClassifier, rule: CalibratedRule) -> bytes:
    """The serialized program, for any number of images and all platforms."""
    (number,) = jax.export.symbolic_shape("n")
    batch = jax.ShapeDtypeStruct((number, *classifier.spec.image_shape), jnp.uint8)
    infer = jax.jit(inference.make(classifier, rule))
    return bytes(jax.export.export(infer, platforms=_PLATFORMS)(batch).serialize())


def describe(classifier: TrainedClassifier, rule: CalibratedRule) -> dict[str, Any]:
    """What has to be known to use the program; a threshold that is not finite is null."""
    spec = classifier.spec
    return {
        "images": {
            "shape": ["n", *spec.image_shape],
            "dtype": "uint8",
            "preparation": _preparation(spec),
        },
        "outputs": {
            "probabilities": {"shape": ["n", classifier.num_classes], "dtype": "float32"},
            "chosen": {"shape": ["n", classifier.num_classes], "dtype": "bool"},
        },
        "rule": str(rule),
        "rule_in_words": rule.in_words(),
        "threshold": rule.threshold,
        "classes": list(classifier.classes.names),
        "data_set": spec.name,
        "loss": classifier.config["loss"]["name"],
        "network": classifier.config["model"]["name"],
        "platforms": list(_PLATFORMS),
        "jax": jax.__version__,
    }


def _preparation(spec: DatasetSpec) -> str:
    """What is done to a picture before the program gets it, in words."""
    height, width, channels = spec.image_shape
    colour = "greyscale" if channels == 1 else "RGB"
    resized = (
        f"its shorter side resized to {images.SHORTER_SIDE} pixels"
        if spec.streamed
        else f"resized to just cover {height} x {width} pixels"
    )
    return (
        f"The picture, turned upright, in {colour}, {resized} (bilinear with antialiasing, as "
        f"Pillow does), the middle {height} x {width} pixels of it, values from 0 to 255. The "
        "program itself normalizes them."
    )


if __name__ == "__main__":
    command_line.run(main)
