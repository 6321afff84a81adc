"""Which tests of the library pass on an accelerator, from pytest's report.

    python -m benchmarks.exactness REPORT.xml [--output=FILE.json]

`benchmarks/accelerator.sh exactness` runs the tests and then this.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import command, markdown, timing


def main() -> None:
    """Reads the report and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=Path, metavar="REPORT.xml", help="a report of pytest")
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    arguments = parser.parse_args()
    command.write({"machine": timing.machine(), **outcomes(arguments.report)}, arguments.output)


def outcomes(report: Path) -> dict[str, Any]:
    """The number of tests that passed, and those that failed, each with the end of its error."""
    passed, failed = 0, {}
    for test in ElementTree.parse(report).iter("testcase"):
        errors = [child for child in test if child.tag in {"failure", "error"}]
        if errors:
            message = (errors[0].get("message") or "").strip().splitlines()
            failed[f"{test.get('classname')}.{test.get('name')}"] = message[0] if message else ""
        # The name of a test that was interrupted is missing.
        elif test.get("name") and not any(child.tag == "skipped" for child in test):
            passed += 1
    return {"passed": passed, "failed": failed}


def tables(results: dict[str, Any]) -> str:
    """How many tests passed, and how many of each file failed."""
    files = Counter(name.split(".test_")[1].split(".")[0] for name in results["failed"])
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; {results['passed']:,} tests passed.",
            markdown.table(
                ["tests that failed, of", "number"],
                ([f"`test_{file}`", str(number)] for file, number in sorted(files.items())),
            ),
        ]
    )


if __name__ == "__main__":
    main()
