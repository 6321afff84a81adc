"""Writes the tables of the committed results to benchmarks/README.md.

python -m benchmarks.table
"""

import importlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "README.md"
RESULTS = Path(__file__).parent / "results"
_PLACE = re.compile(r"(<!-- (\w+): (\S+\.json) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table with one line per row."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(results: Mapping[str, Any]) -> str:
    """The hardware and the versions of a result in words."""
    found = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"{found['device']}, {found['processor']}, {found['cores']} cores; Python "
        f"{found['python']}, {versions}"
    )


def filled(text: str) -> str:
    """The text, with tables between comments that name a benchmark and a file of its results."""

    def tables(place: re.Match[str]) -> str:
        begin, benchmark, file, end = place.groups()
        made = importlib.import_module(f"benchmarks.{benchmark}").tables(
            json.loads((RESULTS / file).read_text())
        )
        return f"{begin}\n{made}\n\n{end}"

    return _PLACE.sub(tables, text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
