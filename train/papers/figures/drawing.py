"""Draws a figure of the catalogue and writes it."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from train.foundation import files, kinds
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.papers.figures import selection, tested
from train.papers.figures.catalogue import FIGURES
from train.reports import figure_style
from train.run import output_files
from train.run.runs import StoredRun


class _Source(NamedTuple):
    """How the data of a figure are found and read.

    Attributes:
        read: reads it from workdirs.
        find: finds it in a folder.
        what: what is counted, for messages.
        run: the run of an entry; None if it does not have one.
    """

    read: Callable[[Sequence[str]], Sequence[Any]]
    find: Callable[[str], Sequence[Any]]
    what: str
    run: Callable[[Any], StoredRun | None]


_SOURCES = {
    "runs": _Source(selection.read, selection.find, "runs drawn", lambda run: run),
    "data sets": _Source(selection.read_any, selection.find_some, "runs drawn", lambda run: run),
    "networks": _Source(tested.read, tested.find, "results read", lambda one: one.run),
}


def draw(
    name: str | None,
    out: str | None,
    *,
    workdirs: Sequence[str] | None,
    folder: str | None,
    options: Mapping[str, Any],
) -> None:
    """Draws a figure and writes it.

    Args:
        name: the name of the figure.
        out: the file.
        workdirs: the workdirs of the runs to draw.
        folder: in place of `workdirs`, a folder whose finished runs are all drawn.
        options: the other flags that are given, by name.

    Raises:
        UserError: an argument is wrong; the message names its flag.
    """
    if name is None:
        raise UserError(f"--figure is needed: it must be one of {', '.join(FIGURES)}")
    if wrong := kinds.wrong(name, kinds.one_of(FIGURES)):
        raise UserError(field="--figure", must_be=wrong, got=name)
    kind = FIGURES[name]
    path = _file(out)
    given = {**options, "workdirs": workdirs, "runs": folder}
    for option in (option for option, value in given.items() if value is not None):
        if option not in kind.options and not (kind.of and option in ("workdirs", "runs")):
            raise UserError(f"--{option} cannot be given with --figure={name}")
    settings = {**kind.options, **options}
    module, _, function = kind.draw.partition(":")
    draw_figure = getattr(importlib.import_module(f"train.papers.figures.{module}"), function)
    if kind.of is None:
        figure, found = draw_figure(**settings), ""
    else:
        source = _SOURCES[kind.of]
        results = _results(name, source, workdirs, folder)
        figure, found = draw_figure(results, **settings), f"; {source.what}: {len(results)}"
    files.write_whole(path, figure_style.encode(figure, path.suffix))
    show_line(f"wrote {path}{found}")


def _file(out: str | None) -> Path:
    suffixes = output_files.FIGURE_SUFFIXES
    if not out:
        raise UserError(f"--out is needed: a file whose suffix is one of {', '.join(suffixes)}")
    return output_files.checked("out", Path(out).expanduser(), suffixes=suffixes)


def _results(
    name: str, source: _Source, workdirs: Sequence[str] | None, folder: str | None
) -> Sequence[Any]:
    if (workdirs is None) == (folder is None):
        raise UserError(
            f"--figure={name} needs either --workdirs=A,B,C or --runs=FOLDER, and not both"
        )
    if folder is not None:
        return source.find(folder)
    if not workdirs or not all(workdirs):
        raise UserError("--workdirs must be workdirs with commas between; one is empty")
    return source.read(workdirs)
