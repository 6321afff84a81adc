"""One file of a classifier and its rule: `python -m train.export --workdir=DIR --out=F --top_k=5`.

The file maps uint8 images [n, height, width, channels] or float32 features [n, d] to probabilities
and sets [n, L]. It is a StableHLO program for CPUs, NVIDIA GPUs and TPUs, or with --format=onnx an
ONNX file that is kept if ONNX Runtime computes what JAX computes. FILE.json has the classes in
their order, the rule with its limits, and how images are prepared. FILE.py prints the sets of image
files. FILE.md is a model card, in the format of Hugging Face.

A run on features is exported together with the network that made them, as one program of images,
if that network is where it was or --weights=FILE gives it; otherwise as a program of features. A
published network is given by --weights=FILE with --dataset=NAME or --classes=FILE.
"""

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from train.classifiers import flags as classifier_flags
from train.classifiers.flags import ChosenClassifier
from train.foundation import command, files, kinds
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flags import Flag, Needed, check, declare, path_of
from train.prediction import set_flags
from train.run import output_files

if TYPE_CHECKING:
    from train.classifiers.trained import TrainedClassifier
    from train.reports.rules import SetRule

_CLASSIFIER = classifier_flags.define()
_SETS = set_flags.define(repeated=False)
_CALIBRATION = flags.DEFINE_string(
    "calibration",
    None,
    "A file of train.evaluate --calibration_out with limits of the rule; by default they are "
    "fitted on the validation examples.",
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "program",
    ["program", "onnx", "web", "safetensors"],
    "program: images to probabilities and sets, for JAX. onnx: the same for ONNX Runtime. web: a "
    "page that computes the same in a browser, as a folder of files for any server. safetensors: "
    "only the weights, by the names that torchvision or timm have for them.",
)
_FLOAT16 = flags.DEFINE_bool(
    "float16", None, "Stores weights in 16 bits, in half of the space, and fits limits with these."
)
_ONNXRUNTIME_WEB = flags.DEFINE_string(
    "onnxruntime_web", None, "The folder of the npm package onnxruntime-web."
)
_OUT = flags.DEFINE_string(
    "out",
    None,
    "Needed. The file; FILE.json, FILE.md and, for images, FILE.py are written beside it. With "
    "--format=web the folder, which does not exist.",
)
_ROWS = declare(
    *(
        Flag(name, excludes=("format=safetensors",), because="weights have no rule")
        for name in ("sets", "top_k", "average_k", "coverage", "calibration")
    ),
    Needed(("out",), "the file for the program or the weights"),
    Flag("float16", needs=("format=onnx", "format=web"), because="others have the run's weights"),
    Flag("calibration", kinds.TEXT),
    Flag("onnxruntime_web", kinds.TEXT, needs=("format=web",)),
)
_BESIDE = (".json", ".md", ".py")
# The packages that a file needs; docs/deployment.md shows how Python calls it.
_NEEDED = {"program": "flatbuffers jax", "onnx": "onnxruntime", "safetensors": "safetensors torch"}


def main() -> None:
    """Writes what --format asks for."""
    chosen, kind, calibration = _CLASSIFIER(), _FORMAT.value, path_of(_CALIBRATION)
    chosen.check()
    check(_ROWS)
    rule, kept, out = _rule(), chosen.files, Path(_OUT.value or "")
    if calibration is not None:
        kept[calibration] = "the file of --calibration"
    _check_out(out, kept)
    from train.classifiers import fitted, onnx_runtime
    from train.package import card, program, weights
    from train.package.web import web

    # Before the classifier is computed.
    runtime_files = web.runtime(_ONNXRUNTIME_WEB.value) if kind == "web" else {}
    if kind in ("web", "onnx"):
        onnx_runtime.check_installed(f"--format={kind}")
    classifier = _loaded(chosen)
    if rule is None:
        content, described = weights.serialize(classifier), weights.describe(classifier)
        _write(out, content, described, card.write(classifier, None, out.name))
    elif kind == "program":
        rule = fitted.find(classifier, rule, calibration)
        content, described = program.serialize(classifier, rule), program.describe(classifier, rule)
        page = card.write(classifier, rule, out.name)
        _write(out, content, described, page, program.script_of(classifier))
    else:
        from train.package.onnx import export

        made = export.export(classifier, rule, calibration, half=bool(_FLOAT16.value))
        show_line(f"checked      {made.checked}")
        if kind == "onnx":
            script = program.script_of(classifier)
            _write(out, made.content, made.description, made.card(out.name), script)
        else:
            web.write(out, made.content, made.description, made.card(web.MODEL), runtime_files)
            show_line(f"page         {out}")
            show_line("to look at it at http://localhost:8000:")
            show_line(f"  python3 -m http.server --directory={shlex.quote(str(out))}")


