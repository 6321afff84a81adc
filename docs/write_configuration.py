"""Writes the table of all fields of a configuration: `python docs/write_configuration.py`."""

import itertools
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# The program of this checkout comes before an installed one.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from train.configuration import FIELDS_OF, Config
from train.configuration.datasets import DatasetFields
from train.configuration.declaring import NO_DEFAULT, Declared, by_dotted_name, of_group
from train.configuration.groups import LossFields
from train.configuration.parsing import NAMES
from train.training.losses import LOSSES

PAGE = Path(__file__).with_name("configuration.md")
_START = """# The fields of a configuration

A row has the name of a field, its default, what it may be, and its meaning; for a bool, whose
default is True or False, the meaning is what True does. `--config.FIELD=VALUE` changes it. A field
without a default is in the recipe or on the command line. A default of `None` is also an allowed
value. †: the field may change when a run resumes, and no result depends on it. A number without a
range is an integer ≥ 1. Numbers are finite; [0, 1) has 0 and not 1. Below `dataset`, a heading
names the data sets that have its fields.
"""
# The words of messages, and how the page has them.
_SHORT = (
    (r"an integer of at least (\d+)", r"integer ≥ \1"),
    (r"an integer from (\d+) to (\d+)", r"integer in [\1, \2]"),
    (r"a finite number at least (\d+) and less than (\d+)", r"[\1, \2)"),
    (r"a finite number at least (\d+) and at most (\d+)", r"[\1, \2]"),
    (r"a finite number greater than (\d+) and at most (\d+)", r"(\1, \2]"),
    (r"a finite number greater than (\d+) and less than (\d+)", r"(\1, \2)"),
    (r"a finite number at least (\d+)", r"≥ \1"),
    (r"a finite number greater than (\d+)", r"> \1"),
    (r"one of (.*)", r"\1"),
    (r"a non-empty text", "text"),
    (r"the path of a file or a folder", "path"),
    (r"the path of a table", "table"),
    (r"a tuple", "tuple"),
)
# Fields that take very many names. Their words say where the page has these.
_NAMES = ("dataset.name", "model.name", "loss.name")
# What a field or a `k`, and what another parameter of a loss may be, if its row does not say it.
_A_COUNT, _USUAL = "integer ≥ 1", "≥ 0"
_LOSSES = """
## Parameters of losses

A recipe has the parameters of its losses in `loss`. [Tuning](tuning.md) says what they do. `k` is
an integer ≥ 1. A parameter without a range is ≥ 0.

"""


def page() -> str:
    """The page as the declarations say it."""
    fields = by_dotted_name(Config)
    # The fields outside the groups come first.
    groups = sorted(dict.fromkeys(name.rpartition(".")[0] for name in fields), key=bool)
    parts = [_START]
    for group in groups:
        own = {name: one for name, one in fields.items() if name.rpartition(".")[0] == group}
        parts.append(f"\n## {f'`{group}`' if group else 'The run'}\n\n{_rows(own)}")
        if group == "dataset":
            parts += _of_some_data_sets()
    parts.append(_LOSSES)
    parts += _of_losses()
    return "".join(parts)


def _of_some_data_sets() -> Iterable[str]:
    """The rows of the fields of each class of `config.dataset` beyond those of all data sets."""
    kinds = dict.fromkeys(kind for one in FIELDS_OF.values() for kind in reversed(one.mro()))
    for kind in kinds:
        declares = vars(kind).get("__annotations__")
        if declares and DatasetFields in kind.mro()[1:]:
            declared = of_group(kind)
            own = {f"dataset.{name}": declared[name] for name in declares}
            having = [name for name, one in FIELDS_OF.items() if issubclass(one, kind)]
            yield f"\n### {_listed(having)}\n\n{_rows(own)}"


def _of_losses() -> Iterable[str]:
    """The rows of the parameters of losses. Losses with the same parameters share one."""
    in_all = of_group(LossFields)
    having: dict[str, list[str]] = {}
    for name, loss in LOSSES.items():
        told = []
        for one, check in loss.parameters.items():
            allowed = _shortened(check(object()))
            usual = (one, allowed) == ("k", _A_COUNT) or allowed == _USUAL
            if one not in in_all:
                told.append(f"`{one}`" if usual else f"`{one}`: {allowed}")
        having.setdefault("; ".join(told) or "no parameters", []).append(name)
    return (f"- {_listed(names)}: {told}\n" for told, names in having.items())


def _rows(fields: Mapping[str, Declared]) -> str:
    """A row for each field of recipes, or for several that differ only in their names.

    As a list the rows also fit a phone.
    """
    told = {name: _told(name, one) for name, one in fields.items() if one.in_recipes}
    shared = itertools.groupby(told, key=lambda name: told[name][1:])
    return "".join(
        f"- {_listed([name + told[name][0] for name in names])}{said}\n"
        for (said,), names in shared
    )


def _told(name: str, one: Declared) -> tuple[str, str]:
    """The default of a field, and what is said of the field."""
    default = "" if one.default is NO_DEFAULT else f"={one.default}"
    changes = " †" if one.may_change else ""
    if isinstance(one.default, bool) or name in _NAMES:
        return default, f"{changes}: {one.doc}"
    allowed = _shortened(NAMES.get(name, one.check)(object()))
    if one.default is None:
        allowed = allowed.removesuffix(", or None")
    is_told = all(f"`{value}`" in one.doc for value in re.split(", | or ", allowed))
    if allowed == _A_COUNT or is_told:
        return default, f"{changes}: {one.doc}"
    return default, f"{changes}: {allowed}. {one.doc}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shortened(allowed: str | None) -> str:
    """What a field may be, with signs in place of the words of a message."""
    told = f"{allowed}"
    for words, signs in _SHORT:
        if re.match(words, told):
            told = re.sub(f"^{words}", signs, told)
            break
    return re.sub(r"\b1(0{8,})\b", lambda found: f"10^{len(found[1])}", told)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
