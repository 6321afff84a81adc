"""Opens untrusted zip files, and refuses those that unpack to far more than their size.

The list of members at the end of a zip file may point at any bytes. Members that overlap, or that
are the same bytes under many names, make gigabytes of some megabytes. Python before 3.11.8 and
3.12.2 reads them.
"""

import errno
import zipfile
from pathlib import Path
from typing import IO

from train.foundation.errors import first_line
from train.foundation.files import open_regular

# A member's header has this many bytes, without the name.
_LOCAL_HEADER = 30
# A member that unpacks to more bytes is refused, unless it has a part of them packed. Labels of
# millions of examples are smaller, and features are not packed that well.
_MOST_BYTES = 2**30
_MOST_RATIO = 200


def opened(file: Path | IO[bytes]) -> zipfile.ZipFile:
    """Opens a zip file to read it.

    Raises:
        zipfile.BadZipFile: it is not a zip file, or its members overlap; the message has one line.
        OSError: it cannot be read.
    """
    if isinstance(file, Path):
        open_regular(file).close()
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        raise
    except Exception as error:  # A damaged list of members can make it raise anything.
        # The system refuses an offset before the start of the file.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise zipfile.BadZipFile(first_line(error)) from error
    try:
        _check(archive)
    except BaseException:
        archive.close()
        raise
    return archive


def _check(archive: zipfile.ZipFile) -> None:
    end = archive.start_dir
    for member in sorted(archive.infolist(), key=lambda one: one.header_offset, reverse=True):
        # A lower bound: only the member's own header has the length of what follows its name.
        length = _LOCAL_HEADER + len(member.orig_filename) + member.compress_size
        if member.header_offset < 0 or member.header_offset + length > end:
            raise zipfile.BadZipFile(f"{member.filename!r} in it overlaps another of its files")
        end = member.header_offset
        if member.file_size > max(_MOST_BYTES, _MOST_RATIO * member.compress_size):
            raise zipfile.BadZipFile(
                f"{member.filename!r} in it has {member.compress_size:,} bytes, and claims to "
                f"unpack to {member.file_size:,}"
            )
