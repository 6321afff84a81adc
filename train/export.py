"""One file of a classifier and its rule: `python -m train.export --workdir=DIR --out=F --top_k=5`.

The file is a serialized StableHLO program, made by `jax.export`, that contains the parameters and
the threshold. It maps uint8 images [n, height, width, channels], float32 features [n, d] or
characters of names, int32 [n, length], for any n, to the probabilities [n, L], float32, and the
sets [n, L], booleans. It needs jax and flatbuffers, not this program, and runs on CPUs, NVIDIA GPUs
and TPUs. A JSON file beside it has the classes in their order, the rule, and how images or names
are prepared.
"""

from pathlib import Path

from absl import flags

from train.foundation import command_line, output_files
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.prediction import rule_flags

_WORKDIR = flags.DEFINE_string("workdir", None, "Needed. The folder of a finished run.")
_RULE = rule_flags.define()
_OUT = flags.DEFINE_string(
    "out",
    None,
    "Needed. The file for the program; a description is written beside it, as FILE.json.",
)


def main() -> None:
    """Writes the program and its description."""
    if not _WORKDIR.value:
        raise UserError("--workdir is needed: the folder of a finished run")
    chosen = _RULE()
    if _OUT.value is None:
        raise UserError("--out is needed: the file for the program")
    out = output_files.checked("out", _OUT.value)

    from train.foundation import files
    from train.prediction import calibrated_rule, exported_program, trained

    classifier = trained.load(Path(_WORKDIR.value))
    rule = calibrated_rule.calibrate(classifier, chosen)
    program = exported_program.serialize(classifier, rule)
    description = exported_program.describe(classifier, rule)
    described = out.with_name(f"{out.name}.json")
    # First: a program without its description is of no use.
    files.write_whole(described, files.to_json(description, indent=1))
    files.write_whole(out, program)
    show_line(f"program      {out} ({len(program) / 1e6:,.1f} MB)")
    show_line(f"description  {described}")
    show_line("to run it, where jax and flatbuffers are installed (pip install 'topk_jax[serve]'):")
    show_line("  import jax.export, pathlib")
    show_line(f"  program = jax.export.deserialize(pathlib.Path({str(out)!r}).read_bytes())")
    show_line(f"  probabilities, chosen = program.call({classifier.spec.inputs})")


if __name__ == "__main__":
    command_line.run(main)
