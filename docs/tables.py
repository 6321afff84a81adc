"""The tables of the pages that come from the program: the build puts each at its mark."""

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from train.configuration import FIELDS_OF, Config
from train.configuration.datasets import DatasetFields
from train.configuration.declaring import NO_DEFAULT, Declared, by_dotted_name, of_group
from train.configuration.groups import LossFields
from train.foundation import kinds
from train.models import MODELS
from train.models.model_spec import NORMALIZATIONS
from train.training.losses import LOSSES

# What a row does not say.
_USUAL = tuple(map(kinds.describe, (bool, kinds.COUNT, kinds.TEXT)))


def fields() -> str:
    """Every field of a configuration: a list for each group."""
    every = dict(sorted(by_dotted_name(Config).items(), key=lambda named: "." in named[0]))
    parts = []
    for group, names in itertools.groupby(every, lambda name: name.rpartition(".")[0]):
        heading = f"`{group}`" if group else "The run"
        parts.append(f"## {heading}\n\n{_rows({name: every[name] for name in names})}\n")
        if group == "dataset":
            parts += _of_some_data_sets()
    # Their links are as from docs/; the page is a folder below.
    return re.sub(r"\]\((?!#)", "](../", "".join(parts))


def losses() -> str:
    """The parameters of the losses. Losses with the same parameters share a row."""
    return "".join(_of_losses())


def networks() -> str:
    """The networks that start from published weights: a row for each kind of image."""
    colours = {values: name for name, values in NORMALIZATIONS.items()}
    of_kind: dict[tuple[int, str], list[str]] = {}
    for name, spec in MODELS.items():
        if spec.num_parameters is not None:
            kind = (spec.image_size, colours[spec.normalization])
            millions = spec.num_parameters / 1e6
            of_kind.setdefault(kind, []).append(f"`{name}` {millions:.3g}")
    rows = (
        f"| {size} | `{normalization}` | {', '.join(names)} |\n"
        for (size, normalization), names in of_kind.items()
    )
    head = "| image size | normalization | `model.name`, with millions of parameters |\n"
    return f"{head}|---|---|---|\n{''.join(rows)}"


def _of_some_data_sets() -> Iterable[str]:
    """The rows of the fields of each class of `config.dataset` beyond those of all data sets."""
    classes = dict.fromkeys(one for fields in FIELDS_OF.values() for one in reversed(fields.mro()))
    for one in classes:
        declares = vars(one).get("__annotations__")
        if declares and DatasetFields in one.mro()[1:]:
            own = {f"dataset.{name}": of_group(one)[name] for name in declares}
            having = [name for name, fields in FIELDS_OF.items() if issubclass(fields, one)]
            yield f"### {_listed(having)}\n\n{_rows(own)}\n"


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


TABLES = {"fields": fields, "losses": losses, "networks": networks}
