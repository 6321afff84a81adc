"""One file of a classifier and its rule: `python -m train.export --workdir=DIR --out=F --top_k=5`.

The file is a serialized StableHLO program, made by `jax.export`, that contains the parameters and
the rule. It maps uint8 images [n, height, width, channels] or float32 features [n, d], for any n
from 1 on, to the probabilities [n, L], float32, and the sets [n, L], booleans; with new_score, its
last outputs are which examples may be of none of the classes, booleans [n], and the outlier scores,
float32 [n]. It needs jax and flatbuffers, not this program, and runs on CPUs, NVIDIA GPUs and TPUs.
A JSON file beside it has the classes in their order, the rule with its limits, and how images are
prepared. For images, a third file, FILE.py, is a script that prepares them with Pillow, calls the
program and prints the sets. FILE.md is a model card, in the format of Hugging Face.

With --format=onnx, the same program is an ONNX file, for ONNX Runtime on servers, phones and in
browsers, for one example or more. It is kept if ONNX Runtime computes what JAX computes.

With --format=web, a folder is written: a page that takes photographs or drawings in a browser,
computes there, and shows the sets. Any server of files can serve it.

With --format=safetensors, the file has the weights of the network instead, by the names that
torchvision or timm have for them, and no rule.

A run on features whose features train.embed made is exported together with the network that made
them, as one program of images. --workdir=DIR --weights=FILE does that for other runs on features,
and where the weights were moved.

For a published network, --weights=FILE stands in the place of --workdir, with --dataset=NAME or
--classes=FILE.
"""

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from train.classifiers import flags as classifier_flags
from train.classifiers.flags import ChosenClassifier
from train.foundation import command, kinds
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
    "A file of --calibration_out of train.evaluate with the limits of the rule; by default they "
    "are fitted on the validation examples.",
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "program",
    ["program", "onnx", "web", "safetensors"],
    "program: images to probabilities and sets, for JAX. onnx: the same for ONNX Runtime. web: a "
    "page that computes the same in a browser, as a folder of files for any server. safetensors: "
    "only the weights of the network.",
)
_FLOAT16 = flags.DEFINE_bool(
    "float16",
    None,
    "Stores weights in 16 bits, in half of the space, and fits limits with these.",
)
_TAKES = flags.DEFINE_enum(
    "takes",
    None,
    ["images", "features"],
    "what the program of a run on features takes: images, by default if train.embed made the "
    "features, or features.",
)
_ONNXRUNTIME_WEB = flags.DEFINE_string(
    "onnxruntime_web",
    None,
    "the folder of the unpacked npm package onnxruntime-web; by default npm gets it.",
)
_OUT = flags.DEFINE_string(
    "out",
    None,
    "Needed. The file; a description is written beside it, as FILE.json, and for a program of "
    "images a script that runs it, as FILE.py. With --format=web the folder, which "
    "does not exist.",
)
_ROWS = declare(
    *(
        Flag(name, excludes=("format=safetensors",), because="weights have no rule")
        for name in ("sets", "top_k", "average_k", "coverage", "calibration")
    ),
    Flag("takes", needs=("workdir",), because="it is for a run on features"),
    Needed(("out",), "the file for the program or the weights"),
    Flag(
        "float16",
        needs=("format=onnx", "format=web"),
        because="other files have the weights of the run",
    ),
    Flag("calibration", kinds.TEXT),
    Flag("onnxruntime_web", kinds.TEXT, needs=("format=web",)),
)


# The packages that a file needs, and how it is called.
_TO_RUN = {
    "program": (
        "flatbuffers jax",
        "import jax.export, pathlib",
        "program = jax.export.deserialize(pathlib.Path({path!r}).read_bytes())",
        "{outputs} = program.call({inputs})",
    ),
    "onnx": (
        "onnxruntime",
        "import onnxruntime",
        "program = onnxruntime.InferenceSession({path!r})",
        "{outputs} = program.run(None, {{{inputs!r}: {inputs}}})",
    ),
    "safetensors": (
        "safetensors torch",
        "import safetensors.torch",
        "network.load_state_dict(safetensors.torch.load_file({path!r}))",
    ),
}


