"""The file of --classes, with one class name per line."""

import re
import unicodedata

from train.foundation import files, text_files
from train.foundation.errors import UserError
from train.foundation.names import is_visible


def read(path: str, number: int | None = None) -> tuple[str, ...]:
    """The names in a file, one a line.

    Args:
        path: the file.
        number: how many there must be; None for any number.

    Raises:
        UserError: the file cannot be read, a line of it is blank, or it has another number.
    """
    try:
        with files.open_bounded(path, files.MOST_CLASSES_BYTES) as file:
            text = text_files.decoded(file.readall())
    except OSError as error:
        raise UserError(f"--classes {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"--classes {path} is not in UTF-8, or in the encoding of its byte order mark: {error}"
        ) from error
    # Not splitlines, which splits at further characters. Editors on Windows write other line ends.
    names = [line.strip() for line in re.split("\r\n?|\n", text.rstrip())]
    are_visible = list(map(is_visible, names))
    if not all(are_visible):
        line = are_visible.index(False) + 1
        raise UserError(f"--classes must have a name on each line; line {line} of {path} is blank")
    if number not in (None, len(names)):
        raise UserError(
            f"--classes must have a line for each of the {number} classes; {path} has {len(names)}"
        )
    return tuple(unicodedata.normalize("NFC", name) for name in names)
