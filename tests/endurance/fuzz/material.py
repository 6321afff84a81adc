"""A small run and its data, to be damaged, and the commands that read them."""

import json
import random
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.parts.program.forked import Ended, Started, error_lines, start
from tests.promises import shades

ARGUMENTS = (
    "--config=digits:cross_entropy",
    f"--config.dataset.name={shades.NAME}",
    "--config.num_epochs=2",
    "--config.model.name=mlp",
    "--config.model.width=8",
    "--config.dataset.batch_size=32",
)
# Seconds and bytes of a command. Some take seconds, on a machine that does other things too.
TIME_LIMIT = 120
_MEMORY = 4 * 2**30
# In results.json, of the machine and the moment, and checksums that depend on them.
_OF_THE_MOMENT = (
    *("epoch_seconds", "examples_per_second", "data_wait_share", "config"),
    *("sha256", "digests"),
)
# From docs/train.md.
_EXIT_CODES = (1, 2)
_UNREADABLE = re.compile(r"\d+ of \d+ images could not be read")


# From results.json: most of its numbers for a split.
_METRICS = (
    "loss",
    *(f"top_{k}_accuracy" for k in (1, 3, 5)),
    *(f"macro_top_{k}_accuracy" for k in (1, 3, 5)),
    *(f"average_{k}_accuracy" for k in (1, 3, 5)),
    *(f"macro_average_{k}_accuracy" for k in (1, 3, 5)),
    *(f"average_{k}_set_size" for k in (1, 3, 5)),
)


@dataclass(frozen=True)
class Within:
    """A module that runs a command in some way.

    Attributes:
        module: its name.
        environment: its variables, with the command.
        preloaded: see `Start`.
    """

    module: str
    environment: Mapping[str, str] = field(default_factory=dict)
    preloaded: str | None = None


@dataclass(frozen=True)
class Command:
    """A command that reads a run.

    Attributes:
        module: the command's.
        arguments: the folder with the run to the command line's.
        result: the folder with the run, and what was printed, to what the command has found.
        is_training: whether the run is unfinished before it.
        reads: the files of the run that it reads most of, which are damaged often.
    """

    module: str
    arguments: Callable[[Path], Sequence[str]]
    result: Callable[[Path, str], Any]
    is_training: bool = False
    reads: tuple[str, ...] = ("config.json", "classes.json")

    def start(self, folder: Path, within: Within | None = None) -> Started:
        """Starts the command on the run in a folder, maybe within another module."""
        within = Within(self.module) if within is None else within
        return Started(
            within.module,
            *self.arguments(folder),
            environment={"XLA_FLAGS": "", **within.environment},
            memory=_MEMORY,
            preloaded=within.preloaded,
        )

    def run(self, folder: Path, within: Within | None = None) -> Ended:
        """Runs the command to its end."""
        return self.start(folder, within).end(TIME_LIMIT)


def results(folder: Path, _printed: str = "") -> Any:
    """The numbers of a finished run, without times."""
    found = json.loads((folder / "run" / "results.json").read_text())
    return {name: value for name, value in found.items() if name not in _OF_THE_MOMENT}


def results_and_metrics(folder: Path, _printed: str) -> Any:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    for line in metrics:
        line.pop("seconds", None)
    return results(folder), metrics


def _printed(folder: Path, printed: str) -> Any:
    return printed.replace(str(folder), "FOLDER")


def _written(folder: Path, _printed: str) -> Any:
    written = (folder / "out.json").read_text().replace(str(folder), "FOLDER")
    found = json.loads(written)
    if isinstance(found, dict):
        found.pop("sha256", None)
    return found


def _train(folder: Path) -> list[str]:
    data = f"--config.dataset.data_dir={folder / 'data'}"
    return [*ARGUMENTS, data, f"--workdir={folder / 'run'}"]


def _predict(folder: Path) -> list[str]:
    return [f"--workdir={folder / 'run'}", f"--images={folder / 'images'}", "--average_k=2"]


