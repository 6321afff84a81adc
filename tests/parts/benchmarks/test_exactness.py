"""The report of tests on an accelerator: what passed, what failed, and why."""

from benchmarks import exactness

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="one" time="1" />
<testcase classname="tests.test_a" name="two">
<failure message="AssertionError:&#10;1 is not 2" /></testcase>
<testcase classname="tests.test_b" name="three"><error message="no device" /></testcase>
<testcase classname="tests.test_b" name="four"><skipped message="not here" /></testcase>
<testcase time="0.000" />
</testsuite></testsuites>"""


def test_failures_errors_skipped_and_interrupted_tests_have_not_passed(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = exactness.outcomes(report)
    assert found == {
        "passed": 1,
        "failed": {"tests.test_a.two": "AssertionError:", "tests.test_b.three": "no device"},
    }
    machine = {"device": "D", "processor": "P", "cores": 1, "python": "3", "versions": {}}
    made = exactness.tables({"machine": machine, **found})
    assert "; 1 tests passed." in made
    assert made.endswith("| `test_a` | 1 |\n| `test_b` | 1 |")
