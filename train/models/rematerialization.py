"""Activations that the backward pass computes again, so that they need no memory until then.

A network marks what each of its blocks ends with. With `config.model.remat` these are the only
activations that are kept for the backward pass. When it needs the activations inside a block, it
computes them again from the end of the block before it.

If devices share the parameters, each block gathers its own parameters, and gathers them again in
the backward pass. For that the blocks are called one by one, each within a `jax.checkpoint`, which
has a barrier: the backward pass of a block starts when the gradient by its outputs is there. With
one `jax.checkpoint` of the complete network there is one barrier, and the compiler may start the
backward passes of all blocks at once, to hide the time of messages. Then all blocks need memory at
once: compiled for 16 H100, the step of a ViT-L needs 13.8 GB so, and 9.0 GB block by block.
"""

# Flax could do the same: `nn.remat` and `nn.map_variables` around the module of each block. Each
# network would then have to wrap its blocks by the configuration and pass down what gathers their
# parameters, with the same names and random numbers, and the blocks of DenseNet are not modules. A
# network that marks its blocks knows nothing of devices. So its program is cut at the marks.

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive

from train.models import program_blocks
from train.models.program_blocks import Block

_END_OF_BLOCK = "end of a block"

# Makes the complete array of parameters at a path, of what a device has of it.
Gather = Callable[[tuple[Any, ...], jax.Array], jax.Array]


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
    network: Callable[[Any], Any], gather: Gather, *, remat: bool
) -> Callable[[Any], Any]:
    """A function of complete parameters, block by block, of what a device has of them.

    Args:
        network: the function.
        gather: makes complete parameters.
        remat: whether a block keeps only what it is given for the backward pass. Else it also keeps
            what it computes, but no complete parameters.

    Returns:
        a function of what a device has of the parameters.
    """
    policy = jax.checkpoint_policies.nothing_saveable if remat else _keeps

    def compute(parameters: Any) -> Any:
        leaves, structure = jax.tree_util.tree_flatten_with_path(parameters)
        shapes = [jax.eval_shape(partial(gather, path), leaf) for path, leaf in leaves]
        program = program_blocks.cut(
            network, jax.tree.unflatten(structure, shapes), mark=_END_OF_BLOCK
        )
        paths = {name: path for name, (path, _) in zip(program.inputs, leaves, strict=True)}

        def gather_and_compute(block: Block, *given: jax.Array) -> Any:
            return block.compute(
                *(
                    gather(paths[name], value) if name in paths else value
                    for name, value in zip(block.inputs, given, strict=True)
                )
            )

        # For split parameters, these are the parts that the device has.
        values = {**program.constants}
        values |= zip(program.inputs, (leaf for _, leaf in leaves), strict=True)
        for block in program.blocks:
            run = jax.checkpoint(partial(gather_and_compute, block), policy=policy)
            found = run(*(values[name] for name in block.inputs))
            values |= zip(block.outputs, found, strict=True)
        return program.result(values)

    return compute


def _keeps(primitive: Primitive, *_shapes: Any, **_settings: Any) -> bool:
    """Whether the results of an operation are kept: not complete parameters, in any precision."""
    return primitive.name not in ("all_gather", "convert_element_type")
