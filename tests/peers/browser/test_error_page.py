"""The page of errors in Chromium: its filters with a keyboard, without scripts, and on a phone."""

import json

import numpy as np
import pytest

from tests.parts.program.prediction.small_errors import table_of
from tests.peers.browser.chromium import Tab
from train.data.examples import Examples
from train.prediction import error_page

CLASS_NAMES = ("oak", "ash", "<img src=x onerror=document.title=1>")


@pytest.fixture(scope="module")
def table():
    return table_of(None, CLASS_NAMES, number=60)


@pytest.fixture(scope="module")
def address(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "errors.html"
    facts = {"title": "a run", "sets": "Sets.", "example": "image", "tables": {}}
    images = np.zeros((60, 9, 9, 1), np.uint8)
    examples = Examples.of_source(images, table.examples.labels, CLASS_NAMES, "images")
    error_page.write(path, table, examples, **facts, unreadable=["x.png is no image"])
    return path.as_uri()


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with Tab(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


def focus_by_tab(tab, identifier):
    for _ in range(30):
        tab.press("Tab")
        if tab.evaluate("document.activeElement.id") == identifier:
            return
    raise AssertionError(f"{identifier} is not reached by Tab")


def shown(tab):
    return tab.texts(".card:not([hidden]) .title")


def names(table, chosen):
    return [table.names[index] for index in table.worst(200, 400).tolist() if chosen[index]]


def test_the_filters_work_with_a_keyboard(tab, address, table):
    tab.open(address)
    everything, labels = np.ones(60, bool), table.examples.labels
    assert shown(tab) == names(table, everything)
    focus_by_tab(tab, "filter")
    tab.press(*"oak")
    is_oak = (labels == 0) | (table.predicted == 0)
    assert shown(tab) == names(table, is_oak)
    focus_by_tab(tab, "label")
    tab.press("o")
    is_oak = labels == 0
    assert shown(tab) == names(table, is_oak)
    focus_by_tab(tab, "outside")
    tab.press(" ")
    outside = is_oak & ~table.sets.of_labels
    assert shown(tab) == names(table, outside)
    assert tab.texts("#status") == [f"{outside.sum()} of 60 shown"]
    tab.press("Tab", "Enter")
    tab.evaluate("new Promise((done) => setTimeout(done))")
    assert shown(tab) == names(table, everything)


def test_a_pair_shows_its_examples(tab, address, table):
    tab.open(address)
    pair = table.confusions[0]
    tab.evaluate("document.querySelector('button.pair').focus()")
    tab.press("Enter")
    tab.evaluate("new Promise((done) => setTimeout(done))")
    is_pair = (table.examples.labels == pair.label) & (table.predicted == pair.predicted)
    assert shown(tab) == names(table, is_pair)
    assert is_pair.sum() == pair.examples


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_goes_wrong_and_nothing_is_asked_for(tab, address, width):
    tab.open(address, width=width, height=844, dark=width == 390)
    assert tab.evaluate("document.title") == "Errors of a run"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    # The first picture is on the first screen.
    bottom = tab.evaluate("document.querySelector('.picture').getBoundingClientRect().bottom")
    assert bottom <= 844
    assert tab.complaints() == []


def test_without_scripts_all_is_there_but_the_filters(tab, address):
    tab.open(address, script=False)
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    assert len(shown(tab)) == 60
    seen = "Array.from(document.querySelectorAll('button, input'), (one) => one.offsetHeight)"
    assert not any(json.loads(tab.evaluate(f"JSON.stringify({seen})")))
