"""The two kinds of processes that share a work: one writes its part, one merges all parts."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train.foundation import folder_lock
from train.foundation.console import show_line
from train.foundation.errors import UserError
from train.foundation.progress_bar import ImageProgress
from train.sharing import part_files
from train.sharing.part_files import Head, PartFile
from train.sharing.shard import Shard
from train.sharing.work import PartWritten, Result, Share, Work

# The lock of the folder, held while the parts are merged.
_LOCK = "merge.lock"


def folder_of(out: Path) -> Path:
    """The folder of the parts of an output."""
    return out.with_name(f"{out.name}.parts")


def complete(part: PartFile, share: range, work: Work[Any]) -> None:
    """Computes the units of a share that a file does not have yet, and adds their results.

    Args:
        part: the file.
        share: its units.
        work: the work.
    """
    done, total = work.count(share[: part.done]), work.count(share)
    if part.done:
        show_line(f"continuing after {done:,} of {total:,} {work.counted}")
    rest = share[part.done :]
    if rest:
        with ImageProgress(work.what, total, done=done, counted=work.counted) as progress:
            for unit, result in zip(rest, work.compute(rest), strict=True):
                part.add(work.encode(result))
                progress.advance(work.count(range(unit, unit + 1)))
    part.finish()


@dataclass(frozen=True)
class WritesPart:
    """Computes one share of a work and writes it to the folder of the parts.

    Attributes:
        out: the output that it makes a part of.
        shard: which part.
        kind: see `kinds`.
    """

    out: Path
    shard: Shard
    kind: Mapping[str, str]

    def results(self, work: Work[Result]) -> Iterator[Result]:
        """Writes the part, or what an earlier start has left of it.

        Raises:
            PartWritten: always, at the end.
            UserError: the folder has parts of another kind, or another process writes this one.
        """
        head = Head(work.name, self.shard.index, self.shard.number, work.number, self.kind)
        folder = folder_of(self.out)
        folder.mkdir(parents=True, exist_ok=True)
        for path, other in _heads(folder):
            # Checked first, so that no hour of work is lost if the merge would refuse the result.
            if other is not None and other.work == work.name and other.index != head.index:
                _check_alike(path, other, head)
        path = folder / f"{work.name}.{head.index}-of-{head.number}"
        with part_files.opened(path, head) as part:
            complete(part, head.share, work)
        raise PartWritten

    def only(self, compute: Callable[[], Any]) -> None:
        """Calls what shares some work, and returns when the part is written."""
        with contextlib.suppress(PartWritten):
            compute()


@dataclass(frozen=True)
class Merges:
    """Reads the parts that the other processes have written.

    Attributes:
        out: the output.
        kind: see `kinds`.
        found: the files of the parts of each work that was looked for.
    """

    out: Path
    kind: Mapping[str, str]
    found: dict[str, list[tuple[Path, Head]]] = field(default_factory=dict)

    def results(self, work: Work[Result]) -> Iterator[Result]:
        """The results of all units, in their order.

        Raises:
            UserError: the parts are not all there, not all complete, or not of one kind.
        """
        if work.name not in self.found:
            self.found[work.name] = self._find(work)
        return (
            work.decode(result)
            for path, head in self.found[work.name]
            for result in part_files.read_results(path, head)
        )

    def _find(self, work: Work[Any]) -> list[tuple[Path, Head]]:
        """The files of the parts, in their order."""
        folder = folder_of(self.out)
        found: dict[int, tuple[Path, Head]] = {}
        numbers: dict[int, Path] = {}
        for path, head in _heads(folder):
            if head is None:
                raise UserError(f"{path} is not a part of shared work; delete it")
            if head.work != work.name:
                continue
            numbers.setdefault(head.number, path)
            if len(numbers) > 1:
                (one, first), (other, second) = numbers.items()
                raise UserError(
                    f"{folder} has parts of {one} shares and of {other}, such as {first.name} "
                    f"and {second.name}; delete one kind"
                )
            if head.index in found:
                raise UserError(
                    f"part {head.shard} is there twice, as {found[head.index][0]} and {path}; "
                    "delete one of them"
                )
            expected = Head(work.name, head.index, head.number, work.number, self.kind)
            _check_alike(path, head, expected)
            found[head.index] = path, head
        if not found:
            raise UserError(
                f"there are no parts in {folder}; the command with --shard=i/n in place of --merge "
                "writes them"
            )
        self._check_complete(folder, found)
        return [found[index] for index in sorted(found)]

    @staticmethod
    def _check_complete(folder: Path, found: Mapping[int, tuple[Path, Head]]) -> None:
        number = next(iter(found.values()))[1].number
        missing = [index for index in range(number) if index not in found]
        if missing:
            which = ", ".join(str(Shard(index, number)) for index in missing[:_MOST_NAMED])
            more = f" and {len(missing) - _MOST_NAMED:,} more" if len(missing) > _MOST_NAMED else ""
            raise UserError(
                f"{folder} lacks the part {which}{more}; the command with "
                f"--shard={Shard(missing[0], number)} in place of --merge writes it"
            )
        for path, head in found.values():
            done = part_files.count(path, head)
            if done < len(head.share):
                raise UserError(
                    f"{path} is not complete: it has {done:,} of {len(head.share):,} batches; the "
                    f"command with --shard={head.shard} in place of --merge continues it"
                )

    def finish(self) -> None:
        """Removes the parts, which are in the output now."""
        shutil.rmtree(folder_of(self.out), ignore_errors=True)


_MOST_NAMED = 5


@dataclass
class Part:
    """What a process has done for a shared work.

    Attributes:
        is_written: whether it has written its part, and not what the command writes.
    """

    is_written: bool = False


@contextlib.contextmanager
def taking_part(share: Share) -> Iterator[Part]:
    """Ends a command that shares its work: prints which part is written, or removes merged parts.

    Raises:
        UserError: another process merges the same parts.
    """
    if isinstance(share, Merges):
        folder = folder_of(share.out)
        lock: AbstractContextManager[None] = contextlib.nullcontext()
        if folder.is_dir():
            lock = folder_lock.held(folder, "another command with --merge", name=_LOCK)
        with lock:
            yield Part()
            share.finish()
        return
    part = Part()
    try:
        yield part
    except PartWritten:
        assert isinstance(share, WritesPart)
        part.is_written = True
        show_line(
            f"part {share.shard} of {share.out} is written; when all {share.shard.number:,} are, "
            f"the command with --merge in place of --shard puts them together"
        )


def _heads(folder: Path) -> list[tuple[Path, Head | None]]:
    """The files in the folder of the parts, and what they are."""
    if not folder.is_dir():
        return []
    # Systems make hidden files, such as .nfs000001 and .DS_Store.
    paths = sorted(
        path for path in folder.iterdir() if path.name != _LOCK and not path.name.startswith(".")
    )
    return [(path, part_files.read_head(path)) for path in paths]


def _check_alike(path: Path, other: Head, head: Head) -> None:
    """Refuses a part that does not fit to one of the same work, whichever of its parts that is."""
    expected = Head(head.work, other.index, head.number, head.units, head.kind)
    if differs := part_files.differing(other, expected):
        raise UserError(
            f"{path} has results of {differs}; delete it, or give the command that wrote it"
        )
