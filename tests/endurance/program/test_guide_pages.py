"""The commands of docs/observations.md, one after another."""

import json
import re
import shlex

from tests.parts.program.forked import ROOT, start

DOCS = ROOT / "docs"
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def commands_of(page):
    """The commands of a page, each as its module and its arguments."""
    lines = [line[4:] for line in page.splitlines() if line.startswith("    ")]
    commands = "\n".join(lines).replace("\\\n", "").splitlines()
    words = (shlex.split(line) for line in commands if line.startswith("python -m train."))
    return [(module, arguments) for _, _, module, *arguments in words]


def test_the_observations_of_the_page_get_sets(tmp_path, monkeypatch):
    page = (DOCS / "observations.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # Fewer plants and epochs than on the page, which takes minutes.
    fewer = re.sub(r"plants=\d+", "plants=12", "".join(BLOCK.findall(page)))
    exec(compile(fewer, "observations.md", "exec"), {})
    modules = []
    for module, arguments in commands_of(page):
        changed = [
            re.sub(r"num_epochs=\d+", "num_epochs=2", one).replace("configs/", f"{ROOT}/configs/")
            for one in arguments
        ]
        ended = start(module, *changed, environment=ENVIRONMENT, folder=str(tmp_path))
        assert ended.returncode == 0, (module, changed, ended.stderr)
        modules.append(module.removeprefix("train."))
    assert {*modules} == {"main", "evaluate", "predict", "embed", "audit"}
    report = json.loads((tmp_path / "runs/plants/evaluation_test.json").read_text())
    assert 0 < report["observations"]["examples"] < report["examples"]
    assert "plant001_0.jpg" in (tmp_path / "sets.html").read_text(encoding="utf-8")
