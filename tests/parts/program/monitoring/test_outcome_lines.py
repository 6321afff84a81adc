"""Outcomes are read from files that grow, each once, and from tables."""

import pytest

from tests.parts.program.monitoring import made
from train.foundation.errors import UserError
from train.monitoring.outcome_lines import BEGIN, opened

NAMES = [str(digit) for digit in range(10)]
MISSES = [0, 1, 0, 0, 1, 0, 1]


def read(path, place=BEGIN, rule=None):
    """The outcomes that are there, and the place after them."""
    with opened(path, place, NAMES, rule) as file:
        outcomes = [outcome for part in file.read() for outcome in part]
        return outcomes, file.place


def test_a_file_that_grows_by_any_bytes_is_read_once(tmp_path):
    path = tmp_path / "outcomes.jsonl"
    whole = made.write(path, made.lines(MISSES)).read_bytes()
    expected, _ = read(path)
    assert [outcome.missed for outcome in expected] == MISSES
    assert [outcome.probability for outcome in expected] == [None if m else 0.75 for m in MISSES]
    found, place = [], BEGIN
    for end in range(0, len(whole) + 1, 37):
        path.write_bytes(whole[:end])
        more, place = read(path, place)
        found += more
    path.write_bytes(whole)
    assert found + read(path, place)[0] == expected


def test_the_last_line_needs_no_end(tmp_path):
    path = tmp_path / "outcomes.jsonl"
    path.write_text("\n\n".join(made.lines(MISSES)))
    outcomes, place = read(path)
    assert len(outcomes) == len(MISSES)
    with path.open("a") as file:
        file.write("\n" + made.lines([1])[0])
    assert [outcome.missed for outcome in read(path, place)[0]] == [True]


def test_a_table_is_read_as_lines_are(tmp_path):
    path = tmp_path / "outcomes.csv"
    path.write_text("label,rule,set\n1,top_k=2,1|7\n2,top_k=2,1|7\n")
    outcomes, place = read(path)
    assert [(one.missed, one.size, one.probability) for one in outcomes] == [
        (False, 2, None),
        (True, 2, None),
    ]
    with path.open("a") as file:
        file.write("3,top_k=2,")
    assert read(path, place)[0] == []
    with path.open("a") as file:
        file.write("3\n")
    assert [one.size for one in read(path, place)[0]] == [1]


def test_none_of_these_is_a_column_of_a_table(tmp_path):
    path = tmp_path / "outcomes.csv"
    rows = ["oak,1,r,TRUE", "oak,1,r,False", "1,1,r,"]
    path.write_text("\n".join(["label,set,rule,none_of_these", *rows, ""]))
    assert [outcome.missed for outcome in read(path)[0]] == [False, True, False]


def test_none_of_these_is_right_for_a_new_class(tmp_path):
    line = GOOD.replace('"label": "0"', '"none_of_these": true, "label": "oak"')
    lines = [line, line.replace("true", "false"), line.replace("oak", "0")]
    path = made.write(tmp_path / "outcomes.jsonl", lines)
    assert [outcome.missed for outcome in read(path)[0]] == [False, True, False]


def test_images_that_could_not_be_read_are_no_outcomes(tmp_path):
    path = tmp_path / "outcomes.jsonl"
    path.write_text('{"path": "a.png", "error": "is not an image"}\n' + made.lines([0])[0] + "\n")
    assert len(read(path)[0]) == 1


GOOD = made.lines([0])[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (GOOD.replace('"label": "0"', '"label": null'), "line 2: it has no label"),
        (GOOD.replace('"label": "0"', '"label": "oak"'), "line 2: its label has 'oak'"),
        (GOOD.replace("=0.9", "=0.8"), "line 2: its set is of coverage=0.8"),
        (GOOD.replace('"index": 0', '"index": 10'), "its set has class 10"),
        ('{"set": [', "line 2: "),
    ],
)
def test_what_is_no_outcome_is_refused_after_the_lines_before_it(tmp_path, line, message):
    path = made.write(tmp_path / "outcomes.jsonl", [GOOD, line, GOOD])
    with (
        opened(path, BEGIN, NAMES, None) as file,
        pytest.raises(UserError, match=message.replace("[", r"\[")),
    ):
        list(file.read())
    assert file.place.lines == 1
    # The line is mended.
    made.write(path, [GOOD, GOOD, GOOD])
    assert len(read(path, file.place)[0]) == 2


def test_another_file_is_refused(tmp_path):
    path = made.write(tmp_path / "outcomes.jsonl", made.lines(MISSES))
    _, place = read(path)
    for other in (made.lines([1, *MISSES[1:]]), made.lines(MISSES[:2])):
        made.write(path, other)
        with pytest.raises(UserError, match=f"is not the file whose first {place.bytes:,} bytes"):
            read(path, place)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "table.csv").write_text("label,size\n")
    with pytest.raises(UserError, match="must have the columns label, set, rule; it has no set"):
        read(tmp_path / "table.csv")
