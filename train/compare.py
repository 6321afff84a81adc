"""A table of your own runs: `python -m train.compare --runs=runs`.

Finished runs are grouped by the fields in which they differ; the numbers are means over seeds. The
runs of a study, a TOML file, or of a table of the thesis are made first:

    python -m train.compare --study=study.toml --runs=runs
    python -m train.compare --table=4.4 --on=synthetic_species --seeds=0,1
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from absl import flags

from train.foundation import command, files
from train.foundation.console import in_words, make_console, show_line
from train.foundation.errors import UserError, naming_flags
from train.foundation.flags import Flag, Needed, check, declare, path_of
from train.foundation.nested import flatten
from train.reports.metric import Metric
from train.run import output_files

if TYPE_CHECKING:
    from train.run.runs import StoredRun
    from train.study.papers import Table
    from train.study.plan import Study

_SPLITS = ("test", "validation", "balanced_test")
_FIGURES = ("level_sets", "field", "set_sizes", "curves")
# Of a file or a pipe: no line of a table is folded.
_WIDTH = 1000

_RUNS = flags.DEFINE_list(
    "runs",
    None,
    "Folders of runs, or folders that contain these, with commas between. With --study or --table: "
    "the one folder of their runs; by default runs.",
)
_STUDY = flags.DEFINE_string(
    "study",
    None,
    "A TOML file with recipes, values of their fields, and seeds; or with arms, whose fields a "
    "random search tunes, and contrasts of arms. Makes the missing runs, then compares them. A "
    "stopped command continues if it is repeated.",
)
_TABLE = flags.DEFINE_string(
    "table",
    None,
    "A table of the thesis, or the runs of one of its figures, as 4.4. Makes the missing runs, "
    "then prints their numbers beside the published ones.",
)
_ON = flags.DEFINE_string(
    "on",
    None,
    "another recipe with the same losses, such as synthetic_species or digits.",
)
_ONLY_ROWS = flags.DEFINE_list(
    "rows", None, "only these rows, as recipes call them, for example cross_entropy,focal."
)
_COLUMNS = flags.DEFINE_list("columns", None, "only these columns, by their heads: K=1,K=5.")
_SEEDS = flags.DEFINE_list("seeds", None, "the seeds; by default as many as in the thesis.")
_OVERRIDE = flags.DEFINE_multi_string(
    "override",
    [],
    "a field that is changed in all runs, for example dataset.data_dir=DIR; may be given several "
    "times. {model.name} in its value is the network of the run.",
)
_PLAN = flags.DEFINE_bool(
    "plan", False, "print the commands of the runs that are known, one a line, and make none."
)
_JOBS = flags.DEFINE_integer(
    "jobs",
    None,
    "how many runs are made at a time; by default 1. 0: none, what is there is compared.",
    lower_bound=0,
)
_METRICS = flags.DEFINE_list(
    "metrics",
    None,
    "The metrics, as results.json calls them, for example top_1_accuracy,macro_average_5_accuracy; "
    "by default the metrics of their selection, and top-K accuracies.",
)
_SPLIT = flags.DEFINE_enum("split", None, _SPLITS, "The split; by default test, or the study's.")
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "The group that the others are compared with, seed by seed: its fields with their values as "
    "the table has them, for example loss=cross_entropy or loss=focal,gamma=2.0.",
)
_CSV = flags.DEFINE_string("csv", None, "A file to write the numbers to, a line a run.")
_FIGURE = flags.DEFINE_enum(
    "figure",
    None,
    _FIGURES,
    "A figure, too: level_sets of the losses, which need no run; a metric over a field; set_sizes, "
    "accuracies over the mean sizes of sets; or the curves of the runs. The metric is the first of "
    "--metrics.",
)
_OVER = flags.DEFINE_string("over", None, "the field on the axis, as loss.alpha.")
_OUT = flags.DEFINE_string("out", None, "the file of the figure, a .png, .svg or .pdf.")
_SEED = re.compile(r"\d{1,9}", re.ASCII)
_MADE = ("study", "table")
_ROWS = declare(
    Needed(("runs", *_MADE, "figure=level_sets"), "folders of runs, a file, or a table"),
    Flag("study", excludes=("table",)),
    *(Flag(name, needs=("table",)) for name in ("on", "rows", "columns", "seeds", "override")),
    *(Flag(name, needs=_MADE) for name in ("plan", "jobs")),
    *(
        Flag(name, excludes=("table",), because="the table sets what is compared")
        for name in ("metrics", "split", "baseline")
    ),
    *(
        Flag(name, excludes=("plan",), because="a plan has no numbers")
        for name in ("csv", "figure")
    ),
    Flag("figure", needs=("out",)),
    Flag("out", needs=("figure",)),
    Flag("figure=field", needs=("over",), because="its axis"),
    Flag("over", needs=("figure=field",)),
    *(
        Flag("figure=level_sets", excludes=(name,), because="they are of no run")
        for name in ("runs", *_MADE)
    ),
)


def main() -> int:
    """Compares the runs that the flags name; those of a study or a table are made first."""
    check(_ROWS)
    with naming_flags({"a metric": "--metrics"}):
        wanted = [Metric.parse(name) for name in _METRICS.value or ()]
    kept = {} if (file := path_of(_STUDY)) is None else {file: "the file of --study"}
    csv = None if _CSV.value is None else output_files.checked("csv", _CSV.value, kept)
    if _OUT.value is not None:
        kept |= {} if csv is None else {csv: "the file of --csv"}
        output_files.checked("out", _OUT.value, kept, suffixes=output_files.FIGURE_SUFFIXES)
    if _FIGURE.value == "level_sets":
        _draw([], "test")
        return 0
    from train.study import folder, plan

    folders = _folders()
    table = None if _TABLE.value is None else _table(_TABLE.value)
    if table is not None:
        study = table.study()
    elif file is not None:
        study = plan.read(file)
    else:
        _show(_finished(folders), _SPLIT.value or "test", csv)
        return 0
    (runs,) = folders
    if _PLAN.value:
        for run in folder.missing(study, runs):
            show_line(shlex.join(["python", *run.command(runs)]))
        return 0
    # Refused before hours of runs.
    configs = [dict(flatten(arm.run({}, 0).config)) for arm in study.arms]
    ks = {k for config in configs for k in config["eval.ks"]}
    for metric in wanted:
        if metric.k is not None and metric.k not in ks:
            but = f"no run has {metric.name}; config.eval.ks has {sorted(ks)}"
            raise UserError(field="--metrics", must_be="metrics of the runs", but=but)
    if _OVER.value is not None and not any(_OVER.value in config for config in configs):
        raise UserError(field="--over", must_be="a field of the runs", got=_OVER.value)
    jobs = 1 if _JOBS.value is None else _JOBS.value
    failed = folder.make(study, runs, jobs) if jobs else {}
    _show_study(study, table, runs, csv)
    for name, reason in failed.items():
        show_line(f"failed: {name}: {reason}")
    if to_go := len(folder.missing(study, runs)):
        show_line(f"runs to go: {to_go}")
    return int(to_go > 0)


def _table(number: str) -> "Table":
    """The table that the flags name."""
    from train.study import papers

    given = _SEEDS.value
    if given is not None and not all(map(_SEED.fullmatch, given or [""])):
        must_be = "integers from 0 to 999999999, with commas between them"
        raise UserError(field="--seeds", must_be=must_be, got=",".join(given))
    return papers.find(
        number,
        on=_ON.value,
        rows=_ONLY_ROWS.value,
        columns=_COLUMNS.value,
        seeds=None if given is None else list(dict.fromkeys(map(int, given))),
        overrides=dict(one.partition("=")[::2] for one in _OVERRIDE.value),
    )


def _folders() -> list[Path]:
    """The folders of --runs: there, or one in which runs are made."""
    names = ["runs"] if _RUNS.value is None else _RUNS.value
    makes = _STUDY.value is not None or _TABLE.value is not None
    if makes and len(names) != 1:
        one = "one folder with --study or --table"
        raise UserError(field="--runs", must_be=one, got=",".join(names))
    for name in names:
        if not name or not (Path(name).is_dir() or (makes and not Path(name).exists())):
            but = f"there is no folder {name!r}"
            raise UserError(field="--runs", must_be="folders of runs", but=but)
    return [*map(Path, names)]


def _finished(folders: Sequence[Path]) -> list["StoredRun"]:
    """The finished runs in folders; it says which others there are."""
    from train.study import folder

    runs = [*folder.stored(folders)]
    finished = [run for run in runs if run.is_finished]
    if not finished:
        but = f"no run in {in_words([*map(str, folders)], 'folders')} is finished"
        raise UserError(field="--runs", must_be="folders of runs", but=but)
    for run in runs:
        if not run.is_finished:
            show_line(f"left out: {run.workdir} (not finished)")
    return finished


def _show(
    runs: Sequence["StoredRun"], split: str, csv: Path | None, table: "Table | None" = None
) -> None:
    """Prints the table of finished runs, or that of the thesis; writes them, and the figure."""
    from train.study import papers, tables

    console, found = make_console(width_without_terminal=_WIDTH), tables.rows(runs)
    _draw(runs, split)
    if table is None:
        metrics = tables.choose(runs, split, _METRICS.value or ())
        tables.show(console, found, metrics, split, _BASELINE.value)
    else:
        papers.show(console, table, {run.key: run for run in runs})
    if csv is not None:
        files.write_whole(csv, tables.to_csv(found, split).encode())


def _draw(runs: Sequence["StoredRun"], split: str) -> None:
    """Draws the figure of --figure, if it is given and has its runs."""
    if _FIGURE.value is None or _OUT.value is None or not (runs or _FIGURE.value == "level_sets"):
        return
    from train.study import figures

    kind, metric = cast("figures.Kind", _FIGURE.value), next(iter(_METRICS.value or ()), None)
    figures.draw(kind, runs, Path(_OUT.value), over=_OVER.value, metric=metric, split=split)
    show_line(f"figure  {_OUT.value}")


def _show_study(study: "Study", table: "Table | None", folder: Path, csv: Path | None) -> None:
    """Prints the table of a study, what its arms selected, and the contrasts."""
    from train.study import contrasts
    from train.study.folder import ended, finished
    from train.study.plan import known

    done, found = ended(study, folder), finished([folder])
    arms = {arm.name: known(study, arm, done) for arm in study.arms}
    finals = dict.fromkeys(run.key for arm in arms.values() for run in arm.finals)
    runs = [found[key] for key in finals if key in found]
    if runs or table is not None:
        _show(runs, _SPLIT.value or study.split, csv, table)
    for name, arm in arms.items():
        if arm.search and arm.selected is not None:
            values = ", ".join(f"{field}={value}" for field, value in arm.selected.items())
            show_line(f"{name}: {values} selected")
        elif arm.search and all(run.key in done for run in arm.search):
            show_line(f"{name}: training diverged with all that was tried")
        lost = [str(run.seed) for run in arm.finals if run.key in done and run.key not in found]
        if lost:
            show_line(
                f"{name}: training diverged with seeds {', '.join(lost)}: they are not in the "
                "means, and count as 0 % in contrasts"
            )
    if study.contrasts:
        estimates = contrasts.estimate(study, arms, {key: found.get(key) for key in done})
        contrasts.show(make_console(width_without_terminal=_WIDTH), study, estimates)


if __name__ == "__main__":
    command.run(main)