def main() -> None:
    """Writes what --format asks for."""
    chosen, kind, calibration = _CLASSIFIER(), _FORMAT.value, path_of(_CALIBRATION)
    chosen.check()
    check(_ROWS)
    rule, kept, out = _rule(), chosen.files, Path(_OUT.value or "")
    if calibration is not None:
        kept[calibration] = "the file of --calibration"
    if kind == "web":
        may_be = "a folder that does not exist, with --format=web"
        output_files.new_folder("out", str(out), may_be)
    else:
        for file in (out, *(_beside(out, ending) for ending in ("json", "md", "py"))):
            output_files.checked("out", file, kept)
            if file.exists() and not _beside(out, "json").is_file():
                raise UserError(f"--out must not replace {file}, which no export has written")
    from train.classifiers import fitted, onnx_runtime
    from train.prediction import exported_program, exported_weights, model_card
    from train.prediction.web_page import runtime, site

    # Before the classifier is computed.
    runtime_files = runtime.read(_ONNXRUNTIME_WEB.value) if kind == "web" else {}
    if kind in ("web", "onnx"):
        onnx_runtime.check_installed(f"--format={kind}")
    classifier = _loaded(chosen)
    if rule is None:
        content = exported_weights.serialize(classifier)
        described = exported_weights.describe(classifier)
        card = model_card.write(classifier, None, out.name)
        _write(out, content, described, card, None)
    elif kind == "program":
        rule = fitted.find(classifier, rule, calibration)
        content = exported_program.serialize(classifier, rule)
        described = exported_program.describe(classifier, rule)
        card = model_card.write(classifier, rule, out.name)
        _write(out, content, described, card, classifier)
    else:
        from train.prediction.onnx import exporting

        made = exporting.export(classifier, rule, calibration, half=bool(_FLOAT16.value))
        show_line(f"checked      {made.checked}")
        if kind == "onnx":
            _write(out, made.content, made.description, made.card(out.name), classifier)
        else:
            card = made.card(site.MODEL)
            site.write(out, made.content, made.description, card, runtime_files)
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
            show_line(f"page         {out} ({size / 1e6:,.1f} MB)")
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
        raise UserError(
            f"--sets={text}: a program makes sets of single examples: leave combine out"
        )
    return rule


def _loaded(chosen: ChosenClassifier) -> "TrainedClassifier":
    """The classifier, which takes what --takes names."""
    from train.classifiers import loading
    from train.classifiers.trained import TrainedClassifier

    asked = _TAKES.value
    classifier = loading.load(chosen, takes_images=asked != "features")
    if not isinstance(classifier, TrainedClassifier):
        raise UserError(f"--weights {classifier.title} is a program: it is exported already")
    found, unknown = classifier.inputs, "; a network that the run does not know needs --weights"
    if asked not in (None, found):
        raise UserError(f"--takes must be {found} for this run; got {asked}{unknown}")
    if _FORMAT.value == "web" and found != "images":
        raise UserError(f"--format=web is for classifiers of images; this one takes {found}")
    return classifier


def _beside(out: Path, ending: str) -> Path:
    """The file beside another one: json describes it, md is the model card, py runs it."""
    return out.with_name(f"{out.name}.{ending}")


def _write(
    out: Path,
    content: bytes,
    description: Mapping[str, Any],
    card: bytes,
    scripted: "TrainedClassifier | None",
) -> None:
    """Writes the file and what is beside it, and prints where they are and how to call it.

    Args:
        out: the file.
        content: its bytes.
        description: what FILE.json has.
        card: the model card.
        scripted: the classifier of a program; None for weights, which no script runs.
    """
    from train.foundation import files
    from train.prediction import exported_program

    script = None if scripted is None else exported_program.script(scripted)
    named = {} if script is None else {"script": _beside(out, "py").name}
    described = {**description, **named, "digest": hashlib.sha256(content).hexdigest()}
    needed, *lines = _TO_RUN[str(_FORMAT.value)]
    needs = needed.split()
    # First: a file without its description is of no use.
    checked = files.with_checksum(described)
    files.write_whole(_beside(out, "json"), files.to_json(checked, indent=1))
    files.write_whole(_beside(out, "md"), card)
    show_line(f"description  {_beside(out, 'json')}")
    show_line(f"model card   {_beside(out, 'md')}")
    if script is not None:
        needs.append("pillow")
        runs = _beside(out, "py")
        files.write_whole(runs, script)
        show_line(f"script       {runs}, for image files: python {runs} photo.jpg")
    files.write_whole(out, content)
    show_line(f"{_FORMAT.value:<11}  {out} ({len(content) / 1e6:,.1f} MB)")
    show_line(f"to use it (pip install {' '.join(needs)}):")
    inputs = next(one for one in ("images", "features") if one in description)
    outputs = ", ".join(description.get("outputs", ()))
    for line in lines:
        show_line(f"  {line.format(path=str(out), inputs=inputs, outputs=outputs)}")


if __name__ == "__main__":
    command.run(main)
