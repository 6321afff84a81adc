"""The pages with results of benchmarks have the numbers that are committed beside these."""

import pytest

from benchmarks import table


@pytest.mark.parametrize("page", table.PAGES, ids=lambda page: page.name)
def test_the_tables_are_those_of_the_results(page):
    text = page.read_text()
    assert table.filled(text) == text
    assert "<!-- begin " in text
