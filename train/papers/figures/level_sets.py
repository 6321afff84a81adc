"""Level sets of the losses for three classes, on scores that are not negative and add up to 2.

These are Figures 4.1, 4.4, 4.5 and 4.6 of the thesis. The true label is the upper corner, and each
loss is rescaled to [0, 1]. A noised loss is drawn with the same noise at all scores, which makes it
continuous: `by_loss` draws the mean over 100 draws, as the paper does; the other figures have one
draw, which shows the effect of more samples. If a caption of the thesis does not state a
parameter, the value is ours.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation, TriContourSet

from topk_jax import losses
from train.foundation.errors import UserError
from train.reports import figure_style
from train.training.losses import LOSSES

KS = (1, 2)
NUM_CLASSES = 3
# The upper corner.
LABEL = 2
_TOTAL = 2.0
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
# Divisible by 2 and 3: losses bend at the middles of the sides and at the centre, so that these
# have to be points.
_CELLS = 90
# Flat parts are often at 0, 1/2 and 1. These values are in the middle of a band, so that rounding
# errors do not draw lines.
_LEVELS = np.linspace(-0.05, 1.05, 12)
_REPLICATIONS = 100
_SEED = 0

# Scores [points, 3] to losses [points].
Loss = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Panel:
    """A loss and the title of its panel."""

    title: str
    loss: Loss


def scores() -> np.ndarray:
    """The scores of all points, [points, 3], row by row from the lower side up."""
    cells = [
        (_CELLS - first - last, first, last)
        for last in range(_CELLS + 1)
        for first in range(_CELLS + 1 - last)
    ]
    return _TOTAL / _CELLS * np.array(cells, np.float32)


def rescaled(loss: Loss) -> np.ndarray:
    """The loss at all points, [points], scaled from 0 at its minimum to 1 at its maximum."""
    values = np.asarray(jax.jit(loss)(jnp.asarray(scores())), np.float64)
    return (values - values.min()) / (values.max() - values.min())


def of_label(loss: Callable[..., jax.Array], **parameters: float) -> Loss:
    """A loss of the library, with the label of the figures."""
    return lambda points: loss(points, jnp.full(points.shape[0], LABEL), **parameters)


def noised(
    k: int, epsilon: float, num_samples: int, *, margin: float = 1.0, replications: int
) -> Loss:
    """The mean of the noised loss over draws of its noise. A draw is the same for all points."""

    def loss(points: jax.Array) -> jax.Array:
        def of_draw(key: jax.Array) -> jax.Array:
            noise = jax.random.normal(key, (num_samples, 1, NUM_CLASSES))
            drawn = functools.partial(
                losses.noised_top_k_hinge,
                k=k,
                epsilon=epsilon,
                num_samples=num_samples,
                noise=jnp.broadcast_to(noise, (num_samples, *points.shape)),
                margins=margin,
            )
            return of_label(drawn)(points)

        keys = jax.random.split(jax.random.key(_SEED), replications)
        return jax.lax.map(of_draw, keys).mean(0)

    return loss


def expected(k: int, epsilon: float, *, margin: float = 1.0) -> Loss:
    """The expectation, which the noised loss approaches with more samples."""
    return of_label(losses.expected_top_k_hinge, k=k, epsilon=epsilon, margins=margin)


def by_loss(k: int) -> Figure:
    """All losses: Figure 4.1 with K = 2, and 4.6 with K = 1. Exact expectations are below.

    Raises:
        UserError: another K, which three classes do not allow.
    """
    if k not in KS:
        raise UserError(field="--k", must_be="1 or 2 in level sets of three classes", got=k)
    return draw(
        panels_by_loss(k), f"Level sets of the losses for K = {k}, three classes and the label y"
    )


def by_samples() -> Figure:
    """The noised loss with more and more samples: Figure 4.4. The exact expectation is last."""
    title = "Level sets of the noised balanced loss, ε = 1: one draw of M samples"
    return draw(panels_by_samples(), title)


def by_epsilon() -> Figure:
    """The noised loss with more and more noise: Figure 4.5. Exact expectations are below."""
    title = "Level sets of the noised balanced loss: one draw of 50 samples"
    return draw(panels_by_epsilon(), title)


def panels_by_loss(k: int) -> list[list[Panel | None]]:
    """The panels of `by_loss`, row by row."""
    samples, margin = 30, 0.5
    of = of_label
    return [
        [
            Panel("top-K error", of(losses.top_k_error, k=k)),
            Panel(_title("cross_entropy"), of(losses.cross_entropy)),
            Panel(_title("top_k_hinge"), of(losses.top_k_hinge, k=k)),
            Panel(_break_title("calibrated_top_k_hinge"), of(losses.calibrated_top_k_hinge, k=k)),
            Panel(_break_title("convex_top_k_hinge"), of(losses.convex_top_k_hinge, k=k)),
        ],
        [
            *(
                Panel(
                    f"{_title('smooth_top_k_hinge')}\nτ = {tau:g}",
                    of(losses.smooth_top_k_hinge, k=k, tau=tau),
                )
                for tau in (0.1, 1.0)
            ),
            *(
                Panel(
                    f"{_title('noised_balanced')}\nε = {epsilon:g}, M = {samples}",
                    noised(k, epsilon, samples, replications=_REPLICATIONS),
                )
                for epsilon in (0.3, 1.0)
            ),
            Panel(
                f"{_title('noised_imbalanced')}, m = {margin:g}\nε = 1, M = {samples}",
                noised(k, 1.0, samples, margin=margin, replications=_REPLICATIONS),
            ),
        ],
        [
            None,
            None,
            *(
                Panel(f"{_title('expected_balanced')}\nε = {epsilon:g}", expected(k, epsilon))
                for epsilon in (0.3, 1.0)
            ),
            Panel(
                f"{_title('expected_imbalanced')}\nm = {margin:g}, ε = 1",
                expected(k, 1.0, margin=margin),
            ),
        ],
    ]


def panels_by_samples() -> list[list[Panel | None]]:
    """The panels of `by_samples`, row by row."""
    return [
        [
            *(
                Panel(f"K = {k}, M = {samples}", noised(k, 1.0, samples, replications=1))
                for samples in (1, 3, 10, 30, 100)
            ),
            Panel(f"K = {k}, expectation", expected(k, 1.0)),
        ]
        for k in KS
    ]


def panels_by_epsilon() -> list[list[Panel | None]]:
    """The panels of `by_epsilon`, row by row."""
    # With more noise, the loss for K = 2 is 0 at all scores of the plane.
    epsilons, samples = (0.1, 0.3, 0.6, 1.0), 50
    rows: list[list[Panel | None]] = []
    for k in KS:
        rows.append(
            [
                Panel(
                    f"K = {k}, ε = {epsilon:g}\nM = {samples}",
                    noised(k, epsilon, samples, replications=1),
                )
                for epsilon in epsilons
            ]
        )
        rows.append(
            [
                Panel(f"K = {k}, ε = {epsilon:g}\nexpectation", expected(k, epsilon))
                for epsilon in epsilons
            ]
        )
    return rows


def draw(rows: Sequence[Sequence[Panel | None]], title: str) -> Figure:
    """A grid of panels with one scale of colours; None leaves a place empty."""
    num_columns = len(rows[0])
    figure = figure_style.new_figure(1.8 * num_columns + 0.8, 2.0 * len(rows) + 0.6)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel(
        "corners: a score of 2 for one class and 0 for the others; y: the true label", fontsize=9
    )
    grid = figure.subplots(len(rows), num_columns, squeeze=False)
    triangulation = _triangulation()
    drawn = None
    for axes, panel in zip(grid.flat, (panel for row in rows for panel in row), strict=True):
        axes.set_axis_off()
        if panel is not None:
            drawn = _draw_panel(axes, panel, triangulation)
    if drawn is not None:
        bar = figure.colorbar(drawn, ax=grid, shrink=0.7, aspect=30, ticks=[0.0, 0.5, 1.0])
        bar.set_label("loss, rescaled to [0, 1]")
    return figure


def _title(loss: str) -> str:
    return LOSSES[loss].title


def _break_title(loss: str) -> str:
    return _title(loss).replace(" ", "\n", 1)


def _draw_panel(axes: Axes, panel: Panel, triangulation: Triangulation) -> TriContourSet:
    values = rescaled(panel.loss)
    filled = axes.tricontourf(triangulation, values, levels=_LEVELS, cmap=figure_style.COLOR_MAP)
    # The lines can also be distinguished in small print.
    axes.tricontour(triangulation, values, levels=_LEVELS, colors="white", linewidths=0.6)
    axes.set_title(panel.title, fontsize=8)
    axes.set_aspect("equal")
    for corner, name in zip(_CORNERS, ("1", "2", "y"), strict=True):
        outwards = corner - _CORNERS.mean(0)
        x, y = corner + 0.09 * outwards / np.linalg.norm(outwards)
        axes.text(x, y, name, fontsize=8, ha="center", va="center")
    axes.set_xlim(-0.12, 1.12)
    axes.set_ylim(-0.1, 1.0)
    return filled


def _triangulation() -> Triangulation:
    """The points on the plane, and the triangles between them, all of one size."""
    # Row r has _CELLS + 1 - r points, the first of them at index starts[r].
    starts = np.concatenate([[0], np.cumsum(np.arange(_CELLS + 1, 0, -1))])
    triangles = []
    for row in range(_CELLS):
        below, above, length = starts[row], starts[row + 1], _CELLS - row
        upward = np.arange(length)
        triangles.append(np.stack([below + upward, below + upward + 1, above + upward], axis=1))
        down = np.arange(length - 1)
        triangles.append(np.stack([below + down + 1, above + down + 1, above + down], axis=1))
    x, y = (scores() / _TOTAL @ _CORNERS).T
    return Triangulation(x, y, np.concatenate(triangles))