def _rule() -> "SetRule | None":
    """The rule that is asked for; None for weights."""
    from train.reports import rules

    if _FORMAT.value == "safetensors":
        return None
    (text,) = _SETS()
    rule = rules.parse(text)
    if rule.combination is not None:
        raise UserError(f"--sets={text}: a program has sets of single examples: leave combine out")
    return rule


def _check_out(out: Path, kept: Mapping[Path, str]) -> None:
    """Refuses a place that cannot be written to, or has something that no export has written."""
    if _FORMAT.value == "web":
        output_files.new_folder("out", str(out), "a folder that does not exist, with --format=web")
        return
    output_files.checked("out", out, kept)
    if out.suffix in _BESIDE:
        must_be = "of another suffix than .json, .md and .py, which are written beside it"
        raise UserError(field="--out", must_be=must_be, got=out)
    try:
        is_export = "digest" in files.read_checked(_beside(out, ".json"), "a description")
    except (OSError, UserError):
        is_export = False
    beside = [_beside(out, suffix) for suffix in _BESIDE]
    for file in (out, *beside):
        output_files.checked("out", file, kept)
        if file.exists() and not is_export:
            raise UserError(f"--out must not replace {file}, which no export has written")


def _loaded(chosen: ChosenClassifier) -> "TrainedClassifier":
    from train.classifiers import loading
    from train.classifiers.trained import TrainedClassifier

    classifier = loading.load(chosen, takes_images=True)
    if not isinstance(classifier, TrainedClassifier):
        raise UserError(f"--weights {classifier.title} is a program: it is exported already")
    if classifier.inputs != "images":
        if _FORMAT.value == "web":
            raise UserError(
                f"--format=web is for images; this classifier takes {classifier.inputs}"
            )
        show_line("takes        features; for images, --weights has the network that made them")
    return classifier


def _beside(out: Path, suffix: str) -> Path:
    return out.with_name(f"{out.name}{suffix}")


def _write(
    out: Path,
    content: bytes,
    description: Mapping[str, Any],
    card: bytes,
    script: bytes | None = None,
) -> None:
    """Writes the file and what is beside it, and prints where they are and what they need."""
    # First: a file without its description is of no use.
    described = files.with_checksum({**description, "digest": hashlib.sha256(content).hexdigest()})
    files.write_whole(_beside(out, ".json"), files.to_json(described, indent=1))
    files.write_whole(_beside(out, ".md"), card)
    if script is None:
        # Of the file that is replaced.
        _beside(out, ".py").unlink(missing_ok=True)
    else:
        files.write_whole(_beside(out, ".py"), script)
    files.write_whole(out, content)
    show_line(f"{_FORMAT.value:<11}  {out} ({len(content) / 1e6:,.1f} MB)")
    show_line(f"beside it    {out.name}.json, its description, and {out.name}.md, its model card")
    needed = f"pip install {_NEEDED[str(_FORMAT.value)]}{'' if script is None else ' pillow'}"
    show_line(f"to use it    {needed}; docs/deployment.md shows how Python calls it")
    if script is not None:
        show_line(f"  python {shlex.quote(str(_beside(out, '.py')))} photo.jpg")


if __name__ == "__main__":
    command.run(main)
