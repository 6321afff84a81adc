"""The parts of benchmarks/accelerator.sh: in the script, on the page, and refused by name."""

import re
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "accelerator.sh"


def call(*arguments, **environment):
    return subprocess.run(
        [SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def parts():
    called = call()
    assert called.returncode == 2
    return called.stdout.removeprefix("parts: ").split()


def test_every_part_is_made_and_is_on_the_page():
    text = SCRIPT.read_text()
    cases = re.findall(r"^    ([a-z_0-9 |]+)\)", text, re.MULTILINE)
    assert sorted(parts()) == sorted(name for case in cases for name in case.split(" | "))
    page = (SCRIPT.parent / "README.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page.split("| part |")[1].split("\n\n")[0], re.MULTILINE)
    assert {name.strip("`") for row in rows for name in row.split(", ")} == {*parts()}


def test_an_unknown_part_is_refused(tmp_path):
    called = call("--smoke", "lotteries", RESULTS=str(tmp_path))
    assert called.returncode == 2
    assert called.stderr.startswith("there is no part 'lotteries'; the parts are machine on_dev")
    assert len(called.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
