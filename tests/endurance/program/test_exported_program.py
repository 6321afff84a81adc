"""Rows of the same name in tests/parts that take long."""

from tests.parts import lowered
from tests.parts.program.package.test_exported_program import AllRules, classifier_of, exported


def test_every_rule_of_very_many_classes_is_lowered_for_all_platforms():
    program = exported(classifier_of(131_072), AllRules(131_072))
    assert program.platforms == ("cpu", "cuda", "tpu")
    assert lowered.faults(program) == []
