"""The page of the benchmarks has the numbers that are committed beside it."""

from benchmarks import table


def test_the_tables_are_those_of_the_results():
    page = table.README.read_text()
    assert table.filled(page) == page
