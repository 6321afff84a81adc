"""The page about one's own data, whose commands are tests."""

from tests.parts.program.forked import ROOT


def section(title):
    """The text below a title."""
    page = (ROOT / "docs" / "own_data.md").read_text()
    return page.split(f"## {title}\n")[1].split("\n## ")[0]


def run_block(text):
    """Runs the Python block of a section in the current folder."""
    block = text.split("```python\n")[1].split("```")[0]
    exec(compile(block, "own_data.md", "exec"), {})


def commands(text):
    """The module and the arguments of each command of a section, to be started in any folder."""
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    joined = "\n".join(lines).replace("\\\n", "").replace("configs/", f"{ROOT}/configs/")
    found = [line.split() for line in joined.splitlines() if line.startswith("python -m train.")]
    return [(module, arguments) for _, _, module, *arguments in found]
