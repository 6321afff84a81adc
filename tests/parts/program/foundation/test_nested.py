"""Nested configurations are compared field by field."""

from train.foundation.nested import differences

CONFIG = {"seed": 0, "loss": {"name": "noised_balanced", "k": 3}, "eval": {"ks": [1, 3]}}


def test_differences_name_the_fields():
    other = {**CONFIG, "seed": 1, "loss": {"name": "cross_entropy", "k": 3}}
    assert differences(CONFIG, other) == [
        "loss.name: 'noised_balanced' -> 'cross_entropy'",
        "seed: 0 -> 1",
    ]
    assert differences(CONFIG, CONFIG) == []
