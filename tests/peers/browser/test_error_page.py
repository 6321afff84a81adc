"""The page of errors in Chromium: its filters with a keyboard, without scripts, and on a phone."""

import json

import numpy as np
import pytest

from tests.peers.browser.chromium import Tab
from train.evaluation.example_table import ExampleTable
from train.evaluation.predictions import Predictions
from train.evaluation.summaries import Sets
from train.prediction import error_page
from train.prediction.error_page import ErrorPageFacts

CLASS_NAMES = ("oak", "ash", "<img src=x onerror=document.title=1>")
KEYS = {"Tab": 9, " ": 32, "Enter": 13, "ArrowDown": 40}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    scores = rng.dirichlet(np.ones(3), size=60).astype(np.float32)
    labels = rng.integers(0, 3, size=60).astype(np.int32)
    of_label = scores[np.arange(60), labels]
    ranks = (scores > of_label[:, None]).sum(axis=1)
    examples = Predictions(-np.log(of_label), scores, labels, ranks)
    return ExampleTable.of(examples, Sets(ranks < 2, np.full(60, 2)), CLASS_NAMES, (1,))


@pytest.fixture(scope="module")
def address(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "errors.html"
    error_page.write(
        path, table, ErrorPageFacts("a run", "Sets.", "row", {}, ("x.png is no image",)), None
    )
    return path.as_uri()


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with Tab(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


def press(tab, key):
    text = {" ": " ", "Enter": "\r"}.get(key, key if len(key) == 1 else "")
    code = KEYS.get(key, ord(key[0].upper()))
    down = {"type": "keyDown" if text else "rawKeyDown", **({"text": text} if text else {})}
    for event in (down, {"type": "keyUp"}):
        tab.call("Input.dispatchKeyEvent", key=key, windowsVirtualKeyCode=code, **event)


def focus_by_tab(tab, identifier):
    for _ in range(30):
        press(tab, "Tab")
        if tab.evaluate("document.activeElement.id") == identifier:
            return
    raise AssertionError(f"{identifier} is not reached by Tab")


def shown(tab):
    return json.loads(
        tab.evaluate(
            "JSON.stringify(Array.from(document.querySelectorAll('.card:not([hidden]) h3'),"
            " (name) => name.textContent))"
        )
    )


def names(table, chosen):
    order = table.worst(200, 400)
    return [f"example {index}" for index in order.tolist() if chosen[index]]


def test_the_filters_work_with_a_keyboard(tab, address, table):
    tab.open(address)
    everything = np.ones(60, bool)
    assert shown(tab) == names(table, everything)
    focus_by_tab(tab, "label")
    press(tab, "o")
    is_oak = table.examples.labels == 0
    assert shown(tab) == names(table, is_oak)
    focus_by_tab(tab, "loss")
    press(tab, "1")
    is_large = table.examples.loss >= 1
    assert shown(tab) == names(table, is_oak & is_large)
    focus_by_tab(tab, "outside")
    press(tab, " ")
    assert shown(tab) == names(table, is_oak & is_large & ~table.sets.hits)
    status = tab.evaluate("document.getElementById('status').textContent")
    assert status == f"{(is_oak & is_large & ~table.sets.hits).sum()} of 60 shown"
    focus_by_tab(tab, "reset")
    press(tab, "Enter")
    assert shown(tab) == names(table, everything)
    assert tab.evaluate("document.activeElement.id") == "name"


def test_a_pair_shows_its_examples(tab, address, table):
    tab.open(address)
    pair = table.confusions[0]
    tab.evaluate("document.querySelector('button.pair').focus()")
    press(tab, "Enter")
    is_pair = (table.examples.labels == pair.label) & (table.predicted == pair.predicted)
    assert shown(tab) == names(table, is_pair)
    assert is_pair.sum() == pair.examples


def test_nothing_goes_wrong_and_nothing_is_asked_for(tab, address):
    for width in (1280, 400):
        tab.open(address, width=width, dark=width == 400)
        assert tab.evaluate("document.title") == "Errors of a run"
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        asked = [
            event["params"]["request"]["url"]
            for event in tab.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        assert [one for one in asked if not one.startswith(("file:", "data:", "about:"))] == []
        assert not [one for one in tab.events if one.get("method") == "Log.entryAdded"]


def test_without_scripts_all_is_there_but_the_filters(tab, address):
    tab.open(address, script=False)
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    assert len(shown(tab)) == 60
    assert tab.evaluate("document.getElementById('controls').offsetParent === null")
    hidden = "Array.from(document.querySelectorAll('button')).every((one) => !one.offsetParent)"
    assert tab.evaluate(hidden)


def test_a_file_that_is_dropped_does_not_replace_the_page(tab, address):
    tab.open(address)
    assert tab.keeps_page()
    # A text may be dropped into a field.
    assert not tab.keeps_page("'oak', 'text/plain'")
