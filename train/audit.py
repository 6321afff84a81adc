"""Finds labels that are probably wrong: `python -m train.audit --config=features --out=audit.csv`.

--config.dataset.path=FILE names the features, of images as train.embed writes them. The examples
are divided into folds, whole groups to one. A linear head for each fold is trained on the other
folds and judges the labels of its own. The table has all examples, the least plausible labels
first, with an empty column for corrections: a class, or - to leave the example out. A run then
takes the corrected labels: --config.dataset.corrections=audit.csv. Of the recipe, only the data set
and the seed are used.
"""

from pathlib import Path

from absl import flags

from train.foundation import command, files
from train.foundation.console import show_line
from train.foundation.errors import UserError, explained
from train.foundation.flags import Needed, check, declare, define_configuration
from train.run import output_files

_CONFIG = define_configuration(
    "Needed. The configuration of the data set, as for train.main: features, or a file."
)
_OUT = flags.DEFINE_string("out", None, "Needed. The CSV file for the table of examples.")
_JSON = flags.DEFINE_string(
    "json", None, "A file for the estimated numbers of wrong labels, of all classes and pairs."
)
_FOLDS = flags.DEFINE_integer("folds", 5, "The number of folds.", lower_bound=2, upper_bound=100)
_ROWS = declare(Needed(("out",), "the CSV file for the table of examples"))


def main() -> None:
    """Audits the labels of the data set of the configuration."""
    check(_ROWS)
    config = _CONFIG()
    assert _OUT.value is not None
    data = config.get("dataset", {})
    read = {
        Path(data[name]).expanduser(): f"what config.dataset.{name} names"
        for name in ("path", "corrections")
        if data.get(name)
    }
    out = output_files.checked("out", _OUT.value, read, suffixes=(".csv",))
    kept = read | {out: "the file of --out"}
    json = None if _JSON.value is None else output_files.checked("json", _JSON.value, kept)
    from train.auditing import findings, outputs
    from train.configuration.datasets import FeaturesFields
    from train.configuration.parsing import parse
    from train.data import corrections, dataset_spec, splits

    parsed = parse(config)
    fields = parsed.dataset
    if not isinstance(fields, FeaturesFields):
        raise UserError(
            f"train.audit needs features, as train.embed writes them of images; got {fields.name}"
        )
    with explained("the same command starts over"):
        dataset = splits.load(dataset_spec(fields), fields, seed=parsed.seed)
        examples = findings.joined([dataset.train, dataset.validation, dataset.test])
        mean, std = dataset.mean or (), dataset.std or ()
        found = findings.find(examples, mean, std, num_folds=_FOLDS.value, seed=parsed.seed)
    corrected = corrections.read(fields.corrections) if fields.corrections else []
    files.write_whole(out, outputs.to_csv(found, corrected))
    if json is not None:
        files.write_whole(json, files.to_json(outputs.to_plain(found), indent=1))
    outputs.show(found)
    show_line(f"all examples, the least plausible labels first: {out}")


if __name__ == "__main__":
    command.run(main)
