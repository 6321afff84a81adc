"""The file of --class_names or --classes, with one class name per line."""

import re
import unicodedata
from dataclasses import dataclass

from train.foundation import files, text_files
from train.foundation.errors import UserError
from train.foundation.names import is_visible


@dataclass(frozen=True)
class GivenNames:
    """The names in a file.

    Attributes:
        flag: the flag that names the file.
        file: the file.
        names: one for each line.
    """

    flag: str
    file: str
    names: tuple[str, ...]

    def check_number(self, num_classes: int) -> None:
        """Raises `UserError` unless there is a name for each class."""
        if len(self.names) != num_classes:
            raise UserError(
                f"--{self.flag} must have a line for each of the {num_classes} classes; "
                f"{self.file} has {len(self.names)}"
            )


def read(flag: str, path: str) -> GivenNames:
    """The names in the file of a flag, one a line.

    Raises:
        UserError: the file cannot be read, or a line of it is blank.
    """
    try:
        with files.open_bounded(path, files.MOST_CLASSES_BYTES) as file:
            text = text_files.decoded(file.readall())
    except OSError as error:
        raise UserError(f"--{flag} {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"--{flag} {path} is not in UTF-8, or in the encoding of its byte order mark: {error}"
        ) from error
    # Not splitlines, which splits at further characters. Editors on Windows write other line ends.
    names = [line.strip() for line in re.split("\r\n?|\n", text.rstrip())]
    are_visible = list(map(is_visible, names))
    if not all(are_visible):
        line = are_visible.index(False) + 1
        raise UserError(f"--{flag} must have a name on each line; line {line} of {path} is blank")
    names = [unicodedata.normalize("NFC", name) for name in names]
    return GivenNames(flag, path, tuple(names))
