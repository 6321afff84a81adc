"""Activations that the backward pass computes again, so that they need no memory until then.

A network marks what each of its blocks ends with. With `config.model.remat` these are the only
activations that are kept for the backward pass. When it needs the activations inside a block, it
computes them again from the end of the block before it.
"""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.sharding import Sharding

_END_OF_BLOCK = "end of a block"


def kept_by_remat(outputs: jax.Array) -> jax.Array:
    """The outputs of a block, which `rematerialized` keeps for the backward pass."""
    marked: jax.Array = checkpoint_name(outputs, _END_OF_BLOCK)
    return marked


def rematerialized(network: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose gradient keeps only the ends of blocks; values do not change."""
    policy = jax.checkpoint_policies.save_only_these_names(_END_OF_BLOCK)
    found: Callable[..., Any] = jax.checkpoint(network, policy=policy)
    return found


def gathering_in_blocks(
    apply: Callable[..., Any], *, gather: Callable[[Any], Any], rows: Sharding, remat: bool
) -> Callable[..., Any]:
    """The apply function of a network that devices share, which gathers each block's parameters.

    A block keeps no gathered parameters: its backward pass gathers them again. Each block has a
    checkpoint of its own, and so a barrier. With one for the complete network the compiler may
    start the backward passes of all blocks at once, to hide the time of messages. Then all need
    memory at once.

    Args:
        apply: the function.
        gather: makes complete parameters of what a device has of them.
        rows: where outputs are. The compiler could also split them like the parameters, and send
            the activations of all examples in place of the parameters.
        remat: whether a block keeps only what it is given for the backward pass.
    """
    policy = jax.checkpoint_policies.nothing_saveable if remat else _keeps
    is_inside = False

    def in_block(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        nonlocal is_inside
        module, function = context.module, type(context.module).__call__
        # Modules that are blocks get the layers of the network.
        is_block = hasattr(module, "layers")
        gathers = is_block or isinstance(module, nn.Conv | nn.Dense)
        is_called = context.method_name == "__call__" and module.path[:1] == ("features",)
        if is_inside or not (is_called and gathers):
            return call(*args, **kwargs)
        is_inside = True
        function = nn.map_variables(function, "params", trans_in_fn=gather)
        outputs = nn.remat(function, policy=policy)(module, *args, **kwargs)
        is_inside = False
        return jax.lax.with_sharding_constraint(outputs, rows)

    def applied(*inputs: Any, **settings: Any) -> Any:
        with nn.intercept_methods(in_block):
            return apply(*inputs, **settings)

    return applied


def _keeps(primitive: Primitive, *_shapes: Any, **_settings: Any) -> bool:
    """Whether the results of an operation are kept: no gathered parameters, in any precision."""
    return primitive.name not in ("sharding_constraint", "convert_element_type")
