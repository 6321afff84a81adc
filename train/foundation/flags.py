"""The flags of commands: the configuration, and which flags go together.

A row of a command names flags, or NAME=VALUE for a flag with that value; one function checks all.
"""

import ast
import difflib
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from train.foundation import import_paths, kinds
from train.foundation.errors import UserError, first_line
from train.foundation.names import existing
from train.foundation.nested import flatten

# Beside the program, both in a checkout and in an installation.
_RECIPES = Path(__file__).parents[2] / "configs"
# The flag that has all --config.FIELD=VALUE.
_FIELDS = "config."
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

# --help then lists the flags under the command.
flags.disclaim_key_flags()

Given = Mapping[str, Any]


def define_configuration(help_text: str) -> Callable[[], dict[str, Any]]:
    """Defines --config, a recipe or a Python file with get_config(), and --config.FIELD=VALUE.

    Returns:
        A function that returns the nested configuration after the flags are parsed. It raises
        `UserError` if --config is not given, or does not give a configuration with these fields.
    """
    recipe = flags.DEFINE_string("config", None, help_text)
    of_fields = "A field of the configuration, as --config.num_epochs=5."
    changes = flags.DEFINE_multi_string(_FIELDS, [], of_fields)

    def configuration() -> dict[str, Any]:
        if recipe.value is None:
            raise UserError("--config is needed, for example --config=digits")
        return read_configuration(recipe.value, changes.value)

    return configuration


def plain(argument: str) -> str:
    """An argument of the command line as the flags take it.

    The home folder is in the place of ~, which a shell puts only at the start of a word. A field of
    the configuration keeps its ~, because it is saved and may be read on another machine.

    Raises:
        UserError: it has an address: as a path it would be a folder `gs:` here.
    """
    name, is_given, value = argument.partition("=")
    if re.search(r"\w\w://", value):
        but = f"{value} is an address: mount the bucket, or download it, and give its path"
        raise UserError(field=name, must_be="a path in a file system", but=but)
    if name.startswith("--config."):
        return f"--{_FIELDS}={argument.removeprefix('--config.')}"
    return f"{name}={Path(value).expanduser()}" if is_given and value.startswith("~/") else argument


def read_configuration(argument: str, changes: Iterable[str] = ()) -> dict[str, Any]:
    """The nested configuration of a recipe or a file, with changed fields.

    Args:
        argument: RECIPE or FILE, or RECIPE:WORD, as --config takes it; get_config() gets the word.
        changes: fields and their values, as "optimizer.learning_rate=0.1".

    Raises:
        UserError: there is no such configuration, or it has no such field.
    """
    name, *words = argument.split(":", 1)
    file = _recipe(name) if name.isidentifier() else Path(name)
    import_paths.find_here()  # For what a recipe of the user imports.
    if not file.is_file():
        but = f"there is no file {file}"
        raise UserError(field="--config", must_be="a recipe, or a file with get_config()", but=but)
    try:
        config = _load(file).get_config(*words)
        found: dict[str, Any] = json.loads(config.to_json())
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # A recipe is a program: it can raise anything.
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        where = f" in line {lines[-1]}" if lines else ""
        reason = f"{type(error).__name__}{where}: {first_line(error)}"
        raise UserError(f"--config={argument} gives no configuration: {reason}") from error
    for change in changes:
        _change(config, found, change)
    return found


def path_of(flag: flags.FlagHolder[str | None]) -> Path | None:
    """The path that a flag gives; None if it is not given."""
    return None if flag.value is None else Path(flag.value)


def _change(config: ConfigDict, found: dict[str, Any], change: str) -> None:
    """Changes a field in the nested values; its type is that of the recipe's value."""
    name, is_given, text = change.partition("=")
    *groups, last = name.split(".")
    known = [one for one, _ in flatten(config.to_dict())]
    if name not in known:
        # Fields of several groups have one name: first the name, then the group.
        lasts = [one.rpartition(".")[2] for one in known]
        near = difflib.get_close_matches(last, lasts, n=1, cutoff=0.75)
        alike = [one for one, word in zip(known, lasts, strict=True) if word in near]
        nearest = difflib.get_close_matches(name, alike, n=1, cutoff=0)
        hint = f"did you mean 'config.{nearest[0]}'?" if nearest else ""
        inside = [one for one in known if one.startswith(f"{name}.")]
        beside = [one for one in known if one.rpartition(".")[0] == ".".join(groups)]
        hint = hint or f"there are {', '.join(inside or beside or known)}"
        raise UserError(f"the configuration has no field config.{name}; {hint}")
    place: Any = config
    for group in groups:
        place, found = place[group], found[group]
    kind = place.get_type(last)
    # As with any flag, a switch without a value is on.
    text = "true" if kind is bool and not is_given else text
    found[last] = None if text == "None" else _value(text, kind)


