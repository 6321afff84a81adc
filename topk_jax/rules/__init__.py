"""Rules that make sets of classes of scores: one text each, limits by calibration, JSON and back.

    rule = rules.fit("coverage=0.9, rule=aps", probabilities, labels)
    members = rule(more_probabilities)      # pure: in jit, vmap and exported programs
    rule = rules.from_json(json.loads(json.dumps(rule.to_json())))

`topk_jax.sets` has the functions that rules are made of. A new rule is a subclass of `Rule` in a
file of its own, which is imported here.
"""

from topk_jax.rules._conformal import CONFORMAL
from topk_jax.rules._promise import CalibratedOn, Promise, TooFewError
from topk_jax.rules._reading import IN_WORDS, from_json, parse
from topk_jax.rules._rule import KINDS, Answer, Rule

from topk_jax.rules._fitting import fit  # isort: skip  # after all kinds

__all__ = [
    "CONFORMAL",
    "IN_WORDS",
    "KINDS",
    "Answer",
    "CalibratedOn",
    "Promise",
    "Rule",
    "TooFewError",
    "fit",
    "from_json",
    "parse",
]
