"""The list in the JSON body of a request."""

import json
from typing import Any, NoReturn

from train.serving.limits import MOST_EXAMPLES, RefusalError

# Beside one for each value.
_OTHER_SEPARATORS = 16
# The characters of a key in a message.
_SHOWN = 100


def read_list(body: bytes, name: str, *, most_values: int) -> list[Any]:
    """The list of an object that has only this list.

    Args:
        body: the text of the object.
        name: the name of the list.
        most_values: how many values a request can have. A body with more separators is refused
            before it is read: as objects of Python, its values would need many times its bytes.

    Raises:
        RefusalError: it is something else, or too long.
    """
    values = sum(body.count(one) for one in (b",", b"[", b"{"))
    if values > most_values + _OTHER_SEPARATORS:
        raise RefusalError(413, f"the body has more than the values of {MOST_EXAMPLES} examples")
    try:
        value = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RefusalError(400, f"the body is not JSON: {_first_line(error)}") from error
    if not isinstance(value, dict) or list(value) != [name] or not isinstance(value[name], list):
        others = [key for key in value if key != name] if isinstance(value, dict) else []
        # As in JSON, without what a log or a terminal would obey.
        but = f"; it has the key {json.dumps(others[0][:_SHOWN])}" if others else ""
        raise RefusalError(
            400,
            f'the body must be an object with a list and nothing else: {{"{name}": [...]}}{but}',
        )
    examples = value[name]
    if len(examples) > MOST_EXAMPLES:
        raise RefusalError(413, f"a request has at most {MOST_EXAMPLES} examples")
    return examples


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it has {constant}")


def _first_line(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
