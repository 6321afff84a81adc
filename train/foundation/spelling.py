"""How messages spell the fields of the configuration: as the user of this process gives them.

That is config.FIELD, or a flag of a command whose flags are fields. The command declares which flag
stands for which field, and the messages of all rooms, errors and warnings, then name the flags.
"""

import contextlib
from collections.abc import Iterator, Mapping

# The flags by their fields. This is not a context variable, because threads that read images have
# messages, too. Processes that read images belong to a training run, whose user gives fields.
_flags: Mapping[str, str] = {}


def spell(given: str) -> str:
    """A field with its dots, or FIELD=VALUE, as the user gives it.

    Examples:
        >>> spell("config.dataset.nested=True")
        'config.dataset.nested=True'
        >>> with flags_for_fields({"config.dataset.nested": "--nested"}):
        ...     spell("config.dataset.nested=True")
        '--nested'
    """
    field, is_given, value = given.partition("=")
    flag = _flags.get(field)
    if flag is None:
        return given
    return flag if value == "True" else f"{flag}{is_given}{value}"


@contextlib.contextmanager
def flags_for_fields(flags: Mapping[str, str]) -> Iterator[None]:
    """Has messages name flags.

    Args:
        flags: the flag by the field that it stands for.
    """
    global _flags  # noqa: PLW0603
    before, _flags = _flags, {**_flags, **flags}
    try:
        yield
    finally:
        _flags = before
