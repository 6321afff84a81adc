"""The docstring of every public function has the parts that CONTRIBUTING lists."""

import inspect
import re

import pytest

from tests.cases.case import public_functions

PARTS = {
    "arguments with their shapes": r"^Args:\n(    .*\n)+",
    "what is returned": r"^Returns:\n    \S",
    "errors": r"^Raises:\n    (TypeError|ValueError): ",
    "an example that runs": r"^Example:\n(    .*\n|\n)*?    >>> ",
    "its relatives": r"^See Also:\n    `",
    "the source": r"^Sources?: ",
}
# What they count, choose or pass on has a name and no formula.
WITHOUT_FORMULA = {
    "heads.scores",
    "metrics.open_set_accuracy",
    "metrics.set_sizes",
    "metrics.shot_accuracy",
    "metrics.tally",
    "metrics.tally_by_class",
    "sets.conformal_label_scores",
}
SHAPE = re.compile(r"\[\.\.\.|`\[|with L entries")


def docstring(name):
    text = inspect.getdoc(public_functions()[name])
    assert text is not None
    return text


@pytest.mark.parametrize("name", public_functions())
def test_a_docstring_has_every_part(name):
    text = docstring(name)
    missing = [part for part, there in PARTS.items() if not re.search(there, text, re.MULTILINE)]
    assert not missing, missing
    summary, blank, *_ = text.splitlines()
    assert (summary[-1], blank) == (".", "")
    assert (":math:" in text or ".. math::" in text) != (name in WITHOUT_FORMULA)


@pytest.mark.parametrize("name", public_functions())
def test_every_argument_is_described(name):
    arguments = section(docstring(name), "Args")
    described = re.findall(r"^(\w+): ", arguments, re.MULTILINE)
    assert described == [*inspect.signature(public_functions()[name]).parameters]
    assert SHAPE.search(arguments), arguments


@pytest.mark.parametrize("name", public_functions())
def test_a_loss_of_single_examples_takes_where(name):
    is_one = section(docstring(name), "Returns").startswith("One loss per example")
    assert not is_one or "where" in inspect.signature(public_functions()[name]).parameters


@pytest.mark.parametrize("name", public_functions())
def test_relatives_are_public(name):
    public = {*public_functions()} | {each.partition(".")[2] for each in public_functions()}
    relatives = re.findall(r"`([\w.]+)`", section(docstring(name), "See Also"))
    assert relatives
    assert {*relatives} <= public - {name, name.partition(".")[2]}


def section(text, title):
    """The lines of a section, without their indentation."""
    (found,) = re.findall(rf"^{title}:\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return inspect.cleandoc(f"\n{found}")
