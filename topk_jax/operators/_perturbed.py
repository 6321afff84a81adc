"""Top-k operators smoothed with Gaussian noise, with the gradients of Garcin et al."""

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _classes, _numerics, _selection, _sharding
from topk_jax.operators import _normals
from topk_jax.operators._top_k import (
    classes_last,
    kth_largest,
    largest,
    merged_among_devices,
    pad_for_selection,
)

__all__ = ["perturbed_top_k_sum", "perturbed_top_k_value"]

# The largest number of normals drawn at once. On the CPU they fit in the cache; elsewhere they are
# small compared to the memory.
_GROUP_SIZE = {"cpu": 2**19}
_GROUP_SIZE_OF_OTHERS = 2**24


def perturbed_top_k_sum(
    key: jax.Array | None,
    scores: ArrayLike,
    k: int,
    *,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None = None,
    axis: int = -1,
    implementation: Literal["xla", "pallas"] = "xla",
) -> jax.Array:
    r"""The sum of the k largest scores, averaged over Gaussian perturbations of the scores.

    .. math::
        \frac1M \sum_{m=1}^M \mathrm{top}\Sigma_k(s + \varepsilon Z_m), \qquad
        \nabla = \frac1M \sum_{m=1}^M \arg \mathrm{top}\Sigma_k(s + \varepsilon Z_m),
        \qquad Z_m \sim \mathcal N(0, I_L)

    The gradient is the frequency of each class among the k largest. The value and the gradient are
    unbiased estimates of those of the smoothed operator. The backward pass stores only the selected
    coordinates. Only reverse mode is supported. The gradient is piecewise constant, so second
    derivatives are zero.

    Args:
        key: one random key, or an array of keys of the batch's shape; `None` if `noise` is given.
            With one key per example, the noise of an example does not depend on its batch. With one
            key for all, it depends on the position of the example in the batch.
        scores: floating-point array with L entries along `axis`.
        k: static number of scores to add up, from 1 to L.
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_sum`. May be traced, and has a gradient.
        num_samples: static number M of perturbations, at least 1.
        noise: standard normal noise to use instead of a key, `[M, *scores.shape]`. It is a
            constant: no gradient flows to it.
        axis: the axis of the classes.
        implementation: "xla", or "pallas" for one kernel on GPU and TPU, with the same noise: for
            float32, with a key, and a batch size that is known. On the CPU it is slow, for tests,
            and in `shard_map` needs `check_vma=False`. No measurement says yet that it is faster.

    Returns:
        The scores' shape without `axis`, in float32 or float64; NaN where a score is NaN or +inf.

    Raises:
        TypeError: `scores` or `noise` is not floating-point, `k`, `num_samples` or `axis` is not a
            static integer, or `key` is not a random key.
        ValueError: an argument is outside its range or has the wrong shape, or not exactly one of
            `key` and `noise` is given.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.5, 2.75, 2.25, 0.5])
        >>> def smoothed(scores):
        ...     return operators.perturbed_top_k_sum(
        ...         jax.random.key(0), scores, 2, epsilon=1e-3, num_samples=10)
        >>> value, gradient = jax.value_and_grad(smoothed)(scores)
        >>> print(f"{value:.2f}", gradient)
        5.25 [1. 1. 0. 0.]

    Source: Garcin et al. (2022); thesis, equations 4.6, 4.7 and 4.11. Berthet et al. (2020),
    "Learning with differentiable perturbed optimizers".
    """
    return _perturbed(
        key, scores, k, epsilon, num_samples, noise, axis, implementation, only_last=False
    )


