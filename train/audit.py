"""Finds labels that are probably wrong: `python -m train.audit --config=features --out=audit.csv`.

--config.dataset.path=FILE names the features, of images as train.embed writes them. The examples
are divided into folds, whole groups to one. A linear head for each fold is trained on the other
folds and judges the labels of its own. The table has all examples, the least plausible labels
first, with an empty column for corrections: a class, or - to leave the example out. A run then
takes the corrected labels: --config.dataset.corrections=audit.csv. Of the recipe, only the data set
and the seed are used.
"""

from absl import flags

from train.foundation import command_line, files, flag_rules, flag_types, interruption
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flag_rules import Needed
from train.workdir import output_files, run_inputs

_CONFIG = flag_types.define_configuration(
    "Needed. The configuration of the data set, as for train.main: features, or a file."
)
_OUT = flags.DEFINE_string("out", None, "Needed. The CSV file for the table of examples.")
_JSON = flags.DEFINE_string(
    "json", None, "A file for the estimated numbers of wrong labels, of all classes and pairs."
)
_FOLDS = flags.DEFINE_integer("folds", 5, "The number of folds.", lower_bound=2, upper_bound=100)
_ROWS = flag_rules.declare(Needed(("out",), "the CSV file for the table of examples"))


def main() -> None:
    """Audits the labels of the data set of the configuration."""
    flag_rules.check(_ROWS)
    config = _CONFIG()
    assert _OUT.value is not None
    if not _OUT.value.endswith(".csv"):
        raise UserError(field="--out", must_be="a .csv file", got=_OUT.value)
    kept = {path: f"what {field} names" for path, field in run_inputs.named_by(config)}
    out = output_files.checked("out", _OUT.value, kept)
    json = None
    if _JSON.value is not None:
        json = output_files.checked("json", _JSON.value, kept | {out: "the file of --out"})
    from train.auditing import examples, findings, outputs
    from train.configuration.datasets import OwnFields
    from train.configuration.parsing import parse
    from train.data import corrections, dataset_spec, splits

    parsed = parse(config)
    spec = dataset_spec(parsed.dataset)
    if spec.inputs != "features":
        advice = (
            "; train.embed writes the features of images to a file, and --config=features "
            "--config.dataset.path=FILE reads them"
        )
        raise UserError(
            f"train.audit needs features, and {spec.name} has {spec.inputs}"
            f"{advice if spec.has_images else ''}"
        )
    corrected = parsed.dataset.corrections if isinstance(parsed.dataset, OwnFields) else None
    with interruption.explained("the same command starts over"):
        dataset = splits.load(spec, parsed.dataset, seed=parsed.seed)
        found = findings.find(
            examples.of_dataset(dataset, spec), num_folds=_FOLDS.value, seed=parsed.seed
        )
    files.write_whole(out, outputs.to_csv(found, corrections.read(corrected) if corrected else []))
    if json is not None:
        files.write_whole(json, files.to_json(outputs.to_plain(found), indent=1))
    outputs.show(found)
    show_line(f"all examples, the least plausible labels first: {out}")


if __name__ == "__main__":
    command_line.run(main)
