"""The sources from which images are prepared: a zip archive, or a folder."""

import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from train.foundation import files, zip_files
from train.foundation.errors import UserError


def absent(names: Sequence[str], manual_dir: Path, remedies: Sequence[str]) -> UserError:
    """The error of missing files, with what to do about them."""
    if not manual_dir.exists():
        state = "does not exist, and should have"
    elif not manual_dir.is_dir():
        state = "is a file, and should be a folder with"
    else:
        state = "does not have"
    return UserError(
        f"--manual_dir={manual_dir} {state} {' and '.join(names)}: {'; '.join(remedies)}"
    )


class Source(Protocol):
    """Files by their paths, written with slashes; several threads read them at once."""

    def read(self, path: str) -> bytes:
        """The content of a file."""
        ...

    def where(self, path: str) -> str:
        """The name of the file in messages."""
        ...

    def size(self, path: str) -> int:
        """The size of the file in bytes; 0 if it is not known before the file is read."""
        ...

    def fingerprint(self, path: str) -> str:
        """A string that changes with the content of the file."""
        ...


class ZipSource:
    """The members of a zip archive, read one by one and never unpacked.

    Each member is compared with its checksum in the archive, so that damaged images are found
    without another pass over the archive.

    Args:
        archive: the zip file.
        hint: what to do about a damaged one.
    """

    def __init__(self, archive: Path, *, hint: str) -> None:
        self._archive = archive
        self._hint = hint
        try:
            self._zip = zip_files.opened(archive)
        except zipfile.BadZipFile as error:
            # The list of members is at the end: a download that broke off does not have it.
            raise UserError(f"{archive} is not a complete zip archive ({error}); {hint}") from error

    def paths(self) -> Iterator[str]:
        """The members in the archive's order; folders among them end with a slash."""
        return (member.filename for member in self._zip.infolist())

    def read(self, path: str) -> bytes:
        """The content of a member."""
        if self.size(path) > files.MOST_IMAGE_BYTES:
            raise UserError(
                f"{self.where(path)} has {self.size(path):,} bytes, and more than "
                f"{files.MOST_IMAGE_BYTES // 2**20} MiB are not read; {self._hint}"
            )
        try:
            return self._zip.read(path)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            checksum = self._zip.getinfo(path).CRC
            raise UserError(
                f"{self.where(path)} is damaged: its content has not the checksum that the archive "
                f"gives, CRC-32 {checksum:08x}; {self._hint}"
            ) from error

    def where(self, path: str) -> str:
        """The archive and the member."""
        return f"{path} in {self._archive}"

    def size(self, path: str) -> int:
        """The size of the unpacked member in bytes."""
        return self._zip.getinfo(path).file_size

    def fingerprint(self, path: str) -> str:
        """The member's checksum and size."""
        member = self._zip.getinfo(path)
        return f"{member.CRC:08x} {member.file_size}"


class FolderSource:
    """The files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        return (self._folder / path).is_file()

    def paths(self) -> Iterator[str]:
        """The files and folders below; folders end with a slash."""
        for folder, folders, names in os.walk(self._folder, followlinks=True):
            relative = Path(folder).relative_to(self._folder)
            yield from (f"{(relative / name).as_posix()}/" for name in folders)
            yield from ((relative / name).as_posix() for name in names)

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return files.read_bounded(self._folder / path)

    def where(self, path: str) -> str:
        """The complete path."""
        return str(self._folder / path)

    def size(self, path: str) -> int:
        """The size of the file in bytes."""
        return (self._folder / path).stat().st_size

    def fingerprint(self, path: str) -> str:
        """The file's size and time of change."""
        status = (self._folder / path).stat()
        return f"{status.st_size} {status.st_mtime_ns}"
