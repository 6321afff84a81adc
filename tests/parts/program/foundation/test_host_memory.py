"""What does not fit into the memory of the machine is refused in one line."""

import pytest

from train.foundation import host_memory
from train.foundation.errors import UserError


@pytest.fixture(autouse=True)
def a_machine_of_25_gb(monkeypatch):
    monkeypatch.setattr(host_memory, "_physical", lambda: 25 * 10**9)


def test_arrays_as_large_as_the_memory_are_allowed():
    host_memory.check_fits("the arrays", 25 * 10**9)


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (25 * 10**9 + 1, "25 GB"),
        (1_280 * 10**12, "1,280 TB"),
        (12_800 * 10**12, "12 PB"),
        (10**23, "100,000 EB"),
    ],
)
def test_larger_arrays_are_refused(num_bytes, words):
    message = f"^the arrays of config.x need {words} of memory; this machine has 25 GB$"
    with pytest.raises(UserError, match=message):
        host_memory.check_fits("the arrays of config.x", num_bytes)


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 bytes"),
        (9_999, "9,999 bytes"),
        (10_000, "10 kB"),
        (9_999_999, "9,999 kB"),
        (10**7, "10 MB"),
    ],
)
def test_a_number_of_bytes_has_a_unit_and_at_most_four_digits(num_bytes, words):
    assert host_memory.in_words(num_bytes) == words


def test_the_memory_of_this_machine_is_known(monkeypatch):
    monkeypatch.undo()
    assert 10**8 < host_memory._physical() < 10**15
