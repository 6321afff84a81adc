"""The published effects of the comparison of losses: differences of cells of the thesis."""

import functools
import tomllib
from decimal import Decimal

from tests.reference._studies import EVIDENCE

_TABLES = tomllib.loads((EVIDENCE.parents[1] / "train/papers/tables/published.toml").read_text())


def effect(first: str, second: str, table: str, column: str, other: str = "") -> Decimal:
    """A cell minus another one, with all digits that are printed."""
    columns = _TABLES[table]["columns"]
    cells = [
        _TABLES[table][loss][columns.index(name)]
        for loss, name in ((first, column), (second, other or column))
    ]
    return Decimal(cells[0].split("±")[0]) - Decimal(cells[1].split("±")[0])


@functools.cache
def effects() -> dict[tuple[str, str], list[Decimal]]:
    """The effects by study and contrast."""
    found = tomllib.loads((EVIDENCE / "effects.toml").read_text())["effects"]
    return {
        (study, one["contrast"]): [effect(*one["losses"], *cell) for cell in one["cells"]]
        for one in found
        for study in one["studies"]
    }
