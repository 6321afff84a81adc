"""Watches sets after deployment: `python -m train.monitor --workdir=DIR --outcomes=FILE`.

The outcomes are lines of train.predict, to which the label that was found is added:
{"set": [...], "rule": "coverage=0.9", ..., "label": "oak"}. A table (.csv) has the columns label,
set (names with | between) and rule. --outcomes=- reads new lines from standard input. The state is
kept in a file: the same command counts what was added to the outcomes since.

The command ends with the exit code 0 if nothing is wrong, with 3 if the sets have the label less
often than they promise, and with 4 if the promise may still hold, but the scores of the labels
changed. A false alarm, at any time, has at most the probability --delta.
"""

import sys
from pathlib import Path

from absl import flags

from train.foundation import command_line, fields, files, flag_rules, folder_lock, interruption
from train.foundation.console import show_line
from train.foundation.flag_rules import Flag, Needed
from train.workdir import output_files

# The exit codes.
_BROKEN = 3
_CHANGED = 4
_STANDARD_INPUT = "-"

_WORKDIR = flags.DEFINE_string("workdir", None, "Needed. The folder of the run that made the sets.")
_OUTCOMES = flags.DEFINE_string(
    "outcomes",
    None,
    "Needed. The lines of train.predict with the label that was found: a file, which may grow, a "
    ".csv table, or - for new lines on standard input.",
)
_STATE = flags.DEFINE_string(
    "state", None, "Needed. The file that keeps what was counted; it is made if it is missing."
)
_FIGURE = flags.DEFINE_string(
    "figure",
    None,
    "A file for a figure of the coverage and of the evidence; its suffix is one of "
    f"{', '.join(output_files.FIGURE_SUFFIXES)}.",
)
_DELTA = flags.DEFINE_float("delta", 0.01, "The probability of a false alarm, at any time.")
_COVERAGE = flags.DEFINE_float(
    "coverage",
    None,
    "The coverage to test sets for that promise none, as of --top_k or --average_k.",
)
_CALIBRATED_ON = flags.DEFINE_integer(
    "calibrated_on",
    None,
    "The number of examples that the sets are calibrated on, or of groups if they have groups; by "
    "default that of the validation examples of the run.",
)
_FOLLOW = flags.DEFINE_bool(
    "follow", False, "Waits for more lines until an alarm, or until Ctrl-C."
)
_ROWS = flag_rules.declare(
    Needed(("workdir",), "the folder of the run that made the sets"),
    Needed(("outcomes",), "lines with sets and labels, or - for standard input"),
    Needed(("state",), "the file that keeps what was counted"),
    *(Flag(name, fields.text("a file")) for name in ("outcomes", "state", "figure")),
    Flag("delta", fields.Number(above=0, below=1)),
    Flag("coverage", fields.Number(above=0, below=1)),
    Flag("calibrated_on", fields.integer(1)),
    Flag("follow", excludes=("outcomes=-",), because="standard input is read to its end"),
)


def main() -> None:
    """Counts the outcomes that were added, and prints whether the promise holds."""
    flag_rules.check(_ROWS)
    assert _WORKDIR.value is not None
    assert _OUTCOMES.value is not None
    assert _STATE.value is not None
    outcomes = None if _OUTCOMES.value == _STANDARD_INPUT else Path(_OUTCOMES.value)
    kept = {} if outcomes is None else {outcomes: "the file of --outcomes"}
    state = output_files.checked("state", _STATE.value, kept)
    figure = None
    if _FIGURE.value is not None:
        figure = output_files.checked(
            "figure",
            _FIGURE.value,
            kept | {state: "the file of --state"},
            suffixes=output_files.FIGURE_SUFFIXES,
        )
    from train.monitoring import watching

    asked = watching.Asked(
        workdir=Path(_WORKDIR.value),
        outcomes=outcomes,
        state=state,
        coverage=_COVERAGE.value,
        calibrated_on=_CALIBRATED_ON.value,
        delta=_DELTA.value,
        follow=_FOLLOW.value,
    )
    lock = folder_lock.held(state.parent, "another monitor", name=f".{state.name}.lock")
    with lock, interruption.explained("the same command continues"):
        monitor = watching.watch(asked)
    for line in monitor.in_words():
        show_line(line)
    if figure is not None:
        from train.monitoring import figure as figures
        from train.workdir import figure_style

        files.write_whole(figure, figure_style.encode(figures.draw(monitor), figure.suffix))
        show_line(f"figure  {figure}")
    if monitor.broken_at is not None:
        sys.exit(_BROKEN)
    if monitor.changed_at is not None:
        sys.exit(_CHANGED)


if __name__ == "__main__":
    command_line.run(main)
