"""Work on each example alone, in a batch that lies on several devices.

An array tells its mesh while a program is traced. Along an Explicit axis it also tells how it is
split: `jax.shard_map` then gives each device its own examples. Along an Auto axis the compiler
splits the array later, and `custom_partitioning` tells it that no example needs another one.
Elsewhere, and in `jax.shard_map` itself, there is nothing to do.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def mapped(
    function: Callable[[Any], Any],
    mesh: Any,
    arrays: dict[str, Any],
    specs: dict[str, PartitionSpec],
    split_of_results: PartitionSpec,
) -> Any:
    """`function(arrays)` by each device, along the Explicit axes of the specs.

    Other axes stay as they are.
    """

    def placed(array: jax.Array, spec: PartitionSpec) -> jax.Array:
        others = jax.typeof(array).sharding.spec
        taken = names_of(spec)
        parts = [
            part if part is not None or {*names_of(PartitionSpec(other))} & {*taken} else other
            for part, other in itertools.zip_longest(spec, others)
        ]
        return jax.sharding.reshard(array, NamedSharding(mesh, PartitionSpec(*parts)))

    names = {name for spec in specs.values() for name in names_of(spec)}
    shares = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(specs,),
        out_specs=split_of_results,
        axis_names=names,
    )
    # Without jit a map would need the mesh of the devices, which an array does not tell.
    return jax.jit(shares)({name: placed(arrays[name], specs[name]) for name in arrays})


def may_be_split(array: jax.Array) -> bool:
    """Whether the array may be on several devices, and this code is not that of one of them."""
    mesh = jax.typeof(array).sharding.mesh
    return any(
        kind == AxisType.Explicit or (kind == AxisType.Auto and mesh.size > 1)
        for kind in mesh.axis_types
    )


def is_split_later(array: jax.Array) -> bool:
    """Whether the compiler may split the array over devices: all axes of its mesh are Auto."""
    mesh = jax.typeof(array).sharding.mesh
    return mesh.size > 1 and all(kind == AxisType.Auto for kind in mesh.axis_types)


def on_each_device(
    function: Callable[..., Any], batch_ndim: int, *arrays: Any, shared: tuple[Any, ...] = ()
) -> Any:
    """`function(*arrays, *shared)`, by each device for its own examples along Explicit axes.

    Args:
        function: takes arrays of any batch shape; an example of its results needs no other example.
        batch_ndim: how many axes the batch has. They come first, in all arrays and in all results.
        arrays: the first one determines how the batch is split. Others may be trees of arrays.
        shared: arrays that all examples share.
    """
    split = _split(arrays[0], batch_ndim)
    if not names_of(split):
        return function(*arrays, *shared)
    return _mapped(function, split, split, arrays, shared)


def selected_among_devices(
    function: Callable[..., Any], batch_ndim: int, *arrays: jax.Array
) -> Any:
    """`function(names, *arrays)`, by each device, for a selection from the whole batch.

    `names` are the mesh axes that the batch is split along, for `jax.lax.all_gather`, or `None`.
    The devices come in the order of the examples if the first axis of the batch alone is split. No
    gradient may flow through it. See `on_each_device` for the other arguments.
    """
    if is_split_later(arrays[0]):
        of_batch = custom_vmap(_partitioned(function, batch_ndim, takes_names=True))

        # The batches of a `vmap` are no shares of one batch: the compiler splits these.
        @of_batch.def_vmap
        def _(_: int, is_mapped: list[bool], *arrays: jax.Array) -> tuple[Any, Any]:
            axes = [0 if is_one else None for is_one in is_mapped]
            result = jax.vmap(partial(function, None), in_axes=axes)(*arrays)
            return result, jax.tree.map(lambda _: True, result)

        return of_batch(*arrays)
    split = _split(arrays[0], batch_ndim)
    names = names_of(split)
    if not names:
        return function(None, *arrays)
    return _mapped(partial(function, names), split, split, arrays, ())


def summed_over_devices(function: Callable[..., Any], *arrays: jax.Array) -> Any:
    """The tree of sums `function(*arrays)`, by adding up those of the devices' own examples.

    The arrays have one shape, that of the batch; the first one determines how it is split.
    """
    split = _split(arrays[0], arrays[0].ndim)
    names = names_of(split)
    if not names:
        return function(*arrays)

    def summed(*arrays: jax.Array) -> Any:
        return jax.lax.psum(function(*arrays), names)

    return _mapped(summed, split, PartitionSpec(), arrays, ())


def gathered(array: jax.Array) -> jax.Array:
    """The array, whole on each device of its mesh."""
    whole = NamedSharding(jax.typeof(array).sharding.mesh, PartitionSpec())
    if is_split_later(array):
        return jax.lax.with_sharding_constraint(array, whole)
    is_split = names_of(_split(array, array.ndim))
    return jax.sharding.reshard(array, whole) if is_split else array


def selected_on_each_device(
    function: Callable[..., Any],
    batch_ndim: int,
    *arrays: jax.Array,
    of_classes: tuple[int, ...] = (),
) -> Any:
    """`function(*arrays)`, by each device for its own examples along Explicit and Auto axes.

    No gradient may flow through it. See `on_each_device` for the other arguments. `of_classes` are
    the arrays, among them the first one, whose last axis has the classes. Along Auto axes each
    device then has its own classes of these, and the function takes the mesh axes that they are
    split along, or `None`, as its first argument.
    """
    of_whole_rows = partial(function, None) if of_classes else function
    if not may_be_split(arrays[0]):
        return of_whole_rows(*arrays)

    @custom_vmap
    def of_batch(*arrays: jax.Array) -> Any:
        if is_split_later(arrays[0]):
            return _partitioned(function, batch_ndim, of_classes=of_classes)(*arrays)
        return on_each_device(of_whole_rows, batch_ndim, *arrays)

    # An axis of `vmap` is one more axis of the batch.
    @of_batch.def_vmap
    def _(size: int, is_mapped: list[bool], *arrays: jax.Array) -> tuple[Any, Any]:
        mapped = (
            array if is_one else jnp.broadcast_to(array[None], (size, *array.shape))
            for array, is_one in zip(arrays, is_mapped, strict=True)
        )
        result = selected_on_each_device(function, batch_ndim + 1, *mapped, of_classes=of_classes)
        return result, jax.tree.map(lambda _: True, result)

    return of_batch(*arrays)


def _split(array: jax.Array, batch_ndim: int) -> PartitionSpec:
    """How the batch is split along Explicit axes."""
    return PartitionSpec(*jax.typeof(array).sharding.spec[:batch_ndim])


def names_of(split: PartitionSpec) -> tuple[Any, ...]:
    """The mesh axes that a batch is split along."""
    parts = (part if isinstance(part, tuple) else (part,) for part in split if part is not None)
    return tuple(name for part in parts for name in part)


def _mapped(
    function: Callable[..., Any],
    split: PartitionSpec,
    split_of_results: PartitionSpec,
    arrays: tuple[Any, ...],
    shared: tuple[Any, ...],
) -> Any:
    """The function, mapped over the devices along the axes of `split`."""
    mesh = jax.typeof(jax.tree.leaves(arrays)[0]).sharding.mesh

    def placed(array: jax.Array) -> jax.Array:
        own = jax.typeof(array).sharding.spec[len(split) :]
        return jax.sharding.reshard(array, NamedSharding(mesh, PartitionSpec(*split, *own)))

    mapped = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(*(split for _ in arrays), *(PartitionSpec() for _ in shared)),
        out_specs=split_of_results,
        axis_names=set(names_of(split)),
    )
    # Without jit a map would need the mesh of the devices, which an array does not tell.
    return jax.jit(mapped)(*jax.tree.map(placed, arrays), *shared)


def _partitioned(
    function: Callable[..., Any],
    batch_ndim: int,
    *,
    takes_names: bool = False,
    of_classes: tuple[int, ...] = (),
) -> Callable[..., Any]:
    """The function, of which the compiler knows that it needs no other examples.

    With `takes_names` its first argument is the mesh axes that the batch is split along, or `None`;
    with `of_classes` those that the classes of these arguments are split along. The compiler knows
    that it needs all else of an example.
    """

    def if_divided(mesh: Mesh, spec: PartitionSpec, shape: tuple[int, ...]) -> PartitionSpec:
        try:
            NamedSharding(mesh, spec).shard_shape(shape)
        except ValueError:
            # Padding would be examples or classes, too.
            return PartitionSpec()
        return spec

    def split_of(mesh: Mesh, arguments: Any) -> PartitionSpec:
        first = jax.tree.leaves(arguments)[0]
        spec = PartitionSpec(*first.sharding.spec[:batch_ndim])
        return if_divided(mesh, spec, first.shape)

    def classes_of(mesh: Mesh, arguments: Any) -> Any:
        first = jax.tree.leaves(arguments)[0]
        if not of_classes or len(first.sharding.spec) < len(first.shape):
            return None
        others = (None,) * (len(first.shape) - 1)
        spec = if_divided(mesh, PartitionSpec(*others, first.sharding.spec[-1]), first.shape)
        return spec[-1] if spec else None

    def infer(mesh: Mesh, arguments: Any, results: Any) -> Any:
        split = NamedSharding(mesh, split_of(mesh, arguments))
        return jax.tree.map(lambda _: split, results)

    def partition(mesh: Mesh, arguments: Any, results: Any) -> Any:
        split, classes = split_of(mesh, arguments), classes_of(mesh, arguments)

        def of_argument(number: int, shape: Any) -> NamedSharding:
            if number not in of_classes:
                return NamedSharding(mesh, split)
            batch = (*split, *(None,) * (len(shape.shape) - 1 - len(split)))
            return NamedSharding(mesh, PartitionSpec(*batch, classes))

        of_arguments = tuple(of_argument(*numbered) for numbered in enumerate(arguments))
        of_results = jax.tree.map(lambda _: NamedSharding(mesh, split), results)
        names = classes if of_classes else names_of(split) or None
        return mesh, with_names(names), of_results, of_arguments

    def with_names(names: Any) -> Callable[..., Any]:
        return partial(function, names) if takes_names or of_classes else function

    def rule(_: Any, arguments: Any, results: Any) -> tuple[str, dict[str, Any]]:
        batch = [f"b{axis}" for axis in range(batch_ndim)]
        whole = []

        def factors(number: int, kind: Any) -> str:
            own = [f"w{number}_{axis}" for axis in range(len(kind.shape) - batch_ndim)]
            ending = [own.pop() and "c"] if number in of_classes else []
            whole.extend(own)
            return " ".join([*batch, *own, *ending])

        words = [factors(number, kind) for number, kind in enumerate([*arguments, *results])]
        sides = (", ".join(part) for part in (words[: len(arguments)], words[len(arguments) :]))
        return " -> ".join(sides), {"need_replication_factors": tuple(whole)}

    result = custom_partitioning(with_names(None))
    result.def_partition(
        partition, infer_sharding_from_operands=infer, sharding_rule=rule, decode_shardings=True
    )
    return result
