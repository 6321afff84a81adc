"""Rules that make sets of classes of scores: one text each, limits by calibration, JSON and back.

    rule = rules.fit("coverage=0.9, rule=aps", probabilities, labels)
    members = rule(more_probabilities)      # pure: in jit, vmap and exported programs
    rule = rules.from_json(json.loads(json.dumps(rule.to_json())))

`topk_jax.sets` has the functions that rules are made of. A new rule is a subclass of `Rule` in a
file that `_making` imports.
"""

from topk_jax.rules._calibration import *
from topk_jax.rules._conformal import *
from topk_jax.rules._kinds import *
from topk_jax.rules._making import *
from topk_jax.rules._rule import *

# Each file lists its public names.
__all__ = [name for name in dir() if not name.startswith("_")]
