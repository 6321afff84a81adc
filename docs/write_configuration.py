"""Writes the table of all fields of a configuration: `python docs/write_configuration.py`."""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# The program of this checkout comes before an installed one.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from train.configuration import FIELDS_OF, Config
from train.configuration.datasets import DatasetFields
from train.configuration.declaring import NO_DEFAULT, Declared, by_dotted_name, of_group
from train.configuration.parsing import NAMES
from train.training.losses import LOSSES

PAGE = Path(__file__).with_name("configuration.md")
_START = """# The fields of a configuration

`--config.FIELD=VALUE` changes a field of a recipe. A row has the name, the default, what the field
may be, and its meaning. A field without a default is in the recipe or on the command line. A field
whose default is `None` may be `None`. The meaning of a bool is what True does. †: the field may
change when a run resumes, and no result depends on it. Numbers are finite; [0, 1) has 0 and not 1.
`python docs/write_configuration.py` writes this page.
"""
# The words of messages, and how the page has them.
_SHORT = (
    (r"a whole number of at least (\d+)", r"integer ≥ \1"),
    (r"a whole number from (\d+) to (\d+)", r"integer in [\1, \2]"),
    (r"a finite number at least (\d+) and less than (\d+)", r"[\1, \2)"),
    (r"a finite number at least (\d+) and at most (\d+)", r"[\1, \2]"),
    (r"a finite number greater than (\d+) and at most (\d+)", r"(\1, \2]"),
    (r"a finite number greater than (\d+) and less than (\d+)", r"(\1, \2)"),
    (r"a finite number at least (\d+)", r"≥ \1"),
    (r"a finite number greater than (\d+)", r"> \1"),
    (r"one of (.*)", r"\1"),
    (r"a text that is not empty", "text"),
    (r"the path of a file or a folder", "path"),
    (r"the path of a table", "table"),
    (r"True or False", "bool"),
    (r"a tuple", "tuple"),
)
# Fields whose names are in a list of this page or of another one.
_LISTED = {
    "model.name": "a network",
    "loss.name": "a loss of [the last list](#parameters-of-losses)",
}
_LOSSES = """
## Parameters of losses

A recipe has the parameters of its losses in `loss`. [Tuning](tuning.md) says what they do. A `k`
without a range is an integer ≥ 1.

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
    for name, loss in LOSSES.items():
        told = {one: _shortened(check(object())) for one, check in loss.parameters.items()}
        listed = "; ".join(
            "`k`" if (one, allowed) == ("k", "integer ≥ 1") else f"`{one}`: {allowed}"
            for one, allowed in told.items()
        )
        parts.append(f"- `{name}`{': ' if listed else ''}{listed}\n")
    return "".join(parts)


def _of_some_data_sets() -> Iterable[str]:
    """The rows of the fields of each class of `config.dataset` beyond those of all data sets."""
    kinds = dict.fromkeys(kind for one in FIELDS_OF.values() for kind in reversed(one.mro()))
    for kind in kinds:
        if DatasetFields in kind.mro()[1:]:
            declared = of_group(kind)
            own = {f"dataset.{name}": declared[name] for name in vars(kind)["__annotations__"]}
            having = ", ".join(
                f"`{name}`" for name, one in FIELDS_OF.items() if issubclass(one, kind)
            )
            yield f"\n### `dataset` of {having}\n\n{_rows(own)}"


def _rows(fields: Mapping[str, Declared]) -> str:
    """A row for each field of recipes. As a list the rows also fit a phone."""
    rows = []
    for name, one in fields.items():
        if one.in_recipes:
            default = "" if one.default is NO_DEFAULT else f"={one.default}"
            told = _LISTED.get(name) or NAMES.get(name, one.check)(object())
            allowed = _shortened(told)
            if one.default is None:
                allowed = allowed.removesuffix(", or None")
            changes = " †" if one.may_change else ""
            rows.append(f"- `{name}{default}`{changes}: {allowed}. {one.doc}\n")
    return "".join(rows)


def _shortened(allowed: str | None) -> str:
    """What a field may be, with signs in place of the words of a message."""
    for words, signs in _SHORT:
        if re.match(words, f"{allowed}"):
            return re.sub(f"^{words}", signs, f"{allowed}")
    return f"{allowed}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
