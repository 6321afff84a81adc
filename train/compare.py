"""A table of your own runs: `python -m train.compare --runs=runs`.

Finished runs are grouped by what differs between their configurations; the numbers are means over
seeds. With a sweep, the runs are made first:

    python -m train.compare --sweep=sweep.toml --runs=runs

With a study, losses are tuned by a random search first, and then contrasted on other seeds:

    python -m train.compare --study=study.toml --runs=runs
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from train.foundation import command, files, kinds
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.flags import Flag, Needed, check, declare
from train.reports.metric import Metric
from train.run import output_files

if TYPE_CHECKING:
    from train.comparison.comparing import Comparison

_SPLITS = ("test", "validation")

_RUNS = flags.DEFINE_list(
    "runs",
    None,
    "Folders of runs, or folders that contain these, with commas between. With --sweep or --study: "
    "the one folder of their runs; by default runs.",
)
_SWEEP = flags.DEFINE_string(
    "sweep",
    None,
    "A TOML file with a recipe, values of its fields, and seeds. Makes the missing runs of all "
    "combinations, then compares them. A stopped command continues if it is repeated.",
)
_STUDY = flags.DEFINE_string(
    "study",
    None,
    "A TOML file with arms, whose parameters a random search tunes, seeds for the selected values, "
    "and contrasts of arms. Makes the missing runs, then contrasts the arms. A stopped command "
    "continues if it is repeated.",
)
_PLAN = flags.DEFINE_bool(
    "plan",
    False,
    "print the commands of the runs that are known, one a line, and make none.",
)
_JOBS = flags.DEFINE_integer(
    "jobs",
    None,
    "how many runs are made at a time; by default 1.",
    lower_bound=1,
)
_METRICS = flags.DEFINE_list(
    "metrics",
    None,
    "The metrics, as results.json calls them, for example top_1_accuracy,macro_average_5_accuracy; "
    "by default the metrics of their selection, and top-K accuracies.",
)
_SPLIT = flags.DEFINE_string(
    "split", None, f"The split, one of {', '.join(_SPLITS)}; by default test."
)
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "The group that the others are compared with, seed by seed: its fields with their values as "
    "the table has them, for example loss=cross_entropy or loss=focal,gamma=2.0.",
)
_OUTPUTS = {
    "csv": flags.DEFINE_string("csv", None, "A file to write the numbers to, a line a group."),
    "json": flags.DEFINE_string("json", None, "A file to write all numbers to, of each seed too."),
    "markdown": flags.DEFINE_string("markdown", None, "A file to write the printed tables to."),
}
_ROWS = declare(
    Needed(("runs", "sweep", "study"), "folders of runs, or a file"),
    Flag("sweep", excludes=("study",)),
    Flag("plan", needs=("sweep", "study")),
    Flag("jobs", needs=("sweep", "study")),
    *(
        Flag(name, excludes=("study",), because="its file sets what is compared")
        for name in ("metrics", "split", "baseline")
    ),
    *(
        Flag(name, excludes=("study",), because="--json writes its numbers")
        for name in ("csv", "markdown")
    ),
    Flag("split", kinds.one_of(_SPLITS)),
    *(Flag(name, excludes=("plan",), because="a plan has no numbers") for name in _OUTPUTS),
)


def main() -> int:
    """Compares the runs that the flags name; those of a sweep or a study are made first."""
    check(_ROWS)
    if _METRICS.value == []:
        raise UserError("--metrics must name at least one metric")
    return _compare() if _STUDY.value is None else _study(Path(_STUDY.value))


def _compare() -> int:
    metrics = None if _METRICS.value is None else [Metric.parse(name) for name in _METRICS.value]
    paths = _checked_outputs()
    from train.comparison import comparing, finding, outputs, sweep
    from train.series.execution import Execution, execute, show_commands
    from train.series.planner import Planner
    from train.series.runs_folder import RunsFolder

    execution, baseline = Execution(), _BASELINE.value
    if _SWEEP.value is None:
        found = finding.find(_RUNS.value or [])
    else:
        planned, folder = sweep.read(Path(_SWEEP.value)), _folder()

        def look() -> Planner:
            return Planner(RunsFolder(folder), planned.arms, planned.seeds)

        planner = look()
        if _PLAN.value:
            show_commands(planner)
            return 0
        baseline = comparing.check_planned(planner.runs, wanted=metrics, baseline=baseline)
        execution = execute(look, jobs=_JOBS.value or 1)
        found = finding.planned(look())
    if found.finished:
        comparison = comparing.compare(
            found,
            split=_SPLIT.value or "test",
            wanted=metrics,
            baseline=baseline,
            is_planned=_SWEEP.value is not None,
        )
        outputs.show(comparison)
        _write(comparison, paths)
    else:
        show_line("no run is finished")
        for path, reason in found.left_out.items():
            show_line(f"  {path}: {reason}")
    execution.show_failed()
    # A run that failed before is not made again.
    is_incomplete = _SWEEP.value is not None and bool(found.left_out)
    return int(bool(execution.failed or is_incomplete or not found.finished))


def _study(file: Path) -> int:
    paths = _checked_outputs()
    from train.comparison import study_file, study_outputs, study_results
    from train.series.execution import execute, show_commands
    from train.series.planner import Planner
    from train.series.runs_folder import RunsFolder

    study, folder = study_file.read(file), _folder()

    def look() -> Planner:
        return Planner(RunsFolder(folder), study.arms.values(), study.seeds, split=study.split)

    planner = look()
    if _PLAN.value:
        show_commands(planner)
        return 0
    execution = execute(look, jobs=_JOBS.value or 1)
    numbers = study_results.collect(study, look())
    study_outputs.show(numbers)
    if "json" in paths:
        content = files.to_json(study_outputs.to_plain(numbers), indent=1)
        files.write_whole(paths["json"], content)
    execution.show_failed()
    return int(bool(numbers.collected.to_go))


def _checked_outputs() -> dict[str, Path]:
    given = {flag.name: Path(flag.value) for flag in (_SWEEP, _STUDY) if flag.value}
    outputs: dict[str, Path] = {}
    for name, flag in _OUTPUTS.items():
        if flag.value is not None:
            kept = {path: f"the file of --{other}" for other, path in (given | outputs).items()}
            outputs[name] = output_files.checked(name, flag.value, kept)
    return outputs


def _folder() -> Path:
    """The folder for the runs of a sweep or a study."""
    folders = ["runs"] if _RUNS.value is None else _RUNS.value
    if len(folders) != 1 or not folders[0]:
        raise UserError(
            field="--runs", must_be="one folder with --sweep or --study", got=",".join(folders)
        )
    folder = Path(folders[0])
    if folder.exists() and not folder.is_dir():
        raise UserError(field="--runs", must_be="a folder", but=f"{folder} is a file")
    return folder


def _write(comparison: "Comparison", paths: Mapping[str, Path]) -> None:
    from train.comparison import outputs

    for name, path in paths.items():
        if name == "json":
            content = files.to_json(outputs.to_plain(comparison), indent=2)
        elif name == "csv":
            content = outputs.to_csv(comparison).encode()
        else:
            content = outputs.to_markdown(comparison).encode()
        files.write_whole(path, content)


if __name__ == "__main__":
    command.run(main)
