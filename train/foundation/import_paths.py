"""Objects of any package by their import paths, written `package.module:NAME`."""

import importlib
from collections.abc import Collection
from typing import Any

from topk_jax import _console_imports
from train.foundation import fields
from train.foundation.fields import Field


class ImportPathError(Exception):
    """There is no object at an import path; the message is the reason."""


def load(path: str) -> Any:
    """The object at an import path.

    Args:
        path: `package.module:NAME`.

    Raises:
        ImportPathError: the module cannot be imported, or has no such name.
    """
    module, _, name = path.partition(":")
    _console_imports.name(module)
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # A module is a program: it can raise anything.
        raise ImportPathError(" ".join(str(error).split()) or type(error).__name__) from error


def one_of_or_path(names: Collection[str], kind: type) -> Field:
    """One of a few names, or the import path of an object of a type."""
    by_name = fields.one_of(names)
    allowed = f"the import path of a {kind.__name__}, as package.module:NAME"

    def check(value: Any) -> str | None:
        if not isinstance(value, str) or ":" not in value:
            return by_name(value)
        try:
            found = load(value)
        except ImportPathError as error:
            return f"{allowed} ({error})"
        return None if isinstance(found, kind) else f"{allowed} (it is a {type(found).__name__})"

    return check
