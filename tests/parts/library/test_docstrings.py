"""The docstring of every public function has the parts that CONTRIBUTING lists."""

import inspect
import re

import pytest

from tests.cases.case import public_functions

PARTS = {
    "arguments with their shapes": r"^Args:\n(    .*\n)+",
    "what is returned": r"^Returns:\n    \S",
    "an example that runs": r"^Example:\n(    .*\n|\n)*?    >>> ",
    "the source": r"^Sources?: ",
}
# What they count, choose or pass on has a name and no formula.
WITHOUT_FORMULA = {
    "heads.in_blocks",
    "heads.scores",
    "metrics.open_set_accuracy",
    "metrics.set_sizes",
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
    # Every argument is described, one of them with its shape.
    parameters = [*inspect.signature(public_functions()[name]).parameters]
    arguments = section(text, "Args")
    described = ", ".join(re.findall(r"^(\w+(?:, \w+)*): ", arguments, re.MULTILINE)).split(", ")
    assert sorted(described) == sorted(parameters)
    # What all functions of a module take is described once, in the text of the module.
    assert SHAPE.search(arguments) or "see `topk_jax." in arguments, arguments
    # A loss of single examples takes `where`.
    assert not section(text, "Returns").startswith("One loss per example") or "where" in parameters


def section(text, title):
    """The lines of a section, without their indentation."""
    (found,) = re.findall(rf"^{title}:\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return inspect.cleandoc(f"\n{found}")
