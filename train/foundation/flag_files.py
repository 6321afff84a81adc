"""absl's own --flagfile, which no command takes.

absl reads such a file without a look at what it is, which may be a pipe or a device without an end.
ml_collections has it read while the flag for the configuration is defined.
"""

from collections.abc import Sequence

_NAME = "flagfile"


def is_flag_file(argument: str) -> bool:
    """Whether absl would read a file of flags for an argument."""
    return argument.startswith("-") and argument.lstrip("-").partition("=")[0] == _NAME


def without(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that name files of flags."""
    return [argument for argument in arguments if not is_flag_file(argument)]
