"""Losses for set-valued classification: one loss per example, unless they couple the batch.

A traced parameter outside its range cannot raise, so it makes every loss NaN. A NaN or +inf logit,
or a label outside [0, L), makes the loss and gradient of its own example NaN. A logit of -inf masks
its class. The label of a masked class has a large finite loss, about 1e30 for most losses, so that
one such example can be noticed and does not make parameters NaN.

A parameter such as `epsilon` or `alpha` is one number for all examples. `jax.vmap` over the
examples and the parameter gives each example its own. Labels are classes, not one-hot vectors:
`expect_over_labels` takes one-hot and soft labels for every loss of single examples.

`thesis` in a source is Garcin (2023). Examples take `jnp` and the names of this module as imported.

Arguments that they share:

- `logits`: floating-point scores, `[..., L]`, in any precision; -inf masks a class. Values are in
  float32 or float64.
- `labels`: integer classes, `[...]`. For a loss of a batch, all axes of the labels are the batch.
- `where`: which examples count, booleans `[...]`; `None` for all. The loss and the gradient of the
  others are 0, whatever their scores and labels are.
- `class_axis_name`: the mapped axis of `shard_map` that the classes are split along into equal
  parts, or `None`; see `docs/scaling.md`.
- `axis_name`: the mapped axis that the batch is split along into equal parts, or `None`. Every
  device then returns the loss of the complete batch; see `average_k` for the gradients. This loss
  is NaN if an example of the batch is wrong.
- Integers such as `k` and `num_samples` are static. Other numbers may be traced.
"""

from topk_jax.losses._average_k import *
from topk_jax.losses._hierarchical import *
from topk_jax.losses._hinges import *
from topk_jax.losses._memberships import *
from topk_jax.losses._multilabel import *
from topk_jax.losses._sets import *
from topk_jax.losses._softmax import *

# Each file lists its public names.
__all__ = [name for name in dir() if not name.startswith("_")]
