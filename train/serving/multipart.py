"""The files of a form, kept in memory: Starlette's own reader writes large ones to the disk."""

import logging

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from train.serving.limits import MOST_EXAMPLES, RefusalError

_FIELD = b"image"


def log_nothing() -> None:
    """Has the parser log nothing, in this process: a response has the reason of a refusal."""
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


def read_files(content_type: str, body: bytes) -> list[bytes]:
    """The files of the fields called "image", in their order.

    Raises:
        RefusalError: the body is not such a form, or has too many fields.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise RefusalError(400, "the Content-Type of a form must have a boundary")
    form = _Form()
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": form.begin,
                "on_header_field": form.add_to_header,
                "on_header_value": form.add_to_value,
                "on_header_end": form.end_header,
                "on_headers_finished": form.check,
                "on_part_data": form.add_to_file,
                "on_end": form.end,
            },
        )
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise RefusalError(400, f"the body is not a form: {error}") from error
    if not form.is_complete:
        raise RefusalError(400, "the body is not a form: its last boundary is missing")
    return [bytes(file) for file in form.files]


class _Form:
    """The parts of a form as the parser finds them."""

    def __init__(self) -> None:
        self.files: list[bytearray] = []
        self.is_complete = False
        self._disposition = b""
        self._name = b""
        self._value = b""

    def begin(self) -> None:
        """A part starts."""
        if len(self.files) == MOST_EXAMPLES:
            raise RefusalError(413, f"a request has at most {MOST_EXAMPLES} examples")
        self.files.append(bytearray())
        self._disposition = b""

    def add_to_header(self, data: bytes, start: int, end: int) -> None:
        """A piece of the name of a header; the parser limits its length."""
        self._name += data[start:end]

    def add_to_value(self, data: bytes, start: int, end: int) -> None:
        """A piece of its value."""
        self._value += data[start:end]

    def end_header(self) -> None:
        """A header is complete."""
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def check(self) -> None:
        """Refuses a part that is not a file called "image"."""
        _, options = parse_options_header(self._disposition)
        if options.get(b"name") != _FIELD or b"filename" not in options:
            raise RefusalError(400, 'each part of a form must be a file of the field "image"')

    def add_to_file(self, data: bytes, start: int, end: int) -> None:
        """A piece of the file."""
        self.files[-1] += data[start:end]

    def end(self) -> None:
        """The last boundary."""
        self.is_complete = True
