"""The moments at which a run makes a checkpoint of a folder that it has filled, by renaming it."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def before_checkpoints(workdir: Path, called: Callable[[int], None]) -> Iterator[None]:
    """Within this context a function is called with the step of a checkpoint, before it is one."""
    rename = os.rename

    def watched(source: os.PathLike[str], target: os.PathLike[str], **more: int) -> None:
        place = Path(target)
        if place.parent == workdir / "checkpoints" and place.name.isdecimal():
            called(int(place.name))
        rename(source, target, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", watched)
        yield


@contextlib.contextmanager
def copies(workdir: Path, folder: Path) -> Iterator[dict[int, Path]]:
    """What a power cut at these moments would leave of a run, in copies of its workdir, by step."""
    found: dict[int, Path] = {}

    def copy(step: int) -> None:
        # The files that the run is about to replace others with may go meanwhile.
        ignored = shutil.ignore_patterns(".*.tmp")
        found[step] = shutil.copytree(workdir, folder / f"until_{step}", ignore=ignored)

    with before_checkpoints(workdir, copy):
        yield found
