"""Lists the networks with their errors at the end."""

import pytest

ERRORS: dict[str, dict[str, str]] = {}


@pytest.fixture
def record():
    """Notes a number for the table: called with the network, the column and a text."""

    def note(network, column, text):
        ERRORS.setdefault(network, {})[column] = text

    return note


def pytest_collection_modifyitems(items):
    """All tests of a network one after the other: to make it and its file takes longest."""
    items.sort(key=_network_of)


def _network_of(item):
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return str(parameters.get("name", ""))


def pytest_terminal_summary(terminalreporter):
    columns = dict.fromkeys(column for row in ERRORS.values() for column in row)
    if not columns:
        return
    terminalreporter.section("largest differences, in units of the largest number")
    terminalreporter.write_line(f"{'network':36}" + "".join(f"{one:>16}" for one in columns))
    for network, row in ERRORS.items():
        cells = "".join(f"{row.get(one, ''):>16}" for one in columns)
        terminalreporter.write_line(f"{network:36}{cells}")
