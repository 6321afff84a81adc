"""The commands of the pages that guide: all of docs/observations.md, and the flags of the sheet."""

import json
import re
import shlex

from tests.parts.program.forked import ROOT, start, start_each

DOCS = ROOT / "docs"
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"`python -m (train\.\w+) ([^`]+)`")


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
    assert 0 < report["observations"]["num_examples"] < report["num_examples"]
    assert "plant001_0.jpg" in (tmp_path / "sets.html").read_text(encoding="utf-8")


def test_the_sheet_has_commands_with_flags_that_exist():
    sheet = (DOCS / "cheat_sheet.md").read_text(encoding="utf-8")
    found = COMMAND.findall(sheet)
    assert len(found) > 10
    flags: dict[str, set[str]] = {}
    for module, arguments in found:
        named = {
            one[2:].partition("=")[0] for one in shlex.split(arguments) if one.startswith("--")
        }
        flags.setdefault(module, set()).update(
            name for name in named if not name.startswith("config.")
        )
    modules = [*flags]
    helps = [start_each(module, [["--helpfull"]], ENVIRONMENT)[0] for module in modules]
    for module, ended in zip(modules, helps, strict=True):
        for flag in flags[module]:
            assert re.search(rf"--(\[no\])?{flag}\b", ended.stdout), (module, flag)