def perturbed_top_k_value(
    key: jax.Array | None,
    scores: ArrayLike,
    k: int,
    *,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None = None,
    axis: int = -1,
    implementation: Literal["xla", "pallas"] = "xla",
) -> jax.Array:
    r"""The k-th largest score, averaged over Gaussian perturbations of the scores.

    .. math::
        \hat\tau_{k,\varepsilon,M}(s) = \frac1M \sum_{m=1}^M (s + \varepsilon Z_m)_{[k]}
        = \mathrm{top}\Sigma_{k,\varepsilon,M}(s) - \mathrm{top}\Sigma_{k-1,\varepsilon,M}(s),
        \qquad Z_m \sim \mathcal N(0, I_L)

    The gradient is the share of the perturbations in which each class has rank k. Only reverse
    mode is supported. The gradient is piecewise constant, so second derivatives are zero.

    Args:
        key: one random key, or an array of keys of the batch's shape; `None` if `noise` is given.
            With one key per example, the noise of an example does not depend on its batch. With one
            key for all, it depends on the position of the example in the batch.
        scores: floating-point array with L entries along `axis`.
        k: static rank, from 1 (the largest) to L.
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0;
            0 gives `top_k_value`. May be traced, and has a gradient.
        num_samples: static number M of perturbations, at least 1.
        noise: standard normal noise to use instead of a key, `[M, *scores.shape]`. It is a
            constant: no gradient flows to it.
        axis: the axis of the classes.
        implementation: "xla", or "pallas" for one kernel on GPU and TPU, with the same noise: for
            float32, with a key, and a batch size that is known. On the CPU it is slow, for tests,
            and in `shard_map` needs `check_vma=False`. No measurement says yet that it is faster.

    Returns:
        The scores' shape without `axis`, in float32 or float64; NaN where a score is NaN or +inf.

    Raises:
        TypeError: `scores` or `noise` is not floating-point, `k`, `num_samples` or `axis` is not a
            static integer, or `key` is not a random key.
        ValueError: an argument is outside its range or has the wrong shape, or not exactly one of
            `key` and `noise` is given.

    Example:
        The example of the paper, with its three noise vectors:

        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import operators
        >>> scores = jnp.array([2.4, 2.6, 2.3, 0.5])
        >>> noise = jnp.array(
        ...     [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]])
        >>> def smoothed(scores):
        ...     return operators.perturbed_top_k_value(
        ...         None, scores, 2, epsilon=1.0, num_samples=3, noise=noise)
        >>> value, gradient = jax.value_and_grad(smoothed)(scores)
        >>> print(f"{value:.4f}")
        2.4667
        >>> print(gradient.round(4))
        [0.3333 0.3333 0.3333 0.    ]

    Source: Garcin et al. (2022); thesis, definition 4.3.4, equation 4.12 and its illustration.
    """
    return _perturbed(
        key, scores, k, epsilon, num_samples, noise, axis, implementation, only_last=True
    )


def _perturbed(
    key: jax.Array | None,
    scores: ArrayLike,
    k: int,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None,
    axis: int,
    implementation: str,
    *,
    only_last: bool,
    class_axis_name: Hashable | None = None,
) -> jax.Array:
    last = classes_last(scores, axis)
    k = _checks.rank(k, _classes.count(last, class_axis_name))
    num_samples = _checks.whole_number(num_samples, "num_samples", minimum=1)
    epsilon = _checks.scalar(epsilon, "epsilon", last.dtype, at_least=0)
    if (key is None) == (noise is None):
        given = "neither" if key is None else "both"
        raise ValueError(f"exactly one of key and noise must be given, got {given}.")
    _check_implementation(implementation, last.dtype, noise, class_axis_name)
    batch_shape = last.shape[:-1]
    num_rows = math.prod(batch_shape)
    if noise is None:
        keys = _checks.random_keys(key, "key", batch_shape)
        # One key with a single example is that example's key, so `vmap` over keys changes nothing.
        keys = keys.reshape(1) if last.ndim == 1 else keys
        source = _normals.row_words(keys, num_rows).reshape(*batch_shape, 2)
    else:
        source = jnp.moveaxis(_given_noise(noise, num_samples, scores, axis, last), 0, -2)
    if num_rows == 0:
        return jnp.zeros(batch_shape, last.dtype)
    of_example = tuple(range(len(batch_shape), source.ndim))
    zeros = jnp.zeros_like(source).sum(axis=of_example).astype(last.dtype)
    # Under shard_map the type of an array says whether it varies over the devices. The gradients of
    # a custom rule must have the types of its arguments. Adding zeros that are computed from the
    # other arguments gives all of them one type; its transpose sums over devices. This also carries
    # a NaN in epsilon to the gradients.
    last += (zeros + 0 * epsilon)[..., None]
    if class_axis_name is None:
        epsilons = epsilon + jnp.zeros_like(last[..., 0])
        values = _mean_selected(only_last, k, num_samples, implementation, last, epsilons, source)
    else:
        values = _mean_kth_of_split(k, num_samples, last, epsilon, source, class_axis_name)
    if noise is not None:
        # The selection could hide a NaN in the noise, as it could in the scores.
        last += jnp.where(jnp.isnan(source).any(axis=-2), jnp.nan, 0.0).astype(last.dtype)
    return _numerics.nan_where_invalid_scores(values, last, class_axis_name)


