"""What does not fit into the memory of the machine is refused in one line."""

import pytest

from train.foundation import host_memory
from train.foundation.errors import UserError


@pytest.fixture(autouse=True)
def a_machine_of_25_gb(monkeypatch):
    monkeypatch.setattr(host_memory, "_physical", lambda: 25 * 10**9)


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(25 * 10**9 + 1, "25 GB"), (1_280 * 10**12, "1,280 TB")],
)
def test_larger_arrays_are_refused(num_bytes, words):
    message = f"^the arrays of config.x need {words} of memory; this machine has 25 GB$"
    with pytest.raises(UserError, match=message):
        host_memory.check_fits("the arrays of config.x", num_bytes)
