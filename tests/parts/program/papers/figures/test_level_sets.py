"""Level sets: every panel's loss against the float64 references, and the places of marks."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference import _losses as reference
from train.papers.figures import level_sets

# Scores that add up to 2: the corners, the centre, and others, without ties.
SCORES = np.array(
    [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0], [1.2, 0.5, 0.3], [0.3, 0.8, 0.9]],
    np.float32,
)
LABELS = np.full(len(SCORES), 2)
# Here the true class has a low score, so that no draw of the mean of 30 makes the hinge inactive.
ACTIVE = np.array([[1.6, 0.3, 0.1]], np.float32)

EXACT = {
    "top-K error": lambda k: reference.top_k_error(SCORES, LABELS, k=k),
    "cross-entropy": lambda k: reference.cross_entropy(SCORES, LABELS),
    "top-K hinge": lambda k: reference.top_k_hinge(SCORES, LABELS, k=k),
    "calibrated top-K hinge": lambda k: reference.calibrated_top_k_hinge(SCORES, LABELS, k=k),
    "convex top-K hinge": lambda k: reference.convex_top_k_hinge(SCORES, LABELS, k=k),
    "smooth top-K hinge τ = 0.1": lambda k: reference.smooth_top_k_hinge(
        SCORES, LABELS, k=k, tau=0.1
    ),
    "smooth top-K hinge τ = 1": lambda k: reference.smooth_top_k_hinge(SCORES, LABELS, k=k, tau=1),
    "expected balanced ε = 0.3": lambda k: expected(SCORES, k, 0.3),
    "expected balanced ε = 1": lambda k: expected(SCORES, k, 1.0),
    "expected imbalanced m = 0.5, ε = 1": lambda k: expected(SCORES, k, 1.0, margins=0.5),
}
# Epsilon, samples of all draws and margin of the noised panels of the figure of all losses.
NOISED = {
    "noised balanced ε = 0.3, M = 30": (0.3, 3000, 1.0),
    "noised balanced ε = 1, M = 30": (1.0, 3000, 1.0),
    "noised imbalanced, m = 0.5 ε = 1, M = 30": (1.0, 3000, 0.5),
}


def expected(scores, k, epsilon, margins=1.0):
    labels = np.full(len(scores), 2)
    return reference.expected_top_k_hinge(scores, labels, k=k, epsilon=epsilon, margins=margins)


def by_title(rows):
    panels = [panel for row in rows for panel in row if panel is not None]
    found = {panel.title.replace("\n", " "): panel for panel in panels}
    assert len(found) == len(panels)
    return found


@pytest.mark.parametrize("k", [1, 2])
def test_every_loss_has_the_values_of_its_reference(k):
    panels = by_title(level_sets.panels_by_loss(k))
    assert set(panels) == {*EXACT, *NOISED}
    for title, values in EXACT.items():
        ours = jax.jit(panels[title].loss)(jnp.asarray(SCORES))
        # Values of up to 3 in float32, and the expectation's nodes, which have 1e-5 epsilon.
        np.testing.assert_allclose(ours, values(k), atol=3e-5, err_msg=title)


# The mean over 100 draws takes seconds to compile.
# With K = 2 the noise takes the hinge below 0 now and then, and the mean is not linear.
def test_the_noised_losses_tend_to_the_expectation():
    panels = by_title(level_sets.panels_by_loss(1))
    for title, (epsilon, samples, margin) in NOISED.items():
        ours = jax.jit(panels[title].loss)(jnp.asarray(ACTIVE))
        # Five standard errors: the deviation of a perturbed score in rank is at most epsilon.
        bound = 5 * epsilon / samples**0.5
        assert np.abs(ours - expected(ACTIVE, 1, epsilon, margin)).max() < bound, title


@pytest.mark.parametrize(
    ("rows", "draws"),
    [
        (level_sets.panels_by_samples, [(1.0, 1), (1.0, 100)]),
        (level_sets.panels_by_epsilon, [(0.1, 50), (1.0, 50)]),
    ],
    ids=["samples", "epsilon"],
)
def test_one_draw_comes_within_its_samples_of_the_expectation_beside_it(rows, draws):
    panels = by_title(rows())
    titles = [title for title in panels if title.startswith("K = 1") and "M = " in title]
    # The first and the last are enough: each takes a second to compile.
    for title, (epsilon, samples) in zip((titles[0], titles[-1]), draws, strict=True):
        assert title.endswith(f"M = {samples}")
        ours = np.asarray(jax.jit(panels[title].loss)(jnp.asarray(ACTIVE)))
        exact = expected(ACTIVE, 1, epsilon)
        # Five standard errors, as above; losses without draws do not have an error.
        assert 0 < np.abs(ours - exact).max() < 5 * epsilon / samples**0.5, title
        beside = re.sub("M = .*", "expectation", title)
        # The expectation's nodes have 1e-5 epsilon.
        np.testing.assert_allclose(
            jax.jit(panels[beside].loss)(jnp.asarray(ACTIVE)), exact, atol=3e-5
        )
    # The lower half is for K = 2.
    assert sum(title.startswith("K = 2") for title in panels) * 2 == len(panels)


def line_at(axes, level):
    """The points of the line of a level in a panel."""
    lines = axes.collections[1]
    [index] = np.flatnonzero(np.isclose(lines.levels, level))
    return lines.get_paths()[index].vertices


def test_the_label_is_the_upper_corner_and_the_first_class_the_left_one():
    rows = [
        [
            level_sets.Panel("label", lambda points: points[:, 2]),
            level_sets.Panel("first", lambda points: points[:, 0]),
        ],
        [None, level_sets.Panel("second", lambda points: points[:, 1])],
    ]
    figure = level_sets.draw(rows, "title")
    label, first, empty, second = figure.axes[:4]
    assert [axes.get_title() for axes in (label, first, empty, second)] == [
        "label",
        "first",
        "",
        "second",
    ]
    assert [text.get_text() for text in label.texts] == ["1", "2", "y"]
    assert not empty.collections
    height = np.sqrt(0.75)
    # The corners are (0, 0), (1, 0) and the upper one; points are in float32.
    np.testing.assert_allclose(line_at(label, 0.25)[:, 1], 0.25 * height, atol=1e-6)
    x, y = line_at(first, 0.25).T
    np.testing.assert_allclose(1 - x - y / (2 * height), 0.25, atol=1e-6)
    x, y = line_at(second, 0.25).T
    np.testing.assert_allclose(x - y / (2 * height), 0.25, atol=1e-6)
    assert figure.axes[4].get_ylabel() == "loss, rescaled to [0, 1]"
