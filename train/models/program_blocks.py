"""The program of a function, cut into blocks that are computed one after another.

`jax.make_jaxpr` writes a function down as equations, each of which computes variables from others.
A function can mark an array with a name by `jax.ad_checkpoint.checkpoint_name`. The equations are
cut after those marks. `jax.extend.core` is what JAX offers for programs that read programs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun


@dataclass(frozen=True)
class Block:
    """Consecutive equations of a program.

    Attributes:
        inputs: the variables that they use and do not compute.
        outputs: the variables that they compute for later blocks, or for the caller.
        compute: the values of the inputs to the values of the outputs.
    """

    inputs: Sequence[Var]
    outputs: Sequence[Var]
    compute: Callable[..., Sequence[jax.Array]]


@dataclass(frozen=True)
class Program:
    """A function of a tree of arrays.

    Attributes:
        inputs: the variables of these arrays.
        constants: other variables whose values are known.
        blocks: what it computes, in order.
        results: the variables that it returns, or numbers.
        structure: the tree of the results.
    """

    inputs: Sequence[Var]
    constants: Mapping[Var, jax.Array]
    blocks: Sequence[Block]
    results: Sequence[Var | Literal]
    structure: Any

    def result(self, values: Mapping[Var, jax.Array]) -> Any:
        """What the function returns, from the values of all variables."""
        found = [one.val if isinstance(one, Literal) else values[one] for one in self.results]
        return jax.tree.unflatten(self.structure, found)


def cut(function: Callable[[Any], Any], argument: Any, *, mark: str) -> Program:
    """The program of a function, each of whose blocks but the last ends with an array of that name.

    Args:
        function: the function.
        argument: the shapes of its argument.
        mark: the name of the arrays.
    """
    traced, result = jax.make_jaxpr(function, return_shape=True)(argument)
    program = traced.jaxpr
    parts: list[list[JaxprEqn]] = [[]]
    for equation in program.eqns:
        parts[-1].append(equation)
        if equation.params.get("name") == mark:
            parts.append([])
    # From the last part on: the outputs of a part are what those after it need.
    needed, blocks = _variables(program.outvars), []
    for part in reversed(parts):
        computed = dict.fromkeys(name for equation in part for name in equation.outvars)
        used = _variables(name for equation in part for name in equation.invars)
        inputs = [name for name in used if name not in computed]
        blocks.append(_block(program, part, inputs, [name for name in computed if name in needed]))
        needed |= used
    return Program(
        inputs=program.invars,
        constants=dict(zip(program.constvars, traced.consts, strict=True)),
        blocks=blocks[::-1],
        results=program.outvars,
        structure=jax.tree.structure(result),
    )


def _block(
    program: Jaxpr, equations: Sequence[JaxprEqn], inputs: Sequence[Var], outputs: Sequence[Var]
) -> Block:
    """These equations of a program."""
    alone = program.replace(
        constvars=[], invars=list(inputs), outvars=list(outputs), eqns=list(equations)
    )
    return Block(inputs, outputs, jaxpr_as_fun(ClosedJaxpr(alone, ())))


def _variables(names: Iterable[Var | Literal]) -> dict[Var, None]:
    """Those that are not numbers, in order."""
    return dict.fromkeys(name for name in names if not isinstance(name, Literal))
