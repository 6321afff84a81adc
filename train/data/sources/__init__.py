"""Where examples come from: folders, tables, features, and data sets by their names."""

import contextlib
from collections.abc import Iterator

from train.foundation.errors import UserError, first_line


@contextlib.contextmanager
def errors_told(before: str, after: str = "") -> Iterator[None]:
    """Makes one line of what a library raises, which can be anything: damaged files are read."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Some errors of `datasets` have the reason as their cause.
        reason = first_line(error.__cause__ or error)
        if isinstance(error, OSError) and error.filename and str(error.filename) in before:
            reason = str(error.strerror)  # Without the path again.
        raise UserError(f"{before}: {reason.removesuffix('.')}{after}") from error
