"""Every public function has a case, whose arguments are all of its own."""

import inspect

from tests.cases import CASES_WITH_HEADS
from tests.cases.case import public_functions
from tests.cases.refusals import ANYTHING, WRONG


def test_every_public_function_has_a_case():
    assert {case.public for case in CASES_WITH_HEADS} == {*public_functions()}
    assert len({case.name for case in CASES_WITH_HEADS}) == len(CASES_WITH_HEADS)


def test_cases_know_what_is_wrong_for_every_argument():
    for name, function in public_functions().items():
        cases = [case for case in CASES_WITH_HEADS if case.public == name]
        given = {argument for case in cases for argument in (*case.arrays, *case.parameters)}
        arrays = {argument for case in cases for argument in case.arrays}
        ranged = {argument for case in cases for argument in case.ranges}
        parameters = {*inspect.signature(function).parameters}
        assert given <= parameters, name
        # A range is tested with a value within it.
        assert ranged <= given, name
        assert parameters <= arrays | ranged | WRONG.keys() | ANYTHING, name
