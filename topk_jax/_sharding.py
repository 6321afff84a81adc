"""Functions of examples whose batch, or whose classes, are split over several devices.

The type of an array has its mesh while a program is traced. Along an Explicit axis, the type also
shows how the array is split: `jax.shard_map` then gives each device its own examples. Along an Auto
axis, the compiler splits the array later: `custom_partitioning` informs it that no example needs
another one. Without a mesh, and inside `jax.shard_map`, there is nothing to do.
"""

import inspect
import itertools
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from topk_jax._checks import integer_array, real_numbers
from topk_jax._compilation import Parameters, Result
from topk_jax._example import check_classes


def allow_split(
    *,
    of: Literal["examples", "entries", "batch"] = "examples",
    derive_keys: Callable[[Any, tuple[int, ...]], Any] | None = None,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorates a function of scores [..., L] that has an argument `class_axis_name`.

    If the name is `None` and the classes are split along Explicit mesh axes, each device calls the
    function for its classes. `of` is what each number of the result belongs to: an example, an
    entry (an example and a class), or the batch. A function of the batch that has no argument
    `axis_name` gets all examples. `derive_keys` makes one key per example from one key.
    """

    def decorated(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)
        first = next(iter(signature.parameters))

        @wraps(function)
        def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            scores: Any = args[0] if args else kwargs.get(first)
            name = kwargs.get("class_axis_name")
            if name is not None or isinstance(scores, jax.Array):
                given = signature.bind(*args, **kwargs).arguments
                check_classes(first, given[first], given.get("labels"), name)
                spec = jax.typeof(scores).sharding.spec if name is None else ()
                if spec and spec[-1] is not None:
                    takes_axis_name = "axis_name" in signature.parameters
                    result: Result = _call_with_classes(
                        function, first, given, of, takes_axis_name, derive_keys
                    )
                    return result
            return function(*args, **kwargs)

        return called

    return decorated


def _call_with_classes(
    function: Callable[..., Any],
    first: str,
    given: dict[str, Any],
    of: str,
    takes_axis_name: bool,
    derive_keys: Callable[[Any, tuple[int, ...]], Any] | None,
) -> Any:
    """Calls the function on each device, for its classes and examples of the first argument."""
    scores = given[first]
    batch_shape = scores.shape[:-1]
    *batch, classes = jax.typeof(scores).sharding.spec
    if of == "batch" and not takes_axis_name:
        # A statistic needs all examples.
        batch = [None] * len(batch)
    if "labels" in given:
        given = given | {"labels": integer_array(given["labels"], "labels", batch_shape)}
    if given.get("key") is not None and derive_keys is not None:
        # The noise of a key depends on the position in the batch, which a device does not know.
        given = given | {"key": derive_keys(given["key"], batch_shape)}
    specs = {}
    for name, value in given.items():
        ndim = np.ndim(value)
        if name in (first, "proposal_logits"):
            spec = PartitionSpec(*batch, classes)
        elif name in ("key", "labels", "where") and value is not None and ndim == len(batch):
            spec = PartitionSpec(*batch)
        elif name == "noise" and ndim > len(batch) + 1:
            spec = PartitionSpec(None, *batch, classes)
        elif name in ("margins", "threshold") and ndim == 1:
            given = given | {name: real_numbers(value, name)}
            spec = PartitionSpec(classes)
        elif isinstance(value, jax.Array):
            spec = PartitionSpec()
        else:
            continue
        specs[name] = spec
    if takes_axis_name and any(batch):
        given = given | {"axis_name": mesh_axes(batch)}
    given = given | {"class_axis_name": classes}
    others = {name: value for name, value in given.items() if name not in specs}

    def call(*arrays: jax.Array) -> Any:
        of_device = dict(zip(specs, arrays, strict=True))
        return function(**of_device, **others)

    results = {"examples": tuple(batch), "entries": (*batch, classes), "batch": ()}
    arrays = tuple(jnp.asarray(given[name]) for name in specs)
    return _map_over_devices(call, arrays, tuple(specs.values()), PartitionSpec(*results[of]))


def _map_over_devices(
    function: Callable[..., Any],
    arrays: tuple[Any, ...],
    specs: tuple[PartitionSpec, ...],
    spec_of_results: PartitionSpec,
) -> Any:
    """`function(*arrays)` on each device, for its parts of the arrays along Explicit mesh axes.

    Each of the arrays may be a tree of arrays; its spec then applies to all of them. Axes without a
    name in the spec stay as they are.
    """
    meshes = (jax.typeof(array).sharding.mesh for array in jax.tree.leaves(arrays))
    mesh = next(mesh for mesh in meshes if not mesh.empty)

    def place(spec: PartitionSpec, array: jax.Array) -> jax.Array:
        taken, given = {*mesh_axes(spec)}, jax.typeof(array).sharding
        if not taken and not given.mesh.empty:
            return array
        parts = (
            other if part is None and not {*mesh_axes([other])} & taken else part
            for part, other in itertools.zip_longest(spec, given.spec)
        )
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


def mesh_axes(spec: Any) -> tuple[Any, ...]:
    """The mesh axes that a spec names."""
    parts = (part if isinstance(part, tuple) else (part,) for part in spec if part is not None)
    return tuple(name for part in parts for name in part)


def may_be_split(array: jax.Array) -> bool:
    """Whether the array may be on several devices, and this is not the code of one device."""
    mesh = jax.typeof(array).sharding.mesh
    return is_split_later(array) or AxisType.Explicit in mesh.axis_types


def is_split_later(array: jax.Array) -> bool:
    """Whether the compiler may split the array over devices: all axes of its mesh are Auto."""
    mesh = jax.typeof(array).sharding.mesh
    return mesh.size > 1 and all(kind == AxisType.Auto for kind in mesh.axis_types)


def gather(array: jax.Array) -> jax.Array:
    """The complete array on each device of its mesh."""
    unsplit = NamedSharding(jax.typeof(array).sharding.mesh, PartitionSpec())
    if is_split_later(array):
        return jax.lax.with_sharding_constraint(array, unsplit)
    is_split = mesh_axes(jax.typeof(array).sharding.spec)
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


def map_examples(
    function: Callable[..., Any],
    batch_ndim: int,
    *arrays: Any,
    shared: tuple[Any, ...] = (),
    reduce: Callable[..., Any] | None = None,
) -> Any:
    """`function(*arrays, *shared)` on each device for its examples, along Explicit axes.

    An example of the results needs no other example, whose axes are the first `batch_ndim` ones of
    all arrays and results. The first array determines how they are split; the others may be trees.
    `reduce` makes results of all devices, as `jax.lax.psum` does.
    """
    batch = PartitionSpec(*jax.typeof(arrays[0]).sharding.spec[:batch_ndim])
    names = mesh_axes(batch)
    if not names:
        return function(*arrays, *shared)

    def reduced(*arrays: Any) -> Any:
        found = function(*arrays)
        return found if reduce is None else reduce(found, names)

    specs = (*(batch for _ in arrays), *(PartitionSpec() for _ in shared))
    results = batch if reduce is None else PartitionSpec()
    return _map_over_devices(reduced, (*arrays, *shared), specs, results)


def sum_examples(
    function: Callable[..., Any], *arrays: jax.Array, shared: tuple[jax.Array, ...] = ()
) -> Any:
    """The tree of sums `function(*arrays, *shared)`: each device adds up its examples.

    The axes of the batch are those of the first array. See `map_examples`.
    """
    return map_examples(function, arrays[0].ndim, *arrays, shared=shared, reduce=jax.lax.psum)


def max_examples(function: Callable[..., Any], *arrays: jax.Array) -> Any:
    """The tree of maxima `function(*arrays)`, as for `sum_examples`."""
    return map_examples(function, arrays[0].ndim, *arrays, reduce=jax.lax.pmax)


def select_from_batch(function: Callable[..., Any], batch_ndim: int, *arrays: jax.Array) -> Any:
    """`function(names, *arrays)` on each device, for a selection from the complete batch.

    `names` are the mesh axes that the batch is split along, for `jax.lax.all_gather`, or `None`.
    The devices are in the order of the examples if only the first axis of the batch is split. No
    gradient may flow through it.
    """
    if not is_split_later(arrays[0]):
        names = mesh_axes(jax.typeof(arrays[0]).sharding.spec[:batch_ndim])
        return map_examples(partial(function, names or None), batch_ndim, *arrays)
    of_one = partial(function, None)
    of_batch = custom_vmap(_partition(of_one, batch_ndim, function))

    # The batches of a `vmap` are not parts of one batch: the compiler splits them.
    @of_batch.def_vmap
    def _(_: int, is_mapped: list[bool], *arrays: jax.Array) -> tuple[Any, Any]:
        axes = [0 if is_one else None for is_one in is_mapped]
        result = jax.vmap(of_one, in_axes=axes)(*arrays)
        return result, jax.tree.map(lambda _: True, result)

    return of_batch(*arrays)


def select_by_example(
    function: Callable[..., Any],
    batch_ndim: int,
    *arrays: jax.Array,
    of_split: Callable[..., Any] | None = None,
    of_classes: tuple[int, ...] = (),
) -> Any:
    """`map_examples`, along Auto axes too; no gradient may flow through it.

    If the compiler splits the classes, `of_split(names, *arrays)` takes the place of the function
    on a device that has only its classes. `names` are their mesh axes. `of_classes` are the places
    of the arrays whose last axis has the classes, the first one among them.
    """
    if not is_split_later(arrays[0]):
        return map_examples(function, batch_ndim, *arrays)
    of_batch = custom_vmap(_partition(function, batch_ndim, of_split, of_classes))

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


def _partition(
    function: Callable[..., Any],
    batch_ndim: int,
    of_split: Callable[..., Any] | None = None,
    of_classes: tuple[int, ...] = (),
) -> Callable[..., Any]:
    """The function, marked for the compiler: an example of its results needs no other example.

    On a device that has only a part, `of_split(names, *arrays)` takes its place, if it is given:
    with `of_classes` a part of the classes of these arrays, and a part of the batch otherwise.
    """

    def partition(mesh: Mesh, arguments: Any, results: Any) -> Any:
        first = arguments[0]
        ndim, spec = len(first.shape), first.sharding.spec

        def divided(*parts: Any) -> tuple[Any, ...]:
            """The parts, without names if the shape is not divisible: padding would count."""
            try:
                NamedSharding(mesh, PartitionSpec(*parts)).shard_shape(first.shape)
            except ValueError:
                return (None,) * len(parts)
            return parts

        batch = divided(*spec[:batch_ndim], *(None,) * (batch_ndim - len(spec)))
        last = spec[-1] if of_classes and len(spec) == ndim else None
        classes = divided(*(None,) * (ndim - 1), last)[-1]

        def placed(number: int, array: Any) -> NamedSharding:
            if number not in of_classes:
                return NamedSharding(mesh, PartitionSpec(*batch))
            others = (None,) * (len(array.shape) - batch_ndim - 1)
            return NamedSharding(mesh, PartitionSpec(*batch, *others, classes))

        names = classes if of_classes else mesh_axes(batch)
        on_device = partial(of_split, names) if of_split is not None and names else function
        of_results = jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec(*batch)), results)
        return mesh, on_device, of_results, tuple(itertools.starmap(placed, enumerate(arguments)))

    def rule(_: Any, arguments: Any, results: Any) -> tuple[str, dict[str, Any]]:
        def axes_of(number: int, array: Any) -> list[str]:
            batch = [f"b{axis}" for axis in range(batch_ndim)]
            others = [f"w{number}_{axis}" for axis in range(len(array.shape) - batch_ndim)]
            return [*batch, *others[:-1], "c"] if number in of_classes else batch + others

        axes = list(itertools.starmap(axes_of, enumerate([*arguments, *results])))
        words, number = [" ".join(of_array) for of_array in axes], len(arguments)
        whole = tuple(name for of_array in axes for name in of_array if name.startswith("w"))
        sides = f"{', '.join(words[:number])} -> {', '.join(words[number:])}"
        return sides, {"need_replication_factors": whole}

    result = custom_partitioning(function)
    result.def_partition(partition, sharding_rule=rule)
    return result
