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
from train.foundation import command_line, fields, flag_rules, packages
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag, Needed
from train.prediction import set_flags
from train.workdir import output_files

if TYPE_CHECKING:
    from train.classifiers.trained import TrainedClassifier
    from train.prediction.onnx import exporting
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
_ROWS = flag_rules.declare(
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
    Flag("calibration", fields.text("a file")),
    Flag("onnxruntime_web", fields.text("a folder"), needs=("format=web",)),
)


def main() -> None:
    """Writes what --format asks for."""
    chosen = _CLASSIFIER()
    chosen.check()
    flag_rules.check(_ROWS)
    assert _OUT.value is not None
    has_rule = _FORMAT.value != "safetensors"
    rule = _rule() if has_rule else None
    calibration = _calibration()
    kept = chosen.files | (
        {} if calibration is None else {calibration: "the file of --calibration"}
    )
    if _FORMAT.value == "web":
        assert rule is not None
        may_be = "a folder that does not exist, with --format=web"
        _write_site(chosen, rule, output_files.new_folder("out", _OUT.value, kept, may_be))
        return
    out = output_files.checked("out", _OUT.value, kept)
    for ending in ("json", "md", *(["py"] if has_rule else [])):
        output_files.checked("out", str(_beside(out, ending)), kept)
    if rule is None:
        _write_weights(chosen, out)
    elif _FORMAT.value == "onnx":
        _write_onnx(chosen, rule, out)
    else:
        _write_program(chosen, rule, out)


def _rule() -> "SetRule":
    from train.reports import rules

    (text,) = _SETS()
    rule = rules.parse(text)
    if rule.combination is not None:
        raise UserError(
            f"--sets={text}: a program makes sets of single examples: leave combine out"
        )
    return rule


def _calibration() -> Path | None:
    return None if _CALIBRATION.value is None else Path(_CALIBRATION.value).expanduser()


def _write_program(chosen: ChosenClassifier, rule: "SetRule", out: Path) -> None:
    from train.classifiers import fitted
    from train.prediction import exported_program, model_card

    classifier = _loaded(chosen)
    with_limits = fitted.find(classifier, rule, _calibration())
    program = exported_program.serialize(classifier, with_limits)
    described = exported_program.describe(classifier, with_limits)
    card = model_card.write(classifier, with_limits, out.name)
    for_script = _write("program", out, program, described, card, classifier)
    show_line(f"to run it ({packages.command('flatbuffers', 'jax', *for_script)}):")
    show_line("  import jax.export, pathlib")
    show_line(f"  program = jax.export.deserialize(pathlib.Path({str(out)!r}).read_bytes())")
    show_line(f"  {', '.join(described['outputs'])} = program.call({classifier.inputs})")


def _loaded(chosen: ChosenClassifier) -> "TrainedClassifier":
    """The classifier of a program, which takes what --takes names."""
    asked = _TAKES.value
    classifier = classifier_flags.load_network(chosen, takes_images=asked != "features")
    found = classifier.inputs
    if asked in (None, found):
        return classifier
    if asked == "images" and found == "features":
        raise UserError(
            "--takes=images needs the network that made the features, which the run does not know: "
            "give --weights=FILE, too"
        )
    raise UserError(field="--takes", must_be=f"{found!r} for this run", got=asked)


def _write_onnx(chosen: ChosenClassifier, rule: "SetRule", out: Path) -> None:
    exported = _make_onnx(chosen, rule)
    described, inputs = dict(exported.description), exported.classifier.inputs
    card = exported.card(out.name)
    for_script = _write("program", out, exported.content, described, card, exported.classifier)
    show_line(f"to run it ({packages.command('onnxruntime', *for_script)}):")
    show_line("  import onnxruntime")
    show_line(f"  program = onnxruntime.InferenceSession({str(out)!r})")
    show_line(f"  {', '.join(described['outputs'])} = program.run(None, {{{inputs!r}: {inputs}}})")


def _make_onnx(chosen: ChosenClassifier, rule: "SetRule") -> "exporting.Exported":
    """The ONNX file of a classifier, which is checked."""
    from train.classifiers import onnx_runtime

    onnx_runtime.check_installed(f"--format={_FORMAT.value}", "onnx", "onnxruntime")

    from train.prediction.onnx import exporting

    classifier = _loaded(chosen)
    if _FORMAT.value == "web" and classifier.inputs != "images":
        raise UserError(
            "--format=web is for classifiers of images; a page cannot compute the features that "
            "this one takes"
        )
    exported = exporting.export(classifier, rule, _calibration(), half=bool(_FLOAT16.value))
    show_line(f"checked      {exported.checked}")
    return exported


def _write_site(chosen: ChosenClassifier, rule: "SetRule", folder: Path) -> None:
    from train.prediction.web_page import runtime, site

    # Before the classifier is computed.
    runtime_files = runtime.read(_ONNXRUNTIME_WEB.value)
    exported = _make_onnx(chosen, rule)
    card = exported.card(site.MODEL)
    site.write(folder, exported.content, exported.description, card, runtime_files)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    show_line(f"page         {folder} ({size / 1e6:,.1f} MB)")
    show_line("to look at it:")
    show_line(f"  python3 -m http.server --directory={shlex.quote(str(folder))}")
    show_line("and open http://localhost:8000")


def _write_weights(chosen: ChosenClassifier, out: Path) -> None:
    from train.prediction import exported_weights, model_card

    classifier = classifier_flags.load_network(chosen)
    weights = exported_weights.serialize(classifier)
    card = model_card.write(classifier, None, out.name)
    _write("weights", out, weights, exported_weights.describe(classifier), card)
    show_line("to read them, with PyTorch and safetensors installed:")
    show_line("  import safetensors.torch")
    show_line(f"  network.load_state_dict(safetensors.torch.load_file({str(out)!r}))")


def _beside(out: Path, ending: str) -> Path:
    """The file beside another one: json describes it, md is the model card, py runs it."""
    return out.with_name(f"{out.name}.{ending}")


def _write(
    what: str,
    out: Path,
    content: bytes,
    description: Mapping[str, Any],
    card: bytes,
    scripted: "TrainedClassifier | None" = None,
) -> list[str]:
    """Writes the file and what is beside it, and prints where they are.

    Args:
        what: what the file is.
        out: the file.
        content: its bytes.
        description: what FILE.json has.
        card: the model card.
        scripted: the classifier of a program; None for weights, which no script runs.

    Returns:
        The packages that the script needs.
    """
    from train.foundation import files
    from train.prediction import exported_program

    described = _beside(out, "json")
    script = None if scripted is None else exported_program.script(scripted)
    named = {} if script is None else {"script": _beside(out, "py").name}
    digest = hashlib.sha256(content).hexdigest()
    # First: a file without its description is of no use.
    files.write_whole(
        described, files.to_json({**description, **named, "digest": digest}, indent=1)
    )
    files.write_whole(_beside(out, "md"), card)
    if script is not None:
        files.write_whole(_beside(out, "py"), script)
    files.write_whole(out, content)
    show_line(f"{what:<11}  {out} ({len(content) / 1e6:,.1f} MB)")
    show_line(f"description  {described}")
    show_line(f"model card   {_beside(out, 'md')}")
    if script is None:
        return []
    runs = _beside(out, "py")
    show_line(f"script       {runs}, for image files: python {runs} photo.jpg")
    return ["pillow"]


if __name__ == "__main__":
    command_line.run(main)
