"""The papers' tables beside ours: `python -m train.tables --table=4.4 --runs=runs`.

With `--plan` it prints the commands that make the numbers, with `--run` it runs them.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from train.foundation import command, files, kinds
from train.foundation.errors import UserError
from train.foundation.flags import Flag, Needed, check, declare
from train.papers.tables import collecting, outputs
from train.papers.tables.catalogue import CATALOGUE, EMBEDDED, THESIS
from train.papers.tables.table import Table
from train.run import output_files
from train.series import planned_runs
from train.series.execution import execute, show_commands
from train.series.planner import Planner
from train.series.runs_folder import RunsFolder

_TABLE = flags.DEFINE_string(
    "table",
    None,
    f"Needed. The table of the thesis, one of {', '.join(THESIS)}.",
)
_ON = flags.DEFINE_string(
    "on",
    None,
    f"An embedded data set, {' or '.join(EMBEDDED)}, on which to make the same table without "
    "a download; by default the table is on the paper's own.",
)
_RUNS = flags.DEFINE_string("runs", "runs", "The folder of the runs.")
_ONLY_ROWS = flags.DEFINE_list(
    "rows",
    None,
    "Only these rows: losses, or in table 3.1 networks, as recipes call them, for example "
    "cross_entropy,focal.",
)
_COLUMNS = flags.DEFINE_list(
    "columns", None, "Only these columns, by their heads without spaces, for example K=1,K=5."
)
_SEEDS = flags.DEFINE_list(
    "seeds", None, "The seeds of the runs, for example 0,1,2; by default as many as in the paper."
)
_PLAN = flags.DEFINE_bool("plan", False, "Print the commands of the runs, one a line.")
_RUN = flags.DEFINE_bool(
    "run",
    False,
    "Make the runs that are not finished, one after another, then print the table. A stopped "
    "command continues if it is repeated.",
)
_OVERRIDE = flags.DEFINE_multi_string(
    "override",
    [],
    "A field to change in all runs, for example dataset.data_dir=DIR; may be given several times. "
    "Give the same to make the runs and to collect them. {model.name} in the value stands "
    "for the network of the run: model.pretrained=weights/{model.name}.pth.",
)
_JSON = flags.DEFINE_string("json", None, "A file to write the collected numbers to.")
_ROWS = declare(
    Needed(("table",), f"one of {', '.join(THESIS)}"),
    Flag("table", kinds.one_of(THESIS)),
    Flag("on", kinds.one_of(EMBEDDED)),
    Flag("plan", excludes=("run",)),
    Flag("json", excludes=("plan",), because="a plan has no numbers"),
)


def main() -> int:
    """Plans, runs or collects the table that the flags name."""
    check(_ROWS)
    table = _table()
    seeds = table.seeds if _SEEDS.value is None else _seeds(_SEEDS.value)
    out = None if _JSON.value is None else output_files.checked("json", _JSON.value)
    folder = _folder(must_exist=not (_PLAN.value or _RUN.value))
    overrides = tuple(_OVERRIDE.value)
    planned_runs.check_overrides(overrides)

    def look() -> Planner:
        arms = (cell.arm for cell in table.cells.values())
        return Planner(RunsFolder(folder), arms, seeds, overrides=overrides)

    planner = look()
    planner.check()
    if _PLAN.value:
        show_commands(planner)
        return 0
    execution = execute(look) if _RUN.value else None
    numbers = collecting.collect(table, look())
    outputs.show(numbers)
    if out is not None:
        content = files.to_json(outputs.to_plain(numbers), indent=2)
        files.write_whole(out, content)
    if execution is not None and execution.failed:
        execution.show_failed()
        return 1
    return 0


def _table() -> Table:
    assert _TABLE.value is not None
    table = CATALOGUE[_TABLE.value, _ON.value]
    for flag, keys in ((_ONLY_ROWS, table.rows), (_COLUMNS, table.columns)):
        if flag.value is not None:
            for value in flag.value or [""]:
                if wrong := kinds.wrong(value, kinds.one_of(keys)):
                    raise UserError(field=f"--{flag.name}", must_be=wrong, got=value)
    part = table.part(_ONLY_ROWS.value, _COLUMNS.value)
    if not part.cells:
        raise UserError(f"{table.name} has nothing in these --rows and --columns")
    return part


def _seeds(texts: Sequence[str]) -> tuple[int, ...]:
    wrong = UserError(
        field="--seeds",
        must_be="different integers from 0 to 4294967295, with commas between them",
        got=",".join(texts),
    )
    try:
        seeds = tuple(int(text) for text in texts)
    except ValueError:
        raise wrong from None
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise wrong
    return seeds


def _folder(*, must_exist: bool) -> Path:
    folder = Path(_RUNS.value)
    if _RUNS.value == "" or (folder.exists() and not folder.is_dir()):
        raise UserError(field="--runs", must_be="a folder", got=_RUNS.value)
    if must_exist and not folder.exists():
        raise UserError(
            f"--runs must be a folder with runs; there is no {folder}: --run makes it, and --plan "
            "prints the commands that do"
        )
    return folder


if __name__ == "__main__":
    command.run(main)
