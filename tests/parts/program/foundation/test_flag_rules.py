from collections.abc import Iterator

import pytest
from absl import flags

from train.foundation import fields, flag_rules
from train.foundation.errors import UserError
from train.foundation.flag_rules import Exclusive, Flag, Needed, Together

NAMES = ("a_switch", "a_number", "a_list", "a_text")


@pytest.fixture(autouse=True)
def _defined() -> Iterator[None]:
    flags.DEFINE_bool("a_switch", False, "a switch.")
    flags.DEFINE_integer("a_number", None, "a number.")
    flags.DEFINE_list("a_list", None, "a list.")
    flags.DEFINE_string("a_text", "usual", "a text.")
    yield
    flags.FLAGS.remove_flag_values(NAMES)


@pytest.mark.parametrize(
    ("row", "typed", "message"),
    [
        (Needed(("a_list",), "a list"), [], "--a_list is needed: a list"),
        (Needed(("a_list",), "a list"), ["--a_list="], "--a_list is needed: a list"),
        (Needed(("a_list",), "a list"), ["--a_list=1"], None),
        (Needed(("a_switch",), "on"), ["--noa_switch"], "--a_switch is needed: on"),
        (Exclusive(("a_number", "a_list")), ["--a_number=0", "--a_list=1"], "; got both"),
        (Exclusive(("a_number", "a_switch")), ["--a_number=0", "--noa_switch"], None),
        (Together(("a_number", "a_list")), ["--a_list=1"], "; --a_number is missing"),
        (Flag("a_number", needs=("a_switch",)), [], None),
        (Flag("a_number", needs=("a_switch",)), ["--a_number=0"], "--a_number needs --a_sw"),
        (
            Flag("a_number", needs=("a_text=other",), because="so it is"),
            ["--a_number=0"],
            "--a_number needs --a_text=other: so it is; got --a_text=usual",
        ),
        (Flag("a_number", needs=("a_text=usual",)), ["--a_number=0"], None),
        (
            Flag("a_text=usual", excludes=("a_number",)),
            ["--a_number=0"],
            "--a_text=usual cannot be given with --a_number",
        ),
        (
            Flag("a_text", fields.one_of(("usual", "other"))),
            ["--a_text=x"],
            "--a_text must be one of other, usual; got 'x'",
        ),
    ],
)
def test_a_row_holds_or_is_told(row, typed, message):
    for name in NAMES:
        flags.FLAGS[name].unparse()
    flags.FLAGS(["", *typed])
    if message is None:
        flag_rules.check([row])
        return
    with pytest.raises(UserError) as raised:
        flag_rules.check([row])
    assert str(raised.value).endswith(message) or str(raised.value).startswith(message)
