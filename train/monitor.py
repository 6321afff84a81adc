"""Watches sets after deployment: `python -m train.monitor --workdir=DIR --outcomes=FILE`.

The outcomes are lines of train.predict, to which the label that was found is added:
{"set": [...], "rule": "coverage=0.9", "calibrated_on": {...}, ..., "label": "oak"}. The state is
kept in a file: the same command counts what was added to the outcomes since.

The command ends with the exit code 0 if nothing is wrong, with 3 if the sets have the label less
often than they promise, and with 4 if the promise may still hold, but the scores of the labels
changed. A false alarm, at any time, has at most the probability --delta.
"""

from pathlib import Path

from absl import flags

from train.foundation import command, files, kinds
from train.foundation.console import show_line
from train.foundation.errors import explained
from train.foundation.flags import Flag, Needed, check, declare
from train.run import output_files

_SUFFIXES = output_files.FIGURE_SUFFIXES
_WORKDIR = flags.DEFINE_string("workdir", None, "Needed. The folder of the run that made the sets.")
_OUTCOMES = flags.DEFINE_string(
    "outcomes",
    None,
    "Needed. The lines of train.predict with the label that was found: a file, which may grow, or "
    "- for new lines on standard input.",
)
_STATE = flags.DEFINE_string(
    "state", None, "Needed. The file that keeps what was counted; it is made if it is missing."
)
_FIGURE = flags.DEFINE_string(
    "figure", None, f"A file for a figure of the coverage and the evidence: {', '.join(_SUFFIXES)}."
)
_DELTA = flags.DEFINE_float("delta", 0.01, "The probability of a false alarm, at any time.")
_COVERAGE = flags.DEFINE_float(
    "coverage", None, "The coverage to test sets for that promise none, as of --top_k."
)
_FOLLOW = flags.DEFINE_bool(
    "follow", False, "Waits for more lines until an alarm, or until Ctrl-C."
)
_ROWS = declare(
    Needed(("workdir",), "the folder of the run that made the sets"),
    Needed(("outcomes",), "lines with sets and labels, or - for standard input"),
    Needed(("state",), "the file that keeps what was counted"),
    *(Flag(name, kinds.number(gt=0, lt=1)) for name in ("delta", "coverage")),
    Flag("follow", excludes=("outcomes=-",), because="standard input is read to its end"),
)


def main() -> int:
    """Counts the outcomes that were added, and prints whether the promise holds."""
    check(_ROWS)
    outcomes = Path(_OUTCOMES.value or "")
    kept = {outcomes: "the file of --outcomes"}
    state = output_files.checked("state", _STATE.value or "", kept)
    figure = None
    if _FIGURE.value is not None:
        kept |= {state: "the file of --state"}
        figure = output_files.checked("figure", _FIGURE.value, kept, suffixes=_SUFFIXES)
    from train.monitoring import watching

    lock = files.lock(state.parent, "another monitor", name=f".{state.name}.lock")
    with lock, explained("the same command continues"):
        monitor = watching.watch(
            Path(_WORKDIR.value or ""),
            None if _OUTCOMES.value == "-" else outcomes,
            state,
            follow=_FOLLOW.value,
            coverage=_COVERAGE.value,
            delta=_DELTA.value,
        )
    for line in monitor.in_words():
        show_line(line)
    if figure is not None:
        from train.monitoring import figure as figures
        from train.reports import figure_style

        files.write_whole(figure, figure_style.encode(figures.draw(monitor), figure.suffix))
        show_line(f"figure  {figure}")
    return monitor.exit_code


if __name__ == "__main__":
    command.run(main)
