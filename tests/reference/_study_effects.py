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


def combination(cells: list[str]) -> Decimal:
    """A cell minus another one; of four, the same less the difference of the last two."""
    found = [_named(*cell.split()) for cell in cells]
    if len(found) == 4:
        return found[0] - found[1] - (found[2] - found[3])
    first, second = found
    return first - second


def _named(row: str, table: str, column: str, part: str = "") -> Decimal:
    cell = _TABLES[table][row][_TABLES[table]["columns"].index(column)]
    number, _, rest = cell.partition(" (")
    if not part:
        return Decimal(number.split("±")[0])
    few, medium, many = rest.strip("()").split("/")
    return Decimal({"few": few, "medium": medium, "many": many}[part])


@functools.cache
def effects() -> dict[tuple[str, str], list[Decimal]]:
    """The effects by study and contrast."""
    found = tomllib.loads((EVIDENCE / "effects.toml").read_text())["effects"]
    return {
        (study, one["contrast"]): [effect(*one["losses"], *cell) for cell in one["cells"]]
        for one in found
        for study in one["studies"]
    }
