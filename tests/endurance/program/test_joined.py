"""Rows of the same name in tests/parts that take long."""

import json

import pytest

from tests.parts.program.classifiers.test_joined import (  # noqa: F401 (fixtures)
    EACH,
    _small,
    folder,
    of_ours,
)
from tests.parts.program.forked import start

pytestmark = pytest.mark.usefixtures("standard_promotion")


def test_the_commands_take_images(folder, of_ours, tmp_path):  # noqa: F811
    run, photos = f"--workdir={of_ours}", f"--images={folder / 'photos'}"
    rule = "--coverage=0.8"
    started = [
        ("predict", [run, photos, rule, f"--out={tmp_path}/s.jsonl", f"--html={tmp_path}/p.html"]),
        ("export", [run, rule, f"--out={tmp_path}/p"]),
        ("evaluate", [run, photos, f"--out={tmp_path}/e.json"]),
    ]
    for command, arguments in started:
        done = start(f"train.{command}", *arguments)
        assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * EACH
    assert lines[0]["path"].endswith("photos/china/0.jpg")
    assert "data:image/png;base64," in (tmp_path / "p.html").read_text()
    described = json.loads((tmp_path / "p.json").read_text())
    assert described["images"]["shape"] == ["n", 8, 8, 1]
    assert described["rule"]["rule"] == lines[0]["rule"] == "coverage=0.8"
    assert described["rule"]["calibrated_on"]["examples"] == lines[0]["calibrated_on"]["examples"]
    assert (tmp_path / "p.py").is_file()
    evaluated = json.loads((tmp_path / "e.json").read_text())
    assert evaluated["examples"] == 2 * EACH
