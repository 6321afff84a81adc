"""Tables are printed in blocks that fit the width, and never cut."""

import io

import pytest
from rich.console import Console

from train.series import printing
from train.series.printing import Column

LABELS = Column("", ("first\n  of two lines", "second"), is_number=False)
COLUMNS = [
    [Column("K = 1", ("12.50", "7.00\n")), Column("d", ("+1", "-1"))],
    [Column("K", ("a", "b"))],
]


@pytest.fixture
def console():
    # As wide as the labels and the first two columns: 14, 5 and 2, with 2 for each and the edges.
    return Console(file=io.StringIO(), width=14 + 5 + 2 + 4 * 2)


def test_a_part_that_does_not_fit_starts_a_block(console):
    # A cell of two lines is as wide as the wider one.
    assert list(printing.in_blocks(console, [LABELS], COLUMNS)) == COLUMNS
    console.width += 3
    assert list(printing.in_blocks(console, [LABELS], COLUMNS)) == [COLUMNS[0] + COLUMNS[1]]
    # A part stays together, however wide it is.
    console.width = 10
    assert list(printing.in_blocks(console, [LABELS], COLUMNS[:1])) == COLUMNS[:1]


def test_columns_are_not_cut_and_rows_can_be_dim():
    console = Console(file=io.StringIO(), width=20, force_terminal=True, color_system="standard")
    printing.show_columns(console, [LABELS, *COLUMNS[0]], dim=[1])
    first, second = (
        next(line for line in console.file.getvalue().splitlines() if word in line)
        for word in ("first", "second")
    )
    assert first.split() == ["first", "12.50", "+1"]
    dim = "\x1b[2m"
    assert dim not in first
    assert dim in second