COMMANDS = {
    "train.main of a finished run": Command("train.main", _train, results, reads=("results.json",)),
    "train.main of an unfinished run": Command(
        "train.main", _train, results_and_metrics, is_training=True
    ),
    "train.evaluate": Command(
        "train.evaluate",
        lambda folder: [
            f"--workdir={folder / 'run'}",
            "--sets=coverage=0.9",
            f"--out={folder / 'out.json'}",
        ],
        _written,
    ),
    "train.predict": Command("train.predict", _predict, _printed),
    "train.compare": Command(
        "train.compare",
        lambda folder: [
            *(f"--runs={folder / 'run'}", f"--json={folder / 'out.json'}"),
            f"--metrics={','.join(_METRICS)}",
        ],
        _written,
        reads=("results.json",),
    ),
    "train.tables": Command(
        "train.tables",
        lambda folder: ["--table=4.4", "--on=synthetic_species", f"--runs={folder}"],
        _printed,
    ),
}


class Material:
    """The run, which is made once, and copied for each trial to the same place.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self._whole = folder / "whole"
        # The run keeps the path of its data.
        self.at = folder / "at"
        self.at.mkdir()
        _write_images(self.at / "images")
        data = f"--data_dir={self.at / 'data'}"
        made = start("train.prepare", f"--dataset={shades.NAME}", data)
        assert made.returncode == 0, made.stderr
        made = COMMANDS["train.main of a finished run"].run(self.at)
        assert made.returncode == 0, made.stderr
        self._finished = results_and_metrics(self.at, "")
        # For sets.json and evaluation_test.json.
        for name in ("train.predict", "train.evaluate"):
            done = COMMANDS[name].run(self.at)
            assert done.returncode == 0, done.stderr
        shutil.copy(self.at / "out.json", self.at / "run" / "evaluation_test.json")
        self.at.rename(self._whole)
        # What each command finds if nothing is damaged.
        self.expected = {name: self._expect(command) for name, command in COMMANDS.items()}

    def _expect(self, command: Command) -> Any:
        self.renew(is_training=command.is_training)
        ended = command.run(self.at)
        assert (ended.returncode, ended.stderr) == (0, ""), ended
        found = command.result(self.at, ended.stdout)
        assert not command.is_training or found == self._finished
        return found

    def renew(self, *, is_training: bool) -> None:
        """Puts all in order for the next trial."""
        shutil.rmtree(self.at, ignore_errors=True)
        shutil.copytree(self._whole, self.at)
        (self.at / "out.json").unlink()
        if is_training:
            steps = (self.at / "run" / "checkpoints").iterdir()
            shutil.rmtree(max(steps, key=lambda step: int(step.name)))
            for name in ("results.json", "evaluation_test.json", "sets.json"):
                (self.at / "run" / name).unlink()

    def file(self, part: str, reads: Collection[str], draw: random.Random) -> Path:
        """A file of the run or of the data, often one of those that are read most.

        Descriptions of prepared data are not among them: tensorflow-datasets reads these itself.
        """
        found = sorted(path for path in (self.at / part).rglob("*") if path.is_file())
        if part == "data":
            found = [one for one in found if "array_record" in one.name or "examples" in one.name]
        # Half of the time.
        weights = [len(found) / len(reads) if path.name in reads else 1 for path in found]
        return draw.choices(found, weights)[0]


def why_not(name: str, material: Material, ended: Ended) -> str | None:
    """Why the end of a command, or its result, is wrong; None if it may end so."""
    wrong = why_no_end(ended)
    if wrong is not None or ended.returncode != 0:
        return wrong
    found = COMMANDS[name].result(material.at, ended.stdout)
    expected = material.expected[name]
    return None if found == expected else f"another result: {found} instead of {expected}"


def why_no_end(ended: Ended) -> str | None:
    """Why a command may not end so, whatever its result is; None if it may."""
    lines = error_lines(ended.stderr)
    if ended.returncode == 0:
        if any(not line.startswith("warning: ") for line in lines):
            return f"printed {ended.stderr!r}"
        return None
    if ended.returncode not in _EXIT_CODES:
        return f"ended with {ended.returncode}: {ended.stderr[-2000:]}"
    if ended.returncode == 1 and lines and _UNREADABLE.fullmatch(lines[-1]):
        # train.predict has a line for each of them.
        return None
    *warnings, last = lines or [""]
    if not last.startswith("error: ") or any(
        not warning.startswith("warning: ") for warning in warnings
    ):
        return f"printed {ended.stderr[-3000:]!r}"
    return None


def _write_images(folder: Path) -> None:
    folder.mkdir()
    draw = np.random.default_rng(0)
    for index in range(3):
        Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8)).save(folder / f"{index}.png")
