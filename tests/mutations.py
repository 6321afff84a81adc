"""Breaks the code in known ways, one at a time, and sees whether a test fails.

`python -m tests.mutations [WORD...]` takes the rows of `mutations.toml`, or those whose file or
promise has one of the words. Each row is applied in a copy of the tree. The test file that has to
notice it runs first, then its folder. A row that both let through fails the command.
"""

import dataclasses
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "tests" / "mutations.toml"
_COPIES = 2
# A mutation may make a loop endless.
_LONGEST_FILE, _LONGEST_TIER = 900, 3600
_FAILED = 1
# Examples in docstrings are tests, too.
_PYTEST = f"{sys.executable} -m pytest -x -q -p no:cacheprovider --doctest-modules".split()


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A change of one place of the code.

    Attributes:
        promise: what it breaks.
        file: the file, from the root.
        before: a text that is in the file once.
        after: what stands there instead.
        notices: the test file that has to notice it; its folder is the tier.
    """

    promise: str
    file: str
    before: str
    after: str
    notices: str

    @property
    def tier(self) -> str:
        """The folder of tests that runs if the file lets the mutation through."""
        return "/".join(Path(self.notices).parts[:2])

    def apply(self, root: Path) -> str:
        """Changes the file below this folder.

        Returns:
            Its text before.

        Raises:
            ValueError: the place is not there, or not alone.
        """
        path = root / self.file
        text = path.read_text()
        if text.count(self.before) != 1:
            times = text.count(self.before)
            raise ValueError(f"{self.file} has {self.before!r} {times} times; it must have it once")
        path.write_text(text.replace(self.before, self.after))
        return text


def read() -> list[Mutation]:
    """The rows of the file."""
    with ROWS.open("rb") as file:
        return [Mutation(**row) for row in tomllib.load(file)["mutation"]]


def _copy(folder: Path) -> Path:
    """What git knows of the tree, below this folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return folder


def _fails(root: Path, tests: str, seconds: int) -> bool:
    """Whether a test fails; a run that does not end counts as failed."""
    try:
        ended = subprocess.run(
            [*_PYTEST, tests],
            cwd=root,
            # Processes that tests start import the copy, too.
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    if ended.returncode not in (0, _FAILED):
        raise RuntimeError(ended.stdout.decode()[-3000:] + ended.stderr.decode()[-3000:])
    return ended.returncode == _FAILED


def _noticed_by(mutation: Mutation, root: Path) -> str | None:
    """What notices it: the file, the folder, or nothing."""
    text = mutation.apply(root)
    try:
        if _fails(root, mutation.notices, _LONGEST_FILE):
            return mutation.notices
        return mutation.tier if _fails(root, mutation.tier, _LONGEST_TIER) else None
    finally:
        (root / mutation.file).write_text(text)


def main(words: Sequence[str]) -> int:
    """Tries the rows; returns the exit code."""
    chosen = [
        row for row in read() if not words or any(word in row.file + row.promise for word in words)
    ]
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(_COPIES):
            copies.put(_copy(Path(folder) / str(number)))

        def attempt(mutation: Mutation) -> str | None:
            root = copies.get()
            try:
                return _noticed_by(mutation, root)
            finally:
                copies.put(root)

        with ThreadPoolExecutor(_COPIES) as pool:
            for mutation, noticed in zip(chosen, pool.map(attempt, chosen), strict=True):
                print(
                    f"{noticed or 'SURVIVED':50} {mutation.promise} ({mutation.file})", flush=True
                )
                if noticed is None:
                    survived.append(mutation)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutations were noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
