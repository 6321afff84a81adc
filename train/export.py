"""One file of a classifier and its rule: `python -m train.export --workdir=DIR --out=F --top_k=5`.

The file is a serialized StableHLO program, made by `jax.export`, that contains the parameters and
the rule. It maps uint8 images [n, height, width, channels] or float32 features [n, d], for any n
from 1 on, to the probabilities [n, L], float32, and the sets [n, L], booleans; with --allow_new,
its last output is which examples may be of none of the classes, booleans [n]. It needs jax and
flatbuffers, not this program, and runs on CPUs, NVIDIA GPUs and TPUs. A JSON file beside it has the
classes in their order, the rule with its thresholds, and how images are prepared. For images, a
third file, FILE.py, is a script that prepares them with Pillow, calls the program and prints the
sets. FILE.md is a model card, in the format of Hugging Face.

With --format=onnx, the same program is an ONNX file, for ONNX Runtime on servers, phones and in
browsers, for one example or more. It is kept if ONNX Runtime computes what JAX computes.

With --format=web, a folder is written: a page that takes photographs or drawings in a browser,
computes there, and shows the sets. Any server of files can serve it.

With --format=safetensors, the file has the weights of the network instead, by the names that
torchvision or timm have for them, and no rule.

A run on features whose features train.embed made is exported together with the network that made
them, as one program of images. --features_run=DIR --weights=FILE does that for other runs on
features, and where the weights were moved.

For a published network, --weights=FILE stands in the place of --workdir, with --dataset=NAME or
--classes=FILE.
"""

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from train.foundation import command_line, fields, flag_rules, packages
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flag_rules import Flag, Needed
from train.prediction import classifier_flags, rule_flags
from train.prediction.classifier_flags import ChosenClassifier
from train.prediction.rule_flags import ChosenRule
from train.workdir import output_files

if TYPE_CHECKING:
    from train.prediction.onnx import exporting
    from train.prediction.trained import TrainedClassifier

_CLASSIFIER = classifier_flags.define()
_RULE = rule_flags.define()
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
    "Stores weights in 16 bits, in half of the space, and calibrates thresholds with these.",
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
    "With --format=web: the folder of the unpacked npm package onnxruntime-web; by default npm "
    "gets it.",
)
_OUT = flags.DEFINE_string(
    "out",
    None,
    "Needed. The file; a description is written beside it, as FILE.json, and for a program of "
    "images a script that runs it, as FILE.py. With --format=web the folder, which "
    "does not exist.",
)
# The other format has only the weights of a network.
_WITH_RULES = ("program", "onnx", "web")
_ROWS = flag_rules.declare(
    *(
        Flag(
            name,
            excludes=("format=safetensors",),
            because="weights have no rule",
        )
        for name in rule_flags.NAMES
    ),
    Flag(
        "features_run",
        needs=("format=program", "format=onnx", "format=web"),
        because="it joins a run and a network",
    ),
    Flag("features_run", excludes=("takes=features",), because="it takes images"),
    Flag("takes", needs=("workdir", "features_run"), because="it is for a run on features"),
    Needed(("out",), "the file for the program or the weights"),
    Flag(
        "float16",
        needs=("format=onnx", "format=web"),
        because="other files have the weights of the run",
    ),
    Flag("onnxruntime_web", fields.text("a folder"), needs=("format=web",)),
)


def main() -> None:
    """Writes what --format asks for."""
    chosen = _CLASSIFIER()
    chosen.check()
    flag_rules.check(_ROWS)
    # The other format has none.
    rule = rule_flags.chosen(_RULE()) if _FORMAT.value in _WITH_RULES else None
    if rule is not None:
        chosen.check_rule(rule)
    assert _OUT.value is not None
    kept = chosen.files | ({} if rule is None else rule.files)
    if rule is not None and _FORMAT.value == "web":
        may_be = "a folder that does not exist, with --format=web"
        _write_site(chosen, rule, output_files.new_folder("out", _OUT.value, kept, may_be))
        return
    out = output_files.checked("out", _OUT.value, kept)
    for beside in (_description(out), _card(out), *([] if rule is None else [_script(out)])):
        output_files.checked("out", str(beside), kept)
    if rule is None:
        _write_weights(chosen, out)
    elif _FORMAT.value == "onnx":
        _write_onnx(chosen, rule, out)
    else:
        _write_program(chosen, rule, out)


def _write_program(chosen: ChosenClassifier, rule: ChosenRule, out: Path) -> None:
    from train.prediction import calibrated_rule, exported_program, model_card

    classifier = _loaded(chosen)
    calibrated = calibrated_rule.calibrate(classifier, rule)
    program = exported_program.serialize(classifier, calibrated)
    described = exported_program.describe(classifier, calibrated)
    script = _with_script(described, classifier, out)
    card = model_card.write(classifier, calibrated, out.name)
    _write("program", out, program, described, card, script)
    for_script = [] if script is None else ["pillow"]
    show_line(f"to run it ({packages.command('flatbuffers', 'jax', *for_script)}):")
    show_line("  import jax.export, pathlib")
    show_line(f"  program = jax.export.deserialize(pathlib.Path({str(out)!r}).read_bytes())")
    outputs = ", ".join(exported_program.outputs(classifier, calibrated))
    show_line(f"  {outputs} = program.call({classifier.spec.inputs})")


