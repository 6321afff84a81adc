"""The noised top-K hinge of a head, over blocks of classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from topk_jax import _checks, _numerics, _selection
from topk_jax._compilation import compiled
from topk_jax._sharding import unify
from topk_jax.heads._blocks import Block, scan_blocks, scores_of_classes
from topk_jax.heads._each_device import split_examples
from topk_jax.heads._head import Head, Scores, check_batch, size_of_block
from topk_jax.heads._selection import Largest, merge, select_nothing
from topk_jax.losses._hinge import REASON_NEXT_RANK
from topk_jax.operators import _normals
from topk_jax.operators._perturbed_selection import draw_for_classes

__all__ = ["noised_top_k_hinge"]


@split_examples
def noised_top_k_hinge(
    features: ArrayLike,
    head: Head,
    labels: ArrayLike,
    *,
    k: int,
    epsilon: ArrayLike,
    num_samples: int,
    key: jax.Array,
    margins: ArrayLike = 1.0,
    scale: ArrayLike = 1.0,
    where: ArrayLike | None = None,
    block_size: int | None = None,
) -> jax.Array:
    r"""The calibrated top-K hinge smoothed with Gaussian noise, without the scores of all classes.

    .. math::
        \ell(x, y) = \gamma \, \bigl(m_y + \hat\tau_{K+1,\varepsilon,M}(s(x)) - s_y(x)\bigr)_+

    This is `losses.noised_top_k_hinge` of the scores, with the same noise for the same key: the
    noise is a function of the key, the example, the sample and the class. Scores may be rounded
    differently, so that the order may differ among perturbed scores that are equal up to rounding.
    The backward pass reads and writes only the vectors of the true class and of the M selected
    ones. Only reverse mode is supported.

    Args:
        features: floating-point features x, `[..., d]`.
        head: a `LinearHead` or a `CosineHead` of L classes.
        labels: integer classes, `[...]`.
        k: static set size K, from 1 to L - 1.
        epsilon: scalar standard deviation of the noise, in the units of the scores, at least 0.
        num_samples: static number M of noise vectors per example, at least 1.
        key: one random key, or one per example, `[...]`; use a new one for each call.
        margins: m, in the units of the scores, at least 0: a scalar, or one value per class, `[L]`.
        scale: positive scalar factor of the loss (gamma above), needed for cosines.
        where: which examples count, booleans `[...]`, or `None` for all. The loss and the
            gradient of the others are 0, whatever their features and label are.
        block_size: static number of classes whose scores are in memory at a time, at least 1; a
            smaller one than k + 1 counts as k + 1. By default a block has 2^20 scores on the CPU,
            and 2^24 elsewhere.

    Returns:
        One loss per example, `[...]`, in float32 or float64; NaN where a score is NaN or +inf, or
        the label is outside [0, L).

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: an argument is outside its range, or shapes do not match.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from topk_jax import heads
        >>> features, head = jnp.array([[3.0, 2.0], [3.0, 2.0]]), heads.LinearHead(jnp.eye(2, 4))
        >>> loss = heads.noised_top_k_hinge(
        ...     features, head, jnp.array([0, 3]), k=1, epsilon=1e-4, num_samples=10,
        ...     key=jax.random.key(0))
        >>> print(loss.round(2))
        [0. 3.]

    See Also:
        `losses.noised_top_k_hinge`.

    Source: Garcin et al. (2022); thesis, equations 4.10 and 4.13.
    """
    scores, labels, batch_shape = check_batch(features, head, labels, where=where)
    num_classes, dtype = scores.num_classes, scores.rows.dtype
    k = _checks.rank(k, num_classes - 1, reason=REASON_NEXT_RANK)
    epsilon = _checks.scalar(epsilon, "epsilon", dtype, at_least=0)
    num_samples = _checks.static_integer(num_samples, "num_samples", minimum=1)
    margins = _checks.per_class(margins, "margins", num_classes, dtype)
    scale = _checks.scalar(scale, "scale", dtype, above=0)
    block_size = size_of_block(block_size, scores, at_least=k + 1)
    keys = _checks.random_keys(key, "key", batch_shape)
    # As in `losses.noised_top_k_hinge`, one key with a single example is that example's key.
    of_rows = keys if keys.ndim == 0 and batch_shape else keys.reshape(-1)
    words = _normals.row_words(of_rows, labels.shape[0])
    gap = _gap(scores, labels, k, epsilon, num_samples, words, block_size)
    margin = _numerics.value_of_class(margins, labels)
    gap = _numerics.nan_where_invalid_labels(gap, labels, num_classes)
    gap = _numerics.nan_unless(~jnp.isnan(margin) & ~jnp.isnan(epsilon), gap)
    losses = scale * jax.nn.relu(margin + gap)
    return _numerics.zero_left_out(losses.reshape(batch_shape), where)


@compiled
def _gap(
    scores: Scores,
    labels: jax.Array,
    k: int,
    epsilon: jax.Array,
    num_samples: int,
    words: jax.Array,
    block_size: int,
) -> jax.Array:
    """The mean over the samples of the perturbed gap of rank k + 1 to the true class, `[n]`."""
    unit, num_rows = scores.unit, labels.shape[0]
    rows, layer, labels, epsilon, words = unify(scores.rows, scores.layer, labels, epsilon, words)
    hidden_rows, hidden_layer, hidden_epsilon = jax.lax.stop_gradient((rows, layer, epsilon))
    inside = jnp.maximum(labels, 0)[:, None]
    score = scores_of_classes(unit, hidden_rows, hidden_layer, inside)[:, 0]
    score = _numerics.finite_scores(score)
    shift = _shift(score)
    samples = jnp.arange(num_samples)

    def step(found: Largest, block: Block) -> Largest:
        is_label = block.classes[None] == labels[:, None]
        # If the score of the true class was rounded differently, a tie would rank differently.
        own = jnp.where(jnp.isneginf(block.scores), -jnp.inf, (score - shift)[:, None])
        gaps = jnp.where(is_label, own, block.scores - shift[:, None])

        def select(operands: tuple[jax.Array, Largest]) -> Largest:
            sample, found = operands
            perturbed = _selection.store(
                _perturbed, gaps, hidden_epsilon, words, sample, block.classes
            )
            return merge(found, perturbed, block.classes[0])

        return jax.lax.map(select, (samples, found))

    none = select_nothing(jnp.broadcast_to(jnp.zeros_like(shift), (num_samples, num_rows)), k + 1)
    found, marks = scan_blocks(step, unit, block_size, hidden_rows, hidden_layer, none)
    selected = found.classes[..., -1].T
    noise = draw_for_classes(words, num_samples, selected, rows.dtype)
    classes = jnp.concatenate([selected, inside], axis=1)
    of_classes = _numerics.finite_scores(scores_of_classes(unit, rows, layer, classes))
    gaps = of_classes[:, :-1] - of_classes[:, -1:]
    # Two products may be rounded differently, even of the same class.
    gaps = jnp.where(selected == inside, 0.0, gaps)
    mean = (gaps + epsilon * noise).mean(axis=1)
    return _numerics.nan_where_invalid_scores(mean, marks[:, None])


def _shift(score: jax.Array) -> jax.Array:
    """The number that is subtracted from the scores before the noise is added, `[n]`.

    If the label's score is infinite or masked, there are no small differences and the loss is not
    finite.
    """
    return jnp.where(jnp.abs(score) < -_numerics.FLOOR, score, 0.0)


def _perturbed(
    gaps: jax.Array, epsilon: jax.Array, words: jax.Array, sample: jax.Array, classes: jax.Array
) -> jax.Array:
    """The gaps `[n, B]` with the noise of one sample."""
    noise = jax.vmap(_normals.normals, (0, None, None, None))(words, sample, classes, gaps.dtype)
    return gaps + epsilon * noise
