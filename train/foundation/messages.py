"""Messages: names in them, and those of other rooms, which name fields, in the words of flags."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

import absl.logging

from train.foundation.errors import UserError

_NAMED = 3


def in_words(names: Sequence[str], what: str) -> str:
    """The first names in a message, and the number of all names if there are more."""
    text = first_names(names)
    return text if len(names) <= _NAMED else f"{len(names)} {what}: {text}"


def first_names(names: Sequence[str], most: int = _NAMED) -> str:
    """The first names in a message, with dots if there are more."""
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])


@contextlib.contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Has the message of a mistake, and warnings, name flags.

    Args:
        flags: what stands in the place of each part of the message.
    """

    def named(message: str) -> str:
        for field, flag in flags.items():
            message = message.replace(field, flag)
        return message

    def name_in_warning(record: logging.LogRecord) -> bool:
        record.msg, record.args = named(record.getMessage()), ()
        return True

    logger = absl.logging.get_absl_logger()
    logger.addFilter(name_in_warning)
    try:
        yield
    except UserError as error:
        raise type(error)(named(str(error))) from error
    finally:
        logger.removeFilter(name_in_warning)
