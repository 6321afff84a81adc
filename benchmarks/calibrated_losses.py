r"""Which losses are top-K calibrated, by minimising their risks on small laws.

    python -m benchmarks.calibrated_losses --output=benchmarks/results/calibrated_losses-cpu.json

For each loss and law, the gap is the least risk of scores whose K best classes are wrong, minus the
least risk of all scores. A gap of 0 shows that a loss is not calibrated. The hinges are linear for
each order of the scores, so linear programs find their least risks. Other losses are minimised from
several random scores.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from benchmarks import command, markdown
from topk_jax import losses, operators

# A gap below this counts as 0. Minimisation finds the least risks to about 1e-8.
NO_GAP = 1e-6
_NUM_CLASSES = 4
# The K-th probability exceeds the next by this, so that gaps that are there can be seen.
_LEAD = 0.05
# Scores further apart change no risk here by more than rounding.
_LARGEST = 40.0
_HINGES = ("calibrated_top_k_hinge", "top_k_hinge", "convex_top_k_hinge")
# Noise of the expected hinge, in parts of the safe noise.
_PARTS = (0.5, 0.95, 1.05, 2.0)

Loss = Callable[[jax.Array, jax.Array], jax.Array]


def main() -> None:
    """Measures the gaps of all losses on random laws."""
    made = command.parser(__doc__, repetitions=3, what="random laws of each kind")
    given = made.parse_args()
    with jax.enable_x64(True):
        found = {
            str(k): {
                name: [float(f"{gap(p):.6g}") for p in laws(k, given.repetitions)]
                for name, gap in _gaps(k).items()
            }
            for k in (1, 2)
        }
        safe = {str(k): safe_noise(k) for k in (1, 2, 3, 5, 10)}
    command.write({"classes": _NUM_CLASSES, "gaps": found, "safe_noise": safe}, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """The laws without a gap, and the safe noise of each K, in Markdown."""
    by_k = results["gaps"]
    (number,) = {len(gaps) for of_losses in by_k.values() for gaps in of_losses.values()}
    header = [f"loss: laws without a gap, of {number}", *(f"K = {k}" for k in by_k)]
    rows = [
        [f"`{name}`" if " " not in name else name]
        + [str(sum(gap < NO_GAP for gap in of_losses[name])) for of_losses in by_k.values()]
        for name in next(iter(by_k.values()))
    ]
    safe = results["safe_noise"]
    return (
        markdown.table(header, rows)
        + "\n\n"
        + markdown.table(
            ["K", *safe], [["epsilon / margin below", *(f"{value:.3f}" for value in safe.values())]]
        )
    )


def safe_noise(k: int) -> float:
    """The epsilon, for a margin of 1, below which the expected hinge is calibrated."""
    least = operators.expected_top_k_value(jnp.zeros(k + 1), k + 1, epsilon=1.0, num_nodes=256)
    return -1 / float(least)


def laws(k: int, number: int) -> list[np.ndarray]:
    """Probabilities in decreasing order: of all classes, and of K + 1 of them."""
    rng = np.random.default_rng(k)
    found: list[np.ndarray] = []
    while len(found) < 2 * number:
        count = _NUM_CLASSES if len(found) < number else k + 1
        drawn = np.sort(rng.dirichlet(np.full(count, 4.0)))[::-1]
        p = np.pad(drawn, (0, _NUM_CLASSES - count))
        # If one class has most of the mass, every loss has a gap at K = 1.
        if p[k - 1] - p[k] > _LEAD and p[k] > _LEAD and (p[0] < 1 / 2 or count == 2):
            found.append(p)
    return found


def hinge_gap(p: np.ndarray, *, name: str, k: int) -> float:
    """The gap of a hinge that is linear for each order of the scores, by linear programs."""
    by_order = [
        (set(order[:k]) != set(range(k)), _least_in_order(p, order, name=name, k=k))
        for order in itertools.permutations(range(len(p)))
    ]
    return min(risk for wrong, risk in by_order if wrong) - min(risk for _, risk in by_order)


def smooth_gap(p: np.ndarray, *, loss: Loss, k: int) -> float:
    """The gap of any other loss, by minimisation with and without a wrong order of two classes."""
    labels = jnp.arange(len(p))
    risk = jax.jit(
        jax.value_and_grad(lambda s: p @ loss(jnp.broadcast_to(s, (len(p), len(p))), labels))
    )
    return _gap(p, k, lambda wrong: _least_smooth(risk, len(p), wrong))


def noised_gap(p: np.ndarray, *, epsilon: float, k: int, margin: float = 1.0) -> float:
    """The gap of the expected hinge, whose kinks become constraints."""
    value = jax.jit(
        jax.value_and_grad(
            functools.partial(operators.expected_top_k_value, k=k + 1, epsilon=epsilon)
        )
    )
    return _gap(p, k, lambda wrong: _least_noised(value, p, margin, wrong))


def _gaps(k: int) -> dict[str, Callable[[np.ndarray], float]]:
    found: dict[str, Callable[[np.ndarray], float]] = {
        name: functools.partial(hinge_gap, name=name, k=k) for name in _HINGES
    }
    for part in _PARTS:
        found[f"`expected_top_k_hinge`, {part:g} of the safe epsilon"] = functools.partial(
            noised_gap, epsilon=part * safe_noise(k), k=k
        )
    for name, loss in _smooth_losses(k).items():
        found[name] = functools.partial(smooth_gap, loss=loss, k=k)
    return found


def _smooth_losses(k: int) -> dict[str, Loss]:
    made = functools.partial
    return {
        "cross_entropy": losses.cross_entropy,
        "`focal`, gamma 2": made(losses.focal, gamma=2.0),
        "`generalized_cross_entropy`, q 0.7": made(losses.generalized_cross_entropy, q=0.7),
        "`smooth_top_k_hinge`, tau 1": made(losses.smooth_top_k_hinge, k=k, tau=1.0),
        "`smooth_top_k_hinge`, tau 0.1": made(losses.smooth_top_k_hinge, k=k, tau=0.1),
        "`lapsum_top_k_loss`, alpha 1": made(losses.lapsum_top_k_loss, k=k, alpha=1.0),
    }


def _gap(p: np.ndarray, k: int, least: Callable[[tuple[int, int] | None], float]) -> float:
    """The gap, from the least risk of all scores or of scores with a wrong order of two classes."""
    # The K best classes are wrong exactly if one of them is not above another class.
    wrong = [(i, j) for i, j in itertools.product(range(k), range(k, len(p))) if p[i] > p[j]]
    right = least(None)
    return min(least(pair) for pair in wrong) - right


def _least_in_order(p: np.ndarray, order: Sequence[int], *, name: str, k: int) -> float:
    """The least risk of scores s in an order: min p @ t with t >= 0 and t above each hinge."""
    count = len(p)
    rows, bounds = [], []
    for best, next_best in itertools.pairwise(order):
        row = np.zeros(2 * count)
        row[next_best], row[best] = 1, -1
        rows.append(row)
        bounds.append(0.0)
    for label in range(count):
        others = [one for one in order if one != label]
        row = np.zeros(2 * count)
        row[label] -= 1
        row[count + label] = -1
        if name == "calibrated_top_k_hinge":
            row[order[k]] += 1
        elif name == "top_k_hinge":
            row[others[k - 1]] += 1
        else:
            # The mean of the K largest of 1 + s of the others and s of the label, minus the label.
            for chosen in _prefixes(others, label, k):
                own = row.copy()
                for one in chosen:
                    own[one] += 1 / k
                rows.append(own)
                bounds.append(-sum(one != label for one in chosen) / k)
            continue
        rows.append(row)
        bounds.append(-1.0)
    cost = np.concatenate([np.zeros(count), p])
    limits = [(-_LARGEST, _LARGEST)] * count + [(0, None)] * count
    return float(optimize.linprog(cost, A_ub=np.array(rows), b_ub=bounds, bounds=limits).fun)


def _prefixes(others: Sequence[int], label: int, k: int) -> Iterator[Sequence[int]]:
    """The K classes that may have the largest sum: the best others, with or without the label."""
    yield others[:k]
    yield [*others[: k - 1], label]


def _starts(count: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 3.0):
        yield np.sort(scale * rng.normal(size=count))[::-1]


def _not_above(wrong: tuple[int, int] | None, size: int) -> list[dict[str, Any]]:
    if wrong is None:
        return []
    row = np.zeros(size)
    row[wrong[1]], row[wrong[0]] = 1, -1
    return [{"type": "ineq", "fun": lambda s: row @ s, "jac": lambda _: row}]


def _least_smooth(risk: Callable[..., Any], count: int, wrong: tuple[int, int] | None) -> float:
    def numpy(scores: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = risk(scores)
        return float(value), np.asarray(slope)

    found = [
        optimize.minimize(
            numpy,
            start - start.mean(),
            jac=True,
            method="SLSQP",
            bounds=[(-_LARGEST, _LARGEST)] * count,
            constraints=_not_above(wrong, count),
            options={"maxiter": 500, "ftol": 1e-13},
        )
        for start in _starts(count)
    ]
    return float(min(one.fun for one in found if _holds(one.x, wrong)))


def _least_noised(
    value: Callable[..., Any], p: np.ndarray, margin: float, wrong: tuple[int, int] | None
) -> float:
    """Min p @ (margin - w) over w <= margin with an expected value of at most 0.

    The loss depends on w = s - tau(s), whose expected value is 0. A smaller one can be raised to 0,
    which lowers the risk, and scores above the margin may be lowered to it.
    """
    constraint = {
        "type": "ineq",
        "fun": lambda w: -float(value(w)[0]),
        "jac": lambda w: -np.asarray(value(w)[1]),
    }
    found = [
        optimize.minimize(
            lambda w: (p @ (margin - w), -p),
            np.minimum(start, margin),
            jac=True,
            method="SLSQP",
            bounds=[(-_LARGEST, margin)] * len(p),
            constraints=[constraint, *_not_above(wrong, len(p))],
            options={"maxiter": 500, "ftol": 1e-13},
        )
        for start in _starts(len(p))
    ]
    return float(
        min(one.fun for one in found if _holds(one.x, wrong) and value(one.x)[0] < NO_GAP / 100)
    )


def _holds(scores: np.ndarray, wrong: tuple[int, int] | None) -> bool:
    return wrong is None or bool(scores[wrong[1]] >= scores[wrong[0]] - NO_GAP / 100)


if __name__ == "__main__":
    main()
