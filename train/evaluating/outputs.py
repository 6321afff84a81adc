"""The files that `train.evaluate` writes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from train.classifiers import fitted
from train.data.sources.table import encode_rows
from train.evaluating import figures
from train.evaluating.source import Asked, Source
from train.foundation import files
from train.foundation.console import show_files
from train.foundation.errors import UserError
from train.prediction import error_page
from train.reports import figure_style
from train.reports.examples import ExampleTable
from train.reports.rules import SetRule, parse
from train.run import output_files, run_folder
from train.scores import files as score_files
from train.scores.scores import Scores

_FIGURES = {suffix: f"figure {suffix}" for suffix in output_files.FIGURE_SUFFIXES}
_OUT = {".json": "report", ".csv": "rows", ".npz": "scores", **_FIGURES}
_PAGE, _TABLES, _LIMITS = "page of errors", "examples", "limits"
# Systems take 255 bytes, and a letter may have four.
_LONGEST_NAME = 50
# The files beside a page or a table of examples.
_CONFUSIONS = ".confusions.png"
_BESIDE = (".csv", ".classes.csv", ".confusions.csv", _CONFUSIONS)


class _OfData(msgspec.Struct):
    """What a report is of."""

    data: str


def check(
    asked: Asked, out: Sequence[str], examples: Path | None, limits: Path | None
) -> dict[str, Path]:
    """The files to write, by what they have, if all can be written.

    Raises:
        UserError: one cannot, or would replace another file.
    """
    read = [("scores", asked.scores), ("calibration", asked.calibration), asked.data]
    kept = asked.chosen.files | {
        Path(one[1]): f"what --{one[0]} is read from" for one in read if one and one[1]
    }
    found: dict[str, Path] = {}

    def add(flag: str, path: Path, kinds: Mapping[str, str]) -> None:
        output_files.checked(flag, path, kept, suffixes=kinds)
        what = kinds[path.suffix]
        if what in found:
            raise UserError(
                field=f"--{flag}", must_be="one file with each suffix", got=f"{found[what]}, {path}"
            )
        kept[path], found[what] = f"another file of --{flag}", path

    for path in map(Path, out):
        add("out", path, _OUT)
    if limits is not None:
        add("calibration_out", limits, {".json": _LIMITS})
    if examples is not None:
        add("examples", examples, {".html": _PAGE, ".csv": _TABLES})
        for path in {*map(examples.with_suffix, _BESIDE)} - {examples}:
            output_files.checked("examples", path, kept)
    if asked.chosen.workdir is not None and "report" not in found:
        found["report"] = _report_in(Path(asked.chosen.workdir), asked)
    return found


def _report_in(workdir: Path, asked: Asked) -> Path:
    """The file in the folder of a run for a report that --out does not name.

    Raises:
        UserError: it has the report of other data of the same name.
    """
    end = "_recalibrated" if asked.calibration == "half" else ""
    if asked.data is None:
        return run_folder.evaluation(workdir, f"{asked.split}{end}")
    data = asked.data[1].resolve()
    out = run_folder.evaluation(workdir, f"of_{data.name[:_LONGEST_NAME]}{end}")
    if out.exists() and (other := files.read(out, _OfData, "a report").data) != str(data):
        raise UserError(f"{out} has the report of {other}: give --out, or delete it")
    return out


def write(
    outputs: Mapping[str, Path],
    report: Mapping[str, Any],
    source: Source,
    scores: Scores,
    rules: Mapping[str, SetRule],
) -> None:
    """Writes the files of `check`, and shows where they are.

    Args:
        outputs: the files, by what they have.
        report: the report.
        source: where the scores come from.
        scores: the scores that are evaluated.
        rules: the rules with limits, by their texts.
    """
    written = dict(outputs)
    for what, path in outputs.items():
        if what == "report":
            files.write_whole(path, files.to_json(report, indent=1))
        elif what == "rows":
            files.write_whole(path, _rows(report))
        elif what == "scores":
            score_files.write(path, scores)
        elif what == _LIMITS:
            assert source.classifier is not None
            fitted.write(path, source.classifier, rules)
        elif what in _FIGURES.values():
            drawn = figures.of_rules(report["sets"])
            files.write_whole(path, figure_style.encode(drawn, path.suffix))
        else:
            written |= _write_examples(path, source, scores, rules)
    show_files(written)


def _rows(report: Mapping[str, Any]) -> bytes:
    """The rows of a report as CSV: a line for each rule, of examples and of observations."""
    found = []
    for what, of in {"examples": report, "observations": report.get("observations", {})}.items():
        for text, row in of.get("sets", {}).items():
            low, high = row["interval"]
            numbers = {key: one for key, one in row.items() if not isinstance(one, list | dict)}
            found.append({"of": what, "sets": text, **numbers, "low": low, "high": high})
    columns = list(dict.fromkeys(name for row in found for name in row))
    return encode_rows([columns, *([row.get(name) for name in columns] for row in found)])


def _write_examples(
    path: Path, source: Source, scores: Scores, rules: Mapping[str, SetRule]
) -> dict[str, Path]:
    """Writes the tables of the examples, the figure of their confusions, and their page.

    The sets are those of the first rule that promises something, or else of the first.
    """
    single = [rule for rule in rules.values() if rule.combination is None]
    single = single or [parse("top_k=1").fit(scores, "")]
    rule = next((one for one in single if one.rule.promise is not None), single[0])
    ks = sorted(int(one.value) for one in single if one.name == "top_k")
    table = ExampleTable.of(scores, rule, ks or [1])
    written = table.write(path)
    drawn, confusions = figures.of_confusions(table), path.with_suffix(_CONFUSIONS)
    files.write_whole(confusions, figure_style.encode(drawn, ".png"))
    if path.suffix == ".html":
        error_page.write(
            path,
            table,
            source.examples,
            title=source.title,
            sets=rule.in_words,
            example="example" if source.classifier is None else source.classifier.what,
            tables=written,
            unreadable=tuple(one["error"] for one in source.about.get("unreadable", ())),
        )
    return {**written, "figure of confusions": confusions}