def perturbed_kth(
    key: jax.Array | None,
    scores: jax.Array,
    k: int,
    *,
    epsilon: ArrayLike,
    num_samples: int,
    noise: ArrayLike | None,
    class_axis_name: Hashable | None,
    implementation: Literal["xla", "pallas"],
) -> jax.Array:
    """`perturbed_top_k_value` of classes that may be split over devices."""
    return _perturbed(
        key,
        scores,
        k,
        epsilon,
        num_samples,
        noise,
        -1,
        implementation,
        only_last=True,
        class_axis_name=class_axis_name,
    )


def _check_implementation(
    implementation: str,
    dtype: jnp.dtype,
    noise: ArrayLike | None,
    class_axis_name: Hashable | None,
) -> None:
    if _checks.choice(implementation, "implementation", ("xla", "pallas")) == "xla":
        return
    reasons = {
        "with noise instead of a key": noise is not None,
        "for classes that are split over devices": class_axis_name is not None,
        f"for scores in {dtype}": dtype != jnp.float32,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f'implementation must be "xla" {reason}, got "pallas".')


def keys_of_rows(key: Any, batch_shape: tuple[int, ...]) -> jax.Array:
    """A key per example, `[...]`, whose noise is that of the example under one key for all."""
    key = _checks.random_keys(key, "key", batch_shape)
    if key.ndim == len(batch_shape):
        return key
    words = _normals.row_words(key, math.prod(batch_shape)).reshape(*batch_shape, 2)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _given_noise(
    noise: ArrayLike, num_samples: int, scores: ArrayLike, axis: int, last: jax.Array
) -> jax.Array:
    given = _checks.floating_array(noise, "noise")
    expected = (num_samples, *jnp.shape(scores))
    if given.shape != expected:
        raise ValueError(
            f"noise must have shape {expected} (num_samples before the shape of the scores), "
            f"got shape {given.shape}."
        )
    return jnp.moveaxis(given, axis % last.ndim + 1, -1).astype(last.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _mean_selected(
    only_last: bool,
    k: int,
    num_samples: int,
    implementation: str,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> jax.Array:
    """The sum of the k largest perturbed scores, or the k-th one, averaged over the samples: [...].

    `scores` is [..., L] and `epsilon` is [...]. `source` is either the noise [..., M, L] or the
    words of one key per row [..., 2]. The rule is custom, because reverse mode through the
    selection would store the perturbed scores and scatter into [M, n, L].
    """
    return _mean_selected_forward(
        only_last, k, num_samples, implementation, scores, epsilon, source
    )[0]


def _mean_selected_forward(
    only_last: bool,
    k: int,
    num_samples: int,
    implementation: str,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> tuple[jax.Array, Any]:
    batch_ndim = scores.ndim - 1
    of_classes: tuple[int, ...] = (0,) if source.dtype == jnp.uint32 else (0, 2)
    in_rows: Callable[..., Any] = _select_in_rows
    if implementation == "pallas":
        # The kernel takes whole rows.
        of_classes, in_rows = (), _select_by_kernel
    select = functools.partial(in_rows, only_last, k, num_samples)
    values, selected, slope = _sharding.selected_on_each_device(
        select, batch_ndim, scores, epsilon, source, of_classes=of_classes
    )
    # Scores without rows pass the number of classes and the dtype to the backward pass.
    no_scores = jnp.zeros((0, scores.shape[-1]), scores.dtype)
    return values, (selected, slope, no_scores)


def _select_in_rows(
    only_last: bool,
    k: int,
    num_samples: int,
    class_axis_name: Hashable | None,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The value of `_mean_selected`, the selected classes `[..., M, k or 1]` and the mean noise."""
    if class_axis_name is not None:
        values, selected, noise = _selected_of_split(
            only_last, k, num_samples, scores, epsilon, source, class_axis_name
        )
        return values.sum(axis=-1).mean(axis=-1), selected, noise.sum(axis=-1).mean(axis=-1)
    batch_shape = epsilon.shape

    def pick(perturbed: jax.Array, noise_of: Callable[[jax.Array], jax.Array]) -> Any:
        values, selected = kth_largest(perturbed, k) if only_last else largest(perturbed, k)
        return values.sum(), selected, noise_of(selected).sum()

    padded = pad_for_selection(scores, k, only_last=only_last)
    values, selected, noise_sums = _over_samples(pick, num_samples, padded, epsilon, source)
    return (
        values.mean(axis=1).reshape(batch_shape),
        selected.reshape(*batch_shape, *selected.shape[1:]),
        noise_sums.mean(axis=1).reshape(batch_shape),
    )


def _select_by_kernel(
    only_last: bool,
    k: int,
    num_samples: int,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The result of `_select_in_rows` by the kernel, from the words of keys alone."""
    from topk_jax.operators import _perturbed_kernel  # noqa: PLC0415 (it takes a second to import)

    batch_shape = epsilon.shape
    words = source.reshape(-1, 2)

    def on(platform: Literal["cpu", "gpu", "tpu"]) -> Callable[..., Any]:
        return functools.partial(
            _perturbed_kernel.largest_perturbed,
            k=k,
            num_samples=num_samples,
            only_last=only_last,
            platform=platform,
        )

    values, selected = jax.lax.platform_dependent(
        scores.reshape(-1, scores.shape[-1]),
        epsilon.reshape(-1),
        words,
        cpu=on("cpu"),
        cuda=on("gpu"),
        rocm=on("gpu"),
        tpu=on("tpu"),
    )
    drawn = _noise_of_selected(words, num_samples, selected, scores.dtype)
    return (
        values.sum(axis=-1).mean(axis=1).reshape(batch_shape),
        selected.reshape(*batch_shape, *selected.shape[1:]),
        drawn.sum(axis=-1).mean(axis=1).reshape(batch_shape),
    )


def _noise_of_selected(
    words: jax.Array, num_samples: int, selected: jax.Array, dtype: jnp.dtype
) -> jax.Array:
    """The noise of the classes [n, M, ...], from the words of each row [n, 2]."""
    of_samples = jax.vmap(_normals.normals, (None, 0, 0, None))
    of_rows = jax.vmap(of_samples, (0, None, 0, None))
    return of_rows(words, jnp.arange(num_samples), selected, dtype)


def _over_samples(
    pick: Callable[[jax.Array, Callable[[jax.Array], jax.Array]], Any],
    num_samples: int,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
    first: jax.Array | None = None,
) -> Any:
    """A tree of [n, M, ...] that `pick` makes of each perturbed row [L] and of its noise.

    The scores are those of the classes from `first` on, or from 0. The noise is a function of the
    class.
    """
    batch_shape, num_rows, num_classes = epsilon.shape, epsilon.size, scores.shape[-1]
    rows = (
        scores.reshape(num_rows, num_classes),
        epsilon.reshape(num_rows),
        source.reshape(num_rows, *source.shape[len(batch_shape) :]),
    )

    def select_in_samples(row: tuple[jax.Array, jax.Array, jax.Array]) -> Any:
        scores, epsilon, source = row

        def select(sample: jax.Array) -> Any:
            # Without a barrier XLA would compute the parts of the generator that do not depend on
            # the sample once for all samples, and store them in arrays of [n, L].
            tied_source, tied_sample = jax.lax.optimization_barrier((source, sample))

            def noise_of(classes: jax.Array) -> jax.Array:
                return _noise(tied_source, tied_sample, classes, scores.dtype)

            def perturb(
                scores: jax.Array, epsilon: jax.Array, source: jax.Array, sample: jax.Array
            ) -> jax.Array:
                classes = jnp.arange(num_classes)
                if first is not None:
                    classes = first + classes
                return scores + epsilon * _noise(source, sample, classes, scores.dtype)

            # XLA would run the generator again for each use.
            perturbed = _selection.stored(perturb, scores, epsilon, tied_source, tied_sample)
            return pick(perturbed, noise_of)

        return _map(select, jnp.arange(num_samples), samples_at_once)

    # The groups stay in the cache, and their memory does not grow with M. In a program for any
    # number of rows, which `jax.export` makes, a group is one sample of all of them.
    rows_at_once, samples_at_once = num_rows, 1
    if isinstance(num_rows, int):
        group = _GROUP_SIZE.get(jax.default_backend(), _GROUP_SIZE_OF_OTHERS)
        rows_at_once = max(1, min(num_rows, group // num_classes))
        samples_at_once = max(1, min(num_samples, group // (rows_at_once * num_classes)))
    return _map(select_in_samples, rows, rows_at_once)


def _mean_kth_of_split(
    k: int,
    num_samples: int,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
    class_axis_name: Hashable,
) -> jax.Array:
    """The k-th largest perturbed score of split classes, averaged over the samples: [...].

    Communication: that of `_selected_of_split`, and one score per sample.
    """
    hidden, hidden_epsilon = jax.lax.stop_gradient((scores, epsilon))
    epsilons = jnp.broadcast_to(hidden_epsilon, scores.shape[:-1])
    values, selected, noise = (
        part[..., 0]
        for part in _selected_of_split(
            True, k, num_samples, hidden, epsilons, source, class_axis_name
        )
    )
    followed = _classes.entries(scores, selected, class_axis_name) + epsilon * noise
    return _numerics.with_slope_of(values, followed).mean(axis=-1)


def _selected_of_split(
    only_last: bool,
    k: int,
    num_samples: int,
    scores: jax.Array,
    epsilon: jax.Array,
    source: jax.Array,
    class_axis_name: Hashable,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The selected perturbed scores of split classes, these classes, and their noise.

    All are `[..., M, k]`, or `[..., M, 1]` with `only_last`.

    Communication: each device sends its k largest perturbed scores of each sample, and their
    classes.
    """
    batch_shape, size = scores.shape[:-1], scores.shape[-1]
    has_key = source.dtype == jnp.uint32
    # Given noise is that of the device's own classes.
    first = jax.lax.axis_index(class_axis_name) * size if has_key else None

    def pick(
        perturbed: jax.Array, _: Callable[[jax.Array], jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        return largest(perturbed, min(k, size))

    padded = pad_for_selection(scores, min(k, size))
    own, places = _over_samples(pick, num_samples, padded, epsilon, source, first)
    values, classes = (
        part[..., -1:] if only_last else part
        for part in merged_among_devices(own, places, k, size, class_axis_name)
    )
    of_batch = (*batch_shape, num_samples, values.shape[-1])
    if has_key:
        noise = _noise_of_selected(source.reshape(-1, 2), num_samples, classes, scores.dtype)
    else:
        noise = _classes.entries(source, classes.reshape(of_batch), class_axis_name)
    return values.reshape(of_batch), classes.reshape(of_batch), noise.reshape(of_batch)


def _noise(source: jax.Array, sample: jax.Array, classes: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The noise of some classes of a row, from the words of its key or from the given noise."""
    if source.dtype == jnp.uint32:
        return _normals.normals(source, sample, classes, dtype)
    # Classes beyond the last are padding and get no noise.
    return source.at[sample, classes].get(mode="fill", fill_value=0)


def _map(function: Callable[[Any], Any], operands: Any, at_once: int) -> Any:
    """Maps the function over the leading axis, `at_once` entries at a time."""
    (count,) = {operand.shape[0] for operand in jax.tree.leaves(operands)}
    if at_once >= count:
        return jax.vmap(function)(operands)
    return jax.lax.map(function, operands, batch_size=at_once)


def _mean_selected_backward(
    only_last: bool,
    _k: int,
    num_samples: int,
    _implementation: str,
    residuals: Any,
    cotangent: jax.Array,
) -> tuple[jax.Array, jax.Array, None]:
    selected, slope, no_scores = residuals
    num_classes, dtype = no_scores.shape[-1], no_scores.dtype
    if only_last and _sharding.is_split_later(selected):
        # The compiler splits comparisons like the classes, and scatters of all of them on each
        # device.
        shape = (*selected.shape[:-1], num_classes)
        classes = jax.lax.broadcasted_iota(selected.dtype, shape, len(shape) - 1)
        counts = (classes == selected).sum(axis=-2, dtype=dtype)
    else:
        counts_of = functools.partial(_counts, num_classes, dtype)
        counts = _sharding.selected_on_each_device(counts_of, slope.ndim, selected)
    return counts * (cotangent / num_samples)[..., None], slope * cotangent, None


def _counts(num_classes: int, dtype: jnp.dtype, selected: jax.Array) -> jax.Array:
    """How often each class was selected, [..., L], of `selected` [..., M, k or 1].

    The counts are integers, so the order of the additions does not matter. The gradient is the same
    to the last bit in every run.
    """
    *batch_shape, num_samples, size = selected.shape
    num_rows = math.prod(batch_shape)
    counts = jnp.zeros((num_rows, num_classes), dtype)
    rows = selected.reshape(num_rows, num_samples * size)
    counts = counts.at[jnp.arange(num_rows)[:, None], rows].add(1)
    return counts.reshape(*batch_shape, num_classes)


_mean_selected.defvjp(_mean_selected_forward, _mean_selected_backward)
