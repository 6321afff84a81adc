"""Messages of other rooms, which name fields of a configuration, in the words of the flags."""

import contextlib
from collections.abc import Iterator, Mapping

from train.foundation.errors import UserError


@contextlib.contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Has the message of a mistake name flags.

    Args:
        flags: what stands in the place of each part of the message.
    """
    try:
        yield
    except UserError as error:
        message = str(error)
        for field, flag in flags.items():
            message = message.replace(field, flag)
        raise type(error)(message) from error
