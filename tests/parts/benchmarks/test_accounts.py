"""Accounts of programs are kept as they come, and what has grown in them is named."""

import json
import os

from benchmarks import accounts

NOTHING = {"sorts": 0, "loops": 0, "messages": 0, "temporary": 0}


def made(name):
    if name == "ends the process":
        os._exit(1)
    if name == "raises":
        raise ValueError("of it\nmore")
    return {"sorts": len(name)}


def never(name):
    raise AssertionError(name)


def test_a_compiler_that_ends_costs_one_program(tmp_path):
    output = tmp_path / "accounts.json"
    names = ["first", "ends the process", "raises", "last"]
    found = accounts.collect(names, made, kept={"device": "none"}, output=output, processes=1)
    assert found == {
        "ends the process": {"failed": "the compiler ended the process"},
        "first": {"sorts": 5},
        "last": {"sorts": 4},
        "raises": {"failed": "ValueError: of it"},
    }
    assert json.loads(output.read_text()) == {"device": "none", "programs": found}
    assert list(found) == sorted(found)
    # Nothing is missing, so nothing is compiled.
    assert found == accounts.collect(names, never, kept={}, output=output, processes=1)


def test_a_program_that_takes_too_long_is_reported_as_that():
    found = accounts.collect(["first"], made, kept={}, output=None, processes=1, seconds=0)
    assert found == {"first": {"failed": "more than 0 s"}}


def test_a_report_is_written_or_printed(tmp_path, capsys):
    output = tmp_path / "accounts.json"
    accounts.report(["first"], made, device="none", output=output)
    assert capsys.readouterr().out == ""
    written = json.loads(output.read_text())
    assert (written["device"], written["programs"]) == ("none", {"first": {"sorts": 5}})
    accounts.report(["first"], made, device="none", output=None)
    assert json.loads(capsys.readouterr().out) == written


def test_a_sort_a_loop_a_message_or_memory_more_is_named():
    before = dict.fromkeys(("a, 100, K 5", "b, 100", "c, 100", "d, 100", "e, 100"), NOTHING)
    before |= {"f, 100": {"failed": "so"}, "i, 8 chips": NOTHING}
    now = {
        "a, 100, K 5": {**NOTHING, "sorts": 1},
        "b, 100": {**NOTHING, "loops": 2},
        "c, 100": {**NOTHING, "temporary": 10**6},
        # As much as another version of a compiler may pack otherwise.
        "d, 100": {**NOTHING, "temporary": 1000},
        "e, 100": {"failed": "more than 600 s"},
        "f, 100": {"failed": "so"},
        "g, 100, K 5": {**NOTHING, "sorts": 2},
        "h, 100": {**NOTHING, "sorts": 2},
        "i, 8 chips": {**NOTHING, "messages": 1},
    }
    assert list(accounts.growth(before, now)) == [
        "a, 100, K 5: sorts grew from 0 to 1",
        "b, 100: loops grew from 0 to 2",
        "c, 100: temporary grew from 0 to 1,000,000",
        "e, 100: more than 600 s",
        "g, 100, K 5: is new and has 2 sorts",
        "i, 8 chips: messages grew from 0 to 1",
    ]
