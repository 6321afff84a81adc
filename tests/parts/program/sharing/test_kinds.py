"""What the parts of a work have in common."""

import json

import pytest
from absl import flags

from train.sharing import kinds


@pytest.fixture
def given(monkeypatch):
    """The flags of a command, with the values that a test gives."""
    values = flags.FlagValues()
    for name in ("out", "html", "rule"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    monkeypatch.setattr(kinds.flags, "FLAGS", values)

    def kind(**texts):
        values.unparse_flags()
        values(["command", *(f"--{name}={text}" for name, text in texts.items())])
        return json.loads(
            kinds.of("predict", inputs="i", places=("out",), outputs=("html",))["flags"]
        )

    return kind


def test_of_outputs_counts_whether_there_are_any_and_not_where(given):
    assert given(out="a", html="b.html") == given(out="c", html="d.html") == {"html": True}
    # Its parts have what a page needs, which those without a page do not have.
    assert given(out="a") == {}
    assert given(rule="r") == {"rule": "r"}
