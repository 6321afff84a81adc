"""Outcomes are read from files that grow, each once."""

import pytest

from tests.parts.program.monitoring import made
from train.foundation.errors import UserError
from train.monitoring.watching import BEGIN, OutcomeLines, opened

NAMES = [str(digit) for digit in range(10)]
MISSES = [0, 1, 0, 0, 1, 0, 1]
GOOD = made.lines([0])[0]
NEW = GOOD.replace('"label": "0"', '"none_of_these": true, "label": "oak"')


def read(path, place=BEGIN):
    """The outcomes that are there, and the place after them."""
    with opened(path) as file:
        lines = OutcomeLines(file, NAMES, None, place)
        return [outcome for part in lines.read() for outcome in part], lines.place


@pytest.mark.parametrize("between", ["\n", "\n\n", "\r\n"])
def test_a_file_that_grows_by_any_bytes_is_read_once(tmp_path, between):
    path = tmp_path / "outcomes.jsonl"
    whole = between.join(made.lines(MISSES)).encode()
    found, place = [], BEGIN
    # The last line has no end.
    for end in [*range(0, len(whole), 37), len(whole)]:
        path.write_bytes(whole[:end])
        more, place = read(path, place)
        found += more
    assert [outcome.missed for outcome in found] == MISSES
    assert [outcome.probability for outcome in found] == [None if m else 0.75 for m in MISSES]
    path.write_bytes(whole + b"\n" + made.lines([1])[0].encode())
    assert [outcome.missed for outcome in read(path, place)[0]] == [True]


@pytest.mark.parametrize(
    ("line", "missed"),
    [
        # A new class, which "none of these" is right for.
        (NEW, [False]),
        (NEW.replace("true", "false"), [True]),
        (NEW.replace("oak", "0"), [False]),
        ('{"set": [{"class": "1"}, {"class": "7"}], "rule": "r", "label": "7"}', [False]),
        ('{"set": [], "rule": "r", "label": "7"}', [True]),
        ('{"path": "a.png", "error": "is not an image"}', []),
    ],
)
def test_a_label_is_missed_if_it_is_not_in_its_set(tmp_path, line, missed):
    path = made.write(tmp_path / "outcomes.jsonl", [line])
    assert [outcome.missed for outcome in read(path)[0]] == missed


@pytest.mark.parametrize(
    "line",
    [
        GOOD.replace('"label": "0"', '"label": null'),
        GOOD.replace('"label": "0"', '"label": "oak"'),
        GOOD.replace('"class": "0"', '"class": "10"'),
        *(GOOD.replace(*one) for one in (("=0.9", "=0.8"), ("270", "271"), ("270", '"many"'))),
        *('{"set": [', "label,set,rule"),
    ],
)
def test_what_is_no_outcome_is_refused_after_the_lines_before_it(tmp_path, line):
    path = made.write(tmp_path / "outcomes.jsonl", [GOOD, line, GOOD])
    with opened(path) as file:
        lines = OutcomeLines(file, NAMES, None, BEGIN)
        parts = lines.read()
        assert len(next(parts)) == 1
        with pytest.raises(UserError, match="line 2: "):
            next(parts)
    assert lines.place[0] == len(GOOD) + 1
    # The line is mended.
    made.write(path, [GOOD, GOOD, GOOD])
    assert len(read(path, lines.place)[0]) == 2
