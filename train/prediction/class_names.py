"""The file of --class_names or --classes, with a name of a class a line."""

from dataclasses import dataclass

from train.foundation import files
from train.foundation.errors import UserError


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
        # Editors on Windows write a byte order mark and other line ends.
        with files.open_bounded(path, files.MOST_CLASSES_BYTES) as file:
            text = file.read().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise UserError(f"--{flag} {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--{flag} {path} is not in UTF-8: {error}") from error
    # Not splitlines, which splits at further characters.
    names = tuple(name.strip() for name in text.removesuffix("\n").split("\n"))
    if "" in names:
        raise UserError(
            f"--{flag} must have a name on each line; line {names.index('') + 1} of {path} is blank"
        )
    return GivenNames(flag, path, names)
