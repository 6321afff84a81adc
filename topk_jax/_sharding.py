"""Maps functions of independent examples over a batch that is split over several devices.

The type of an array has its mesh while a program is traced. Along an Explicit axis, the type also
shows how the array is split: `jax.shard_map` then gives each device its own examples. Along an Auto
axis, the compiler splits the array later: `custom_partitioning` informs it that no example needs
another one. Without a mesh, and inside `jax.shard_map`, there is nothing to do.
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
from jax.tree_util import keystr


def map_over_devices(
    function: Callable[..., Any],
    arrays: tuple[Any, ...],
    specs: tuple[PartitionSpec, ...],
    spec_of_results: PartitionSpec,
    *,
    gathers: bool = True,
) -> Any:
    """`function(*arrays)` on each device, for its parts of the arrays along Explicit mesh axes.

    Each of the arrays may be a tree of arrays; its spec then applies to all of them. Axes for which
    the spec has `None` are gathered. Without `gathers` they stay as they are, like axes beyond the
    spec.
    """
    meshes = (jax.typeof(array).sharding.mesh for array in jax.tree.leaves(arrays))
    mesh = next(mesh for mesh in meshes if not mesh.empty)

    def place(spec: PartitionSpec, array: jax.Array) -> jax.Array:
        taken, given = {*mesh_axes(spec)}, jax.typeof(array).sharding
        if not taken and not given.mesh.empty:
            return array
        parts = list(spec) if gathers else []
        size = len(parts)
        for part, other in itertools.zip_longest([*spec][size:], given.spec[size:]):
            is_free = not {*mesh_axes(PartitionSpec(other))} & taken
            parts.append(other if part is None and is_free else part)
        return jax.sharding.reshard(array, NamedSharding(mesh, PartitionSpec(*parts)))

    placed = (
        jax.tree.map(partial(place, spec), array) for spec, array in zip(specs, arrays, strict=True)
    )
    on_each = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=specs,
        out_specs=spec_of_results,
        axis_names={name for spec in specs for name in mesh_axes(spec)},
    )
    # Outside jit, shard_map needs the concrete mesh, and an array only carries the abstract one.
    return jax.jit(on_each)(*placed)


def call_on_devices(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    specs: dict[str, PartitionSpec],
    spec_of_results: PartitionSpec,
) -> Any:
    """`function(**arguments)` on each device: see `map_over_devices`.

    Leaves of the arguments that are not JAX arrays are static. The specs have the names of leaves,
    such as "head.weights". Leaves without a spec, and axes for which a spec has `None`, stay as
    they are.
    """
    leaves, tree = jax.tree.flatten_with_path(arguments)
    arrays = {
        place: (leaf, specs.get(keystr(path, simple=True, separator="."), PartitionSpec()))
        for place, (path, leaf) in enumerate(leaves)
        if isinstance(leaf, jax.Array)
    }

    def call(*parts: jax.Array) -> Any:
        own = dict(zip(arrays, parts, strict=True))
        filled = [own.get(place, leaf) for place, (_, leaf) in enumerate(leaves)]
        return function(**jax.tree.unflatten(tree, filled))

    given, specs_of_arrays = zip(*arrays.values(), strict=True)
    return map_over_devices(call, given, specs_of_arrays, spec_of_results, gathers=False)


def may_be_split(array: jax.Array) -> bool:
    """Whether the array may be on several devices, and this is not the code of one device."""
    mesh = jax.typeof(array).sharding.mesh
    return any(
        kind == AxisType.Explicit or (kind == AxisType.Auto and mesh.size > 1)
        for kind in mesh.axis_types
    )


def is_split_later(array: jax.Array) -> bool:
    """Whether the compiler may split the array over devices: all axes of its mesh are Auto."""
    mesh = jax.typeof(array).sharding.mesh
    return mesh.size > 1 and all(kind == AxisType.Auto for kind in mesh.axis_types)


def map_examples(
    function: Callable[..., Any], batch_ndim: int, *arrays: Any, shared: tuple[Any, ...] = ()
) -> Any:
    """`function(*arrays, *shared)` on each device for its examples, along Explicit axes.

    Args:
        function: takes arrays of any batch shape; an example of its results needs no other example.
        batch_ndim: how many axes the batch has. They come first, in all arrays and in all results.
        arrays: the first one determines how the batch is split. The others may be trees of arrays.
        shared: arrays that all examples share.
    """
    spec = _batch_spec(arrays[0], batch_ndim)
    if not mesh_axes(spec):
        return function(*arrays, *shared)
    specs = (*(spec for _ in arrays), *(PartitionSpec() for _ in shared))
    return map_over_devices(function, (*arrays, *shared), specs, spec)


def select_from_batch(function: Callable[..., Any], batch_ndim: int, *arrays: jax.Array) -> Any:
    """`function(names, *arrays)` on each device, for a selection from the complete batch.

    `names` are the mesh axes that the batch is split along, for `jax.lax.all_gather`, or `None`.
    The devices are in the order of the examples if only the first axis of the batch is split. No
    gradient may flow through it. See `map_examples` for the other arguments.
    """
    if is_split_later(arrays[0]):
        of_batch = custom_vmap(_partition(partial(function, None), batch_ndim, function))

        # The batches of a `vmap` are not parts of one batch: the compiler splits them.
        @of_batch.def_vmap
        def _(_: int, is_mapped: list[bool], *arrays: jax.Array) -> tuple[Any, Any]:
            axes = [0 if is_one else None for is_one in is_mapped]
            result = jax.vmap(partial(function, None), in_axes=axes)(*arrays)
            return result, jax.tree.map(lambda _: True, result)

        return of_batch(*arrays)
    spec = _batch_spec(arrays[0], batch_ndim)
    names = mesh_axes(spec)
    if not names:
        return function(None, *arrays)
    specs = (spec,) * len(arrays)
    return map_over_devices(partial(function, names), arrays, specs, spec)


def sum_examples(
    function: Callable[..., Any], *arrays: jax.Array, shared: tuple[jax.Array, ...] = ()
) -> Any:
    """The tree of sums `function(*arrays, *shared)`: each device adds up its examples.

    The axes of the batch are the axes of the first array, which determines how the batch is split.
    All examples share the arrays in `shared`.
    """
    return _reduce_examples(jax.lax.psum, function, arrays, shared)


def max_examples(function: Callable[..., Any], *arrays: jax.Array) -> Any:
    """The tree of maxima `function(*arrays)`, as for `sum_examples`."""
    return _reduce_examples(jax.lax.pmax, function, arrays, ())


def _reduce_examples(
    reduce: Callable[..., Any],
    function: Callable[..., Any],
    arrays: tuple[jax.Array, ...],
    shared: tuple[jax.Array, ...],
) -> Any:
    spec = _batch_spec(arrays[0], arrays[0].ndim)
    names = mesh_axes(spec)
    if not names:
        return function(*arrays, *shared)

    def reduce_parts(*arrays: jax.Array) -> Any:
        return reduce(function(*arrays), names)

    specs = (*(spec for _ in arrays), *(PartitionSpec() for _ in shared))
    return map_over_devices(reduce_parts, (*arrays, *shared), specs, PartitionSpec())


def gather(array: jax.Array) -> jax.Array:
    """The complete array on each device of its mesh."""
    unsplit = NamedSharding(jax.typeof(array).sharding.mesh, PartitionSpec())
    if is_split_later(array):
        return jax.lax.with_sharding_constraint(array, unsplit)
    is_split = mesh_axes(_batch_spec(array, array.ndim))
    return jax.sharding.reshard(array, unsplit) if is_split else array


def unify(*arrays: Any) -> Any:
    """The arrays, all varying over the same axes of `shard_map`.

    Under `shard_map` the type of an array shows whether it varies over the devices. The carry of a
    loop must have the type of its initial value, and the gradients of a custom rule must have the
    types of its arguments. The transpose of this function sums over the devices.
    """
    leaves = jax.tree.leaves(arrays)
    names = frozenset().union(*(jax.typeof(leaf).mat.varying for leaf in leaves))

    def varying(array: jax.Array) -> jax.Array:
        missing = tuple(names - jax.typeof(array).mat.varying)
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return jax.tree.map(varying, arrays)


def select_by_example(
    function: Callable[..., Any],
    batch_ndim: int,
    *arrays: jax.Array,
    of_split: Callable[..., Any] | None = None,
    of_classes: tuple[int, ...] = (),
) -> Any:
    """`function(*arrays)` on each device for its examples, along Explicit and Auto axes.

    No gradient may flow through it. See `map_examples` for the other arguments.

    Args:
        function: computes the results from all classes of each example.
        batch_ndim: how many axes the batch has.
        arrays: the first one determines how the batch is split.
        of_split: `of_split(names, *arrays)` computes them on a device that has only its classes.
            `names` are the Auto axes that the classes are split along.
        of_classes: the places of the arrays whose last axis has the classes, the first one among
            them.
    """
    if not may_be_split(arrays[0]):
        return function(*arrays)

    @custom_vmap
    def of_batch(*arrays: jax.Array) -> Any:
        if is_split_later(arrays[0]):
            return _partition(function, batch_ndim, of_split, of_classes)(*arrays)
        return map_examples(function, batch_ndim, *arrays)

    # An axis of `vmap` is one more axis of the batch.
    @of_batch.def_vmap
    def _(size: int, is_mapped: list[bool], *arrays: jax.Array) -> tuple[Any, Any]:
        mapped = (
            array if is_one else jnp.broadcast_to(array[None], (size, *array.shape))
            for array, is_one in zip(arrays, is_mapped, strict=True)
        )
        result = select_by_example(
            function, batch_ndim + 1, *mapped, of_split=of_split, of_classes=of_classes
        )
        return result, jax.tree.map(lambda _: True, result)

    return of_batch(*arrays)


def _batch_spec(array: jax.Array, batch_ndim: int) -> PartitionSpec:
    """How the axes of the batch are split along Explicit mesh axes."""
    return PartitionSpec(*jax.typeof(array).sharding.spec[:batch_ndim])


def mesh_axes(split: PartitionSpec) -> tuple[Any, ...]:
    """The mesh axes that a spec names."""
    parts = (part if isinstance(part, tuple) else (part,) for part in split if part is not None)
    return tuple(name for part in parts for name in part)


def _partition(
    function: Callable[..., Any],
    batch_ndim: int,
    of_split: Callable[..., Any] | None = None,
    of_classes: tuple[int, ...] = (),
) -> Callable[..., Any]:
    """The function, marked for the compiler: an example of its results needs no other example.

    On a device that has only a part, `of_split(names, *arrays)` takes its place, if it is given.
    With `of_classes`, this is a part of the classes of these arrays, and a part of the batch
    otherwise. `names` are the mesh axes that they are split along.
    """

    def if_divided(mesh: Mesh, spec: PartitionSpec, shape: tuple[int, ...]) -> PartitionSpec:
        try:
            NamedSharding(mesh, spec).shard_shape(shape)
        except ValueError:
            # Padding would count as examples or classes.
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
        names = classes if of_classes else mesh_axes(split)
        on_device = partial(of_split, names) if of_split is not None and names else function
        return mesh, on_device, of_results, of_arguments

    def rule(_: Any, arguments: Any, results: Any) -> tuple[str, dict[str, Any]]:
        batch = [f"b{axis}" for axis in range(batch_ndim)]
        others: list[str] = []

        def factors(number: int, kind: Any) -> str:
            own = [f"w{number}_{axis}" for axis in range(len(kind.shape) - batch_ndim)]
            ending = [own.pop() and "c"] if number in of_classes else []
            others.extend(own)
            return " ".join([*batch, *own, *ending])

        words = [factors(number, kind) for number, kind in enumerate([*arguments, *results])]
        sides = (", ".join(part) for part in (words[: len(arguments)], words[len(arguments) :]))
        return " -> ".join(sides), {"need_replication_factors": tuple(others)}

    result = custom_partitioning(function)
    result.def_partition(
        partition, infer_sharding_from_operands=infer, sharding_rule=rule, decode_shardings=True
    )
    return result