def _loaded(chosen: ChosenClassifier) -> "TrainedClassifier":
    """The classifier of a program, which takes what --takes names."""
    from train.prediction import classifiers

    asked = _TAKES.value
    classifier = classifiers.load(chosen, takes_images=asked != "features")
    found = classifier.spec.inputs
    if asked in (None, found):
        return classifier
    if asked == "images" and found == "features":
        raise UserError(
            "--takes=images needs the network that made the features, which the run does not know: "
            "give --features_run instead of --workdir, and --weights=FILE"
        )
    raise UserError(field="--takes", must_be=f"{found!r} for this run", got=asked)


def _write_onnx(chosen: ChosenClassifier, rule: ChosenRule, out: Path) -> None:
    from train.prediction import exported_program

    exported = _make_onnx(chosen, rule)
    description = dict(exported.description)
    script = _with_script(description, exported.classifier, out)
    _write("program", out, exported.content, description, exported.card(out.name), script)
    for_script = [] if script is None else ["pillow"]
    show_line(f"to run it ({packages.command('onnxruntime', *for_script)}):")
    show_line("  import onnxruntime")
    show_line(f"  program = onnxruntime.InferenceSession({str(out)!r})")
    outputs = ", ".join(exported_program.outputs(exported.classifier, exported.rule))
    inputs = exported.classifier.spec.inputs
    show_line(f"  {outputs} = program.run(None, {{{inputs!r}: {inputs}}})")


def _make_onnx(chosen: ChosenClassifier, rule: ChosenRule) -> "exporting.Exported":
    """The ONNX file of a classifier, which is checked."""
    from train.prediction.onnx import running

    running.check_installed(f"--format={_FORMAT.value}", "onnx", "onnxruntime")

    from train.prediction.onnx import exporting

    classifier = _loaded(chosen)
    if _FORMAT.value == "web":
        from train.prediction.web_page import site

        site.check(classifier)
    exported = exporting.export(classifier, rule, half=bool(_FLOAT16.value))
    show_line(f"checked      {exported.checked}")
    return exported


def _write_site(chosen: ChosenClassifier, rule: ChosenRule, folder: Path) -> None:
    from train.prediction.web_page import runtime, site

    # Before the classifier is computed.
    runtime_files = runtime.read(_ONNXRUNTIME_WEB.value)
    exported = _make_onnx(chosen, rule)
    described = site.describe(exported.description, exported.rule)
    card = exported.card(site.MODEL)
    site.write(folder, exported.content, described, card, runtime_files)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    show_line(f"page         {folder} ({size / 1e6:,.1f} MB)")
    show_line("to look at it:")
    show_line(f"  python3 -m http.server --directory={shlex.quote(str(folder))}")
    show_line("and open http://localhost:8000")


def _with_script(
    description: dict[str, Any], classifier: "TrainedClassifier", out: Path
) -> bytes | None:
    """The script that stands beside a program of images, whose description names it then."""
    from train.prediction import exported_program

    script = exported_program.script(classifier)
    if script is not None:
        description["script"] = _script(out).name
    return script


def _write_weights(chosen: ChosenClassifier, out: Path) -> None:
    from train.prediction import classifiers, exported_weights, model_card

    classifier = classifiers.load(chosen)
    weights = exported_weights.serialize(classifier)
    card = model_card.write(classifier, None, out.name)
    _write("weights", out, weights, exported_weights.describe(classifier), card)
    show_line("to read them, with PyTorch and safetensors installed:")
    show_line("  import safetensors.torch")
    show_line(f"  network.load_state_dict(safetensors.torch.load_file({str(out)!r}))")


def _description(out: Path) -> Path:
    """The file beside another one that describes it."""
    return out.with_name(f"{out.name}.json")


def _card(out: Path) -> Path:
    """The model card beside another file."""
    return out.with_name(f"{out.name}.md")


def _script(out: Path) -> Path:
    """The file beside a program that runs it."""
    return out.with_name(f"{out.name}.py")


def _write(
    what: str,
    out: Path,
    content: bytes,
    description: Mapping[str, Any],
    card: bytes,
    script: bytes | None = None,
) -> None:
    """Writes the file and what is beside it, and prints where they are."""
    from train.foundation import files

    described = _description(out)
    digest = hashlib.sha256(content).hexdigest()
    # First: a file without its description is of no use.
    files.write_whole(described, files.to_json({**description, "digest": digest}, indent=1))
    files.write_whole(_card(out), card)
    if script is not None:
        files.write_whole(_script(out), script)
    files.write_whole(out, content)
    show_line(f"{what:<11}  {out} ({len(content) / 1e6:,.1f} MB)")
    show_line(f"description  {described}")
    show_line(f"model card   {_card(out)}")
    if script is not None:
        show_line(f"script       {_script(out)}, for image files: python {_script(out)} photo.jpg")


if __name__ == "__main__":
    command_line.run(main)
