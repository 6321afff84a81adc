"""The files of a form, kept in memory.

Packages that read forms look at each letter of each header in Python: for a small image they take
half of the time that decoding it takes. What is taken here is what browsers and curl send.
"""

import re
from collections.abc import Mapping

from train.serving.limits import MOST_EXAMPLES, RefusalError

_FIELD = b"image"
# In bytes: what a boundary has at most by RFC 2046, and the headers of a part.
_LONGEST_BOUNDARY = 70
_MOST_HEADERS = 2**13
_DISPOSITION = re.compile(rb"(?:\A|\r\n)content-disposition:([^\r\n]*)", re.IGNORECASE)
# A name, and a value in quotes, in which a backslash goes with the next character, or without.
_PARAMETER = re.compile(rb';\s*([^\s=;"]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))')


def read_files(content_type: str, body: bytes) -> list[bytes]:
    """The files of the fields called "image", in their order.

    Raises:
        RefusalError: the body is not such a form, or has too many fields.
    """
    boundary = _parameters(content_type.encode("latin-1")).get(b"boundary", b"")
    if not 0 < len(boundary) <= _LONGEST_BOUNDARY:
        raise RefusalError(400, "the Content-Type of a form must have a boundary")
    delimiter = b"\r\n--" + boundary
    # The first delimiter has no line before it.
    if not body.startswith(delimiter[2:]):
        raise RefusalError(400, "the body is not a form: it does not begin with its boundary")
    files: list[bytes] = []
    place = len(delimiter) - 2
    while not body.startswith(b"--", place):
        if len(files) == MOST_EXAMPLES:
            raise RefusalError(413, f"a request has at most {MOST_EXAMPLES} examples")
        start = _check_headers(body, place)
        end = body.find(delimiter, start)
        if end < 0:
            raise RefusalError(400, "the body is not a form: its last boundary is missing")
        files.append(body[start:end])
        place = end + len(delimiter)
    return files


def _check_headers(body: bytes, place: int) -> int:
    """Refuses a part that is not a file called "image"; else where its bytes start.

    Args:
        body: the form.
        place: the end of the boundary before the part.
    """
    # The headers begin and end with a line break; there may be spaces before the first one.
    end = body.find(b"\r\n\r\n", place, place + _MOST_HEADERS)
    first = body.find(b"\r\n", place, end)
    if end < 0 or first < 0 or body[place:first].strip(b" \t"):
        raise RefusalError(400, "the body is not a form: a part has no headers")
    found = _DISPOSITION.search(body, first, end)
    parameters = {} if found is None else _parameters(found[1])
    if parameters.get(b"name") != _FIELD or b"filename" not in parameters:
        raise RefusalError(400, 'each part of a form must be a file of the field "image"')
    return end + 4


def _parameters(header: bytes) -> Mapping[bytes, bytes]:
    """What a header has after its first value, by name."""
    return {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(header)}
