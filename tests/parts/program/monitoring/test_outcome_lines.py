"""Outcomes are read from files that grow, each once."""

import json

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
    ("line", "message"),
    [
        (GOOD.replace('"label": "0"', '"label": null'), "it must be an object whose 'label' is"),
        (GOOD.replace('"label": "0"', '"label": "oak"'), "its label has 'oak', which is not"),
        (GOOD.replace('"class": "0"', '"class": "10"'), "its set has '10', which is not a class"),
        (GOOD.replace("=0.9", "=0.8"), "its set is of coverage=0.8"),
        (GOOD.replace("270", "271"), "its set is of coverage=0.9, calibrated on 271 examples; the"),
        (GOOD.replace("270", '"many"'), "it must be an object whose 'calibrated_on' is"),
        ('{"set": [', ""),
        ("label,set,rule", ""),
    ],
)
def test_what_is_no_outcome_is_refused_after_the_lines_before_it(tmp_path, line, message):
    path = made.write(tmp_path / "outcomes.jsonl", [GOOD, line, GOOD])
    with opened(path) as file:
        lines = OutcomeLines(file, NAMES, None, BEGIN)
        parts = lines.read()
        assert len(next(parts)) == 1
        with pytest.raises(UserError, match=f"line 2: {message}"):
            next(parts)
    assert lines.place[0] == len(GOOD) + 1
    # The line is mended.
    made.write(path, [GOOD, GOOD, GOOD])
    assert len(read(path, lines.place)[0]) == 2


def test_another_file_is_refused(tmp_path):
    path = made.write(tmp_path / "outcomes.jsonl", made.lines(MISSES))
    _, place = read(path)
    first = json.loads(path.read_text().splitlines()[0]) | {"label": "1"}
    others = (made.lines(MISSES[:2]), [json.dumps(first), *made.lines(MISSES)[1:]])
    for other in others:
        made.write(path, other)
        with pytest.raises(UserError, match=f"is not the file whose first {place[0]:,} bytes"):
            read(path, place)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read(tmp_path / "none.jsonl")
