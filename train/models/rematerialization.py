"""Activations that the backward pass computes again, so that they need no memory until then.

A network marks what each of its blocks ends with. With `config.model.remat` these are the only
activations that are kept for the backward pass. When it needs the activations inside a block, it
computes them again from the end of the block before it.

If devices share the parameters, the function of the parameters is cut at the marks. Each block
gathers its own parameters, and gathers them again in the backward pass. The backward pass of a
block then starts when the gradient by its outputs is there: `jax.checkpoint` has a barrier there.
Without the barrier, the compiler may start the backward passes of all blocks at once, to hide the
time of messages. Then all blocks need memory at once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var, jaxpr_as_fun

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
        whole = [jax.eval_shape(partial(gather, path), leaf) for path, leaf in leaves]
        traced, shapes = jax.make_jaxpr(network, return_shape=True)(
            jax.tree.unflatten(structure, whole)
        )
        program = traced.jaxpr
        paths = {name: path for name, (path, _) in zip(program.invars, leaves, strict=True)}
        values: dict[Any, jax.Array] = dict(zip(program.constvars, traced.consts, strict=True))
        values |= zip(program.invars, (leaf for _, leaf in leaves), strict=True)
        for block in _blocks(program):
            run = jax.checkpoint(partial(_run, block, paths, gather), policy=policy)
            results = run(*(values[name] for name in block.invars))
            values |= zip(block.outvars, results, strict=True)
        found = [
            name.val if isinstance(name, Literal) else values[name] for name in program.outvars
        ]
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return compute


def _run(
    block: Jaxpr, paths: Mapping[Var, tuple[Any, ...]], gather: Gather, *given: jax.Array
) -> list[jax.Array]:
    """The outputs of a block, from what a device has of its inputs."""
    leaves = [
        gather(paths[name], value) if name in paths else value
        for name, value in zip(block.invars, given, strict=True)
    ]
    found: list[jax.Array] = jaxpr_as_fun(ClosedJaxpr(block, ()))(*leaves)
    return found


def _keeps(primitive: Primitive, *_shapes: Any, **_settings: Any) -> bool:
    """Whether the results of an operation are kept: not complete parameters, in any precision."""
    return primitive.name not in ("all_gather", "convert_element_type")


def _blocks(program: Jaxpr) -> list[Jaxpr]:
    """The parts of a program that end with a block; the last one ends with the program."""
    parts: list[list[JaxprEqn]] = [[]]
    for equation in program.eqns:
        parts[-1].append(equation)
        if equation.params.get("name") == _END_OF_BLOCK:
            parts.append([])
    blocks: list[Jaxpr] = []
    needed: Collection[Any] = _variables(program.outvars)
    for equations in reversed(parts):
        block = _part(program, equations, needed)
        needed = {name: None for name in (*needed, *block.invars) if name not in block.outvars}
        blocks.append(block)
    return blocks[::-1]


def _part(program: Jaxpr, equations: Sequence[JaxprEqn], needed: Collection[Var]) -> Jaxpr:
    """These equations of a program, with the variables that are needed of what they make."""
    made = dict.fromkeys(name for equation in equations for name in equation.outvars)
    used = dict.fromkeys(
        name for equation in equations for name in _variables(equation.invars) if name not in made
    )
    return program.replace(
        constvars=[],
        invars=list(used),
        outvars=[name for name in made if name in needed],
        eqns=list(equations),
    )


def _variables(names: Iterable[Any]) -> dict[Var, None]:
    """Those that are not constants, in order."""
    return dict.fromkeys(name for name in names if not isinstance(name, Literal))