def _value(text: str, kind: type) -> Any:
    """A value as JSON has it; a text of another kind stays one, and is refused by `parse`."""
    try:
        if kind in (tuple, list):
            return _tuple(text)
        return _TRUTHS[text.lower()] if kind is bool else kind(text)
    except Exception:  # Python's own parser raises several.
        return text


def _tuple(text: str) -> list[Any]:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text.split(",")  # Texts need no quotes.
    return [*value] if isinstance(value, tuple | list) else [value]


def _recipe(name: str) -> Path:
    """The file of a recipe of the program."""
    recipes = {
        file.stem: file
        for file in _RECIPES.glob("*.py")
        # Files without this function have what the recipes share.
        if "def get_config(" in file.read_text(encoding="utf-8")
    }
    if wrong := kinds.wrong(name, kinds.one_of(recipes)):
        must_be = f"the name of a recipe, {wrong}, or a file, as ./{name}"
        raise UserError(field="--config", must_be=must_be, got=name)
    return recipes[name]


def _load(file: Path) -> ModuleType:
    """Runs a Python file as a module; the file may have any suffix."""
    module = ModuleType(str(file))
    module.__file__ = str(file)
    # Dataclasses, for example, look up their module by its name.
    sys.modules[module.__name__] = module
    SourceFileLoader(module.__name__, str(file)).exec_module(module)
    return module


@dataclass(frozen=True)
class Needed:
    """One of some flags is needed; `what` says what they give."""

    names: tuple[str, ...]
    what: str

    def check(self, given: Given) -> None:
        """Raises `UserError` if none is given."""
        if not any(_is_given(name, given) for name in self.names):
            one_of = "" if len(self.names) == 1 else "one of "
            raise UserError(f"{one_of}{_listed(self.names, 'and')} is needed: {self.what}")


@dataclass(frozen=True)
class Flag:
    """What holds if a flag is given.

    Attributes:
        name: the flag.
        may_be: the kind of its values; see `kinds`.
        exists: whether its value is the path of what exists.
        needs: flags, one of which is given, too.
        excludes: flags that are not given.
        because: why it needs or excludes them.
    """

    name: str
    may_be: Any = None
    exists: bool = False
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    because: str = ""

    def check(self, given: Given) -> None:
        """Raises `UserError` if it does not hold."""
        if not _is_given(self.name, given):
            return
        why = f": {self.because}" if self.because else ""
        if self.needs and not any(_is_given(name, given) for name in self.needs):
            raise UserError(f"--{self.name} needs {_listed(self.needs, 'or')}{why}")
        for other in self.excludes:
            if _is_given(other, given):
                raise UserError(f"--{self.name} cannot be given with --{other}{why}")
        value = given[self.name.partition("=")[0]]
        if self.may_be is not None and (wrong := kinds.wrong(value, self.may_be)):
            raise UserError(field=f"--{self.name}", must_be=wrong, got=value)
        if self.exists and not existing(Path(value)).exists():
            must_be, but = "a path that exists", f"there is no {value}"
            raise UserError(field=f"--{self.name}", must_be=must_be, but=but)


Row = Needed | Flag


def declare(*rows: Row) -> tuple[Row, ...]:
    """The rows of a command, whose flags are defined: --help has the flags that a flag needs."""
    for row in rows:
        if isinstance(row, Flag) and row.needs and row.name in flags.FLAGS:
            flag = flags.FLAGS[row.name]
            flag.help = f"With {_listed(row.needs, 'or')}: {flag.help}"
    return rows


def check(rows: Iterable[Row], given: Given | None = None) -> None:
    """Raises `UserError` for the first row that does not hold.

    Args:
        rows: see `declare`.
        given: the values of the flags that are given, by their names; None for the command line.
    """
    if given is None:
        every = ((name, flags.FLAGS[name]) for name in flags.FLAGS)
        given = {
            name: flag.value
            for name, flag in every
            if flag.value not in (None, []) and not (flag.value is False is flag.default)
        }
    for row in rows:
        row.check(given)


def _is_given(name: str, given: Given) -> bool:
    name, has_value, value = name.partition("=")
    return name in given and (not has_value or str(given[name]) == value)


def _listed(names: Sequence[str], word: str) -> str:
    *first, last = (f"--{name}" for name in names)
    return f"{', '.join(first)} {word} {last}" if first else last
