"""Writes the table of all fields of a configuration: `python docs/write_configuration.py`."""

import itertools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# The program of this checkout comes before an installed one.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from train.configuration import FIELDS_OF, Config
from train.configuration.datasets import DatasetFields
from train.configuration.declaring import NO_DEFAULT, Declared, by_dotted_name, of_group
from train.configuration.groups import LossFields
from train.foundation import kinds
from train.training.losses import LOSSES

PAGE = Path(__file__).with_name("configuration.md")
_START = """# The fields of a configuration

A row has the name of a field, its default, what it may be, and its meaning; for a bool, whose
default is True or False, the meaning is what True does. `--config.FIELD=VALUE` changes it. A field
without a default is in the recipe or on the command line. A default of `None` is also an allowed
value. †: the field may change when a run resumes, and no result depends on it. A number without a
range is an integer of at least 1. Below `dataset`, a heading names the data sets that have its
fields.
"""
# What a row does not say.
_USUAL = tuple(map(kinds.describe, (bool, kinds.COUNT, kinds.TEXT)))
_LOSSES = """
## Parameters of losses

A recipe has the parameters of its losses in `loss`. [Tuning](tuning.md) says what they do. `k` is
an integer of at least 1. A parameter without a range is a number of at least 0.

"""


def page() -> str:
    """The page as the declarations say it."""
    fields = dict(sorted(by_dotted_name(Config).items(), key=lambda named: "." in named[0]))
    parts = [_START]
    for group, names in itertools.groupby(fields, lambda name: name.rpartition(".")[0]):
        heading = f"`{group}`" if group else "The run"
        parts.append(f"\n## {heading}\n\n{_rows({name: fields[name] for name in names})}")
        if group == "dataset":
            parts += _of_some_data_sets()
    return "".join([*parts, _LOSSES, *_of_losses()])


def _of_some_data_sets() -> Iterable[str]:
    """The rows of the fields of each class of `config.dataset` beyond those of all data sets."""
    classes = dict.fromkeys(one for fields in FIELDS_OF.values() for one in reversed(fields.mro()))
    for one in classes:
        declares = vars(one).get("__annotations__")
        if declares and DatasetFields in one.mro()[1:]:
            own = {f"dataset.{name}": of_group(one)[name] for name in declares}
            having = [name for name, fields in FIELDS_OF.items() if issubclass(fields, one)]
            yield f"\n### {_listed(having)}\n\n{_rows(own)}"


def _of_losses() -> Iterable[str]:
    """The rows of the parameters of losses. Losses with the same parameters share one."""
    having: dict[str, list[str]] = {}
    for loss, spec in LOSSES.items():
        own = {
            name: kind for name, kind in spec.parameters.items() if name not in of_group(LossFields)
        }
        told = "; ".join(_told_parameter(name, kind) for name, kind in own.items())
        having.setdefault(told or "no parameters", []).append(loss)
    return (f"- {_listed(names)}: {told}\n" for told, names in having.items())


def _told_parameter(name: str, kind: Any) -> str:
    is_usual = kind == kinds.NOT_NEGATIVE or name == "k"
    return f"`{name}`" if is_usual else f"`{name}`: {kinds.describe(kind)}"


def _rows(fields: Mapping[str, Declared]) -> str:
    """A row for each field, or for several that differ only in their names.

    As a list the rows also fit a phone.
    """
    shared = itertools.groupby(fields, key=lambda name: _told(fields[name]))
    return "".join(
        f"- {_listed(name + _default(fields[name]) for name in names)}{told}\n"
        for told, names in shared
    )


def _default(one: Declared) -> str:
    return "" if one.default is NO_DEFAULT else f"={one.default}"


def _told(one: Declared) -> str:
    allowed = kinds.describe(one.kind).removesuffix(", or None")
    names = allowed.removeprefix("one of ").split(", ")
    is_told = allowed in _USUAL or all(f"`{name}`" in one.doc for name in names)
    return f"{' †' if one.may_change else ''}: {'' if is_told else f'{allowed}. '}{one.doc}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
