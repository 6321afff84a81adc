"""Objects by a name of ours, or by the import path of another package's: `package.module:NAME`."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from train.foundation import kinds
from train.foundation.errors import UserError

_Entry = TypeVar("_Entry")


def find_here() -> None:
    """Has imports look into the current folder, too, after all others: the user names a module."""
    if (here := os.path.realpath("")) not in sys.path:
        sys.path.append(here)


def find(field: str, name: Any, entries: Mapping[str, Any], kind: type[_Entry]) -> _Entry:
    """The entry of a name, or the object at an import path.

    Args:
        field: what gives the name, for messages.
        name: the name, or `package.module:NAME`.
        entries: by name: the entry itself, or its import path.
        kind: the type of the entries.

    Raises:
        UserError: there is no such entry, or nothing of the type at the path.
    """
    found = entries.get(name, name) if isinstance(name, str) else None
    if isinstance(found, kind):
        return found
    if not isinstance(found, str) or ":" not in found:
        raise UserError(
            field=field, must_be=kinds.describe(kinds.one_of(entries), str(name)), got=name
        )
    allowed = f"the import path of a {kind.__name__}, as package.module:NAME"
    module, _, attribute = found.partition(":")
    find_here()
    try:
        imported = getattr(importlib.import_module(module), attribute)
        if not isinstance(imported, kind):
            raise TypeError(f"it is a {type(imported).__name__}")
    except (Exception, SystemExit) as error:  # A module is a program: it can raise anything.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(field=field, must_be=f"{allowed} ({reason})", got=name) from error
    return imported
