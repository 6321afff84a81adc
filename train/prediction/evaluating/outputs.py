"""Shows what was evaluated, and writes its files."""

from pathlib import Path

from train.evaluation import score_files
from train.foundation import files, json_files
from train.prediction.evaluating.evaluated import Evaluated
from train.prediction.evaluating.output_flags import Outputs
from train.workdir import (
    figure_style,
    new_data_lines,
    rule_figure,
    terminal,
)


def write(evaluated: Evaluated, outputs: Outputs, out: Path | None) -> None:
    """Shows the report, and writes what is to be written.

    Args:
        evaluated: what was evaluated.
        outputs: the files that are asked for.
        out: the file of the report; None for no file.
    """
    report = evaluated.report
    # First, for the numbers are there whether they can be written or not.
    terminal.show_report(evaluated.title, report)
    new_data_lines.show(report)
    written = {}
    if outputs.scores_out is not None:
        score_files.write_scores(
            outputs.scores_out, evaluated.examples, evaluated.class_counts, evaluated.class_names
        )
        written["scores"] = outputs.scores_out
    if outputs.examples is not None:
        written |= evaluated.write_examples(outputs.examples)
    if outputs.calibration_out is not None:
        written["thresholds"] = outputs.calibration_out
    if out is not None:
        files.write_whole(out, json_files.sealed(report, indent=1))
        written["report"] = out
    if outputs.figure is not None:
        drawn = rule_figure.by_rule(report.get("conformal_rules", {}))
        files.write_whole(outputs.figure, figure_style.encode(drawn, outputs.figure.suffix))
        written["figure"] = outputs.figure
    terminal.show_files(written)
