"""Names of files reach a terminal without what it obeys."""

from rich.table import Column, Table
from rich.text import Text

from train.foundation.console import make_console, printable, printable_lines

# A title, a colour, a new line, C1 codes, a right-to-left override, and a byte that is not UTF-8.
NAME = "a\x1b]0;title\x07\x1b[31m\n\r\x9b2J\u202egpj.\udcff日é"
ESCAPED = r"a\x1b]0;title\x07\x1b[31m\n\r\x9b2J\u202egpj.\udcff日é"


def test_what_a_terminal_obeys_is_escaped():
    assert printable(NAME) == ESCAPED
    assert printable("a path/日é c\\d") == "a path/日é c\\d"


def test_a_table_is_escaped_and_has_no_markup(capsys):
    # Without what rich leaves out itself.
    name = NAME.replace("\n", "").replace("\r", "").replace("\x07", "")
    table = Table(Column(f"[/]{name}"), "b", title=name)
    table.add_row(Text(name), f"[bold]{name}[/red] :cat:")
    console = make_console(width_without_terminal=300)
    console.print(table)
    console.print(f"[bold]{name}[/red] :cat:")
    shown = capsys.readouterr().out
    assert printable_lines(shown) == shown
    # The title, the column, two cells, whose ends may not fit, and the line.
    assert shown.count(r"a\x1b]0;title\x1b[31m") == 5
    escaped = ESCAPED.replace(r"\n\r", "").replace(r"\x07", "")
    assert f"\n[bold]{escaped}[/red] :cat:\n" in shown
