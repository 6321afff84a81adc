"""The losses that people compare, and conformal sets, beside their authors' code in one process.

    python -m benchmarks.peers [--output=FILE.json]

Includes pytopk, difftopk, entmax and TorchCP, which need PyTorch, if they are installed, and
LapSum, which is built from its authors' repository (c277d1a, the part for CPUs). It measures on the
CPU, in float32: forward and backward of the mean loss; and from logits to a threshold ("calibrate")
and to sets ("predict"). Ours take batches of examples in one compiled call, as docs/conformal.md
has it for many examples; TorchCP takes all examples at once.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import table, timing
from tests.peers.oracle import torchcp_modules
from topk_jax import losses, operators, sets

# Batch, classes.
SHAPES = ((64, 100), (64, 1081), (64, 10_000))
RANK = 5
# Classes that take part in the sorting networks, as in their paper.
CANDIDATES = 16
TEMPERATURES = (0.01, 0.1, 1.0, 10.0)
ERROR = 0.1
CONFORMAL_CLASSES = 1000
CONFORMAL_EXAMPLES = 100_000
# Examples whose probabilities are in memory at a time.
CONFORMAL_BATCH = 1000
CONFORMAL_REPETITIONS = 3
_TOP_K_WEIGHTS = (0.5, 0.0, 0.0, 0.0, 0.5)
_BASE = "cross_entropy"
_PEERS = ("pytopk", "difftopk", "entmax", "torchcp")
# All of them or none: they are in one environment.
HAS_PEERS = all(importlib.util.find_spec(name) is not None for name in _PEERS)

Loss = Callable[[jax.Array, jax.Array], jax.Array]


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    given = timing.parse(timing.parser(__doc__, repetitions=21))
    examples = CONFORMAL_BATCH if given.smoke else CONFORMAL_EXAMPLES
    shapes = SHAPES[:1] if given.smoke else SHAPES
    results = {
        "machine": timing.machine("torch", *_PEERS),
        "repetitions": given.repetitions,
        "losses": [_row(*shape, given.repetitions) for shape in shapes],
        "relaxations": _relaxations(),
        "conformal": {
            "examples": examples,
            "classes": CONFORMAL_CLASSES,
            "kinds": _conformal(examples, min(given.repetitions, CONFORMAL_REPETITIONS)),
        },
    }
    timing.write(results, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """Time and memory of the losses, and the time of conformal sets."""
    rows, conformal = results["losses"], results["conformal"]
    shapes = [name for row in rows for name in (f"{row['batch']} × {row['classes']:,}", "memory")]
    return "\n\n".join(
        [
            f"{table.machine(results)}; medians of {results['repetitions']} calls in turns. "
            "Forward and backward, as a multiple of cross-entropy, in brackets how many times as "
            "long the authors' code takes in PyTorch; temporary memory in arrays of the logits:",
            table.markdown(
                ["loss", *shapes],
                (
                    [f"`{name}`", *(cell for row in rows for cell in _cells(row["losses"], name))]
                    for name in rows[0]["losses"]
                ),
            ),
            "The distance of the memberships from those of the hard top 5 of 1,000 normal scores, "
            "by temperature; 1 is that of two sets without a common class:",
            table.markdown(
                ["operator", *map(str, TEMPERATURES)],
                (
                    [f"`{name}`", *(f"{distance:.3f}" for distance in distances.values())]
                    for name, distances in results["relaxations"].items()
                ),
            ),
            f"Conformal sets of {conformal['examples']:,} examples with {conformal['classes']:,} "
            "classes, in seconds, and in brackets how many times as long TorchCP takes:",
            table.markdown(
                ["kind", "calibrate", "predict"],
                (
                    [f"`{kind}`", _beside(one, "calibrate"), _beside(one, "predict")]
                    for kind, one in conformal["kinds"].items()
                ),
            ),
        ]
    )


def _cells(found: Mapping[str, Any], name: str) -> tuple[str, str]:
    one = found[name]
    ratio = f"{one['seconds'] / found[_BASE]['seconds']:.1f}"
    theirs = one["their_seconds"]
    brackets = "" if theirs is None else f" ({theirs / one['seconds']:.1f})"
    return ratio + brackets, f"{one['logit_arrays']:.1f}"


def _beside(seconds: Mapping[str, float], name: str) -> str:
    theirs = seconds.get(f"their {name}")
    brackets = "" if theirs is None else f" ({theirs / seconds[name]:.1f})"
    return f"{seconds[name]:.2f}{brackets}"


def _our_losses(num_classes: int) -> dict[str, Loss]:
    """The losses by name, with usual parameters."""
    # From 1 to 1,000 training examples.
    counts = np.geomspace(1000, 1, num_classes).round()
    margins = losses.class_margins(counts, max_margin=0.5)
    relaxed = partial(
        losses.relaxed_top_k_cross_entropy,
        top_k_weights=np.array(_TOP_K_WEIGHTS),
        tau=1.0,
        num_candidates=CANDIDATES,
    )
    key = jax.random.key(0)
    return {
        _BASE: losses.cross_entropy,
        "focal": partial(losses.focal, gamma=2.0),
        "ldam": partial(losses.ldam, margins=margins, scale=30.0),
        "logit_adjusted_cross_entropy": partial(
            losses.logit_adjusted_cross_entropy, class_counts=counts
        ),
        "vector_scaling": partial(losses.vector_scaling, class_counts=counts, gamma=0.2, tau=1.2),
        "generalized_cross_entropy": partial(losses.generalized_cross_entropy, q=0.7),
        "symmetric_cross_entropy": partial(losses.symmetric_cross_entropy, alpha=0.1, beta=1.0),
        "top_k_hinge": partial(losses.top_k_hinge, k=RANK),
        "smooth_top_k_hinge": partial(losses.smooth_top_k_hinge, k=RANK, tau=1.0),
        "noised_top_k_hinge": partial(
            losses.noised_top_k_hinge, k=RANK, epsilon=1.0, num_samples=10, key=key
        ),
        "expected_top_k_hinge": partial(losses.expected_top_k_hinge, k=RANK, epsilon=1.0),
        "lapsum_top_k_loss": partial(losses.lapsum_top_k_loss, k=RANK, alpha=1.0),
        "sigmoid_top_k_loss": partial(losses.sigmoid_top_k_loss, k=RANK, tau=1.0),
        "relaxed, odd_even": partial(relaxed, method="odd_even"),
        "relaxed, soft_sort": partial(relaxed, method="soft_sort"),
        "entmax_loss, alpha 1.5": partial(losses.entmax_loss, alpha=1.5),
        "sparsemax_loss": losses.sparsemax_loss,
        "assume_negative": losses.assume_negative,
    }


def _their_losses(num_classes: int) -> dict[str, Callable[[Any, Any], Any]]:
    """The authors' losses in PyTorch, by the names of ours; none without these packages."""
    if not HAS_PEERS:
        return {}
    import difftopk  # noqa: PLC0415
    import entmax  # noqa: PLC0415
    import pytopk  # noqa: PLC0415

    def relaxed(method: str, **network: Any) -> Any:
        weights = list(_TOP_K_WEIGHTS)
        sizes = {"n": num_classes, "m": CANDIDATES, "p_k": weights, "top1_mode": "sm"}
        return difftopk.TopKCrossEntropyLoss(method, 1.0, **sizes, **network)

    found: dict[str, Callable[[Any, Any], Any]] = {
        "noised_top_k_hinge": pytopk.BalNoisedTopK(k=RANK, epsilon=1.0, n_sample=10),
        "relaxed, odd_even": relaxed("odd_even", distribution="cauchy"),
        "relaxed, soft_sort": relaxed("softsort"),
        "entmax_loss, alpha 1.5": entmax.Entmax15Loss(),
        "sparsemax_loss": entmax.SparsemaxLoss(),
    }
    if importlib.util.find_spec("lapsum") is not None:
        found["lapsum_top_k_loss"] = _lapsum
    return found


def _lapsum(scores: Any, classes: Any) -> Any:
    import torch  # noqa: PLC0415

    sizes, alpha = torch.full((len(scores), 1), float(RANK)), torch.tensor(1.0)
    return torch.nn.functional.nll_loss(
        importlib.import_module("lapsum.topk").log_soft_topk(scores, sizes, alpha), classes
    )


def _row(batch: int, num_classes: int, repetitions: int) -> dict[str, Any]:
    """Value, temporary memory and seconds of each loss at one shape, ours and theirs."""
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(batch, num_classes)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, num_classes, batch), jnp.int32)
    contestants: dict[str, timing.Contestant] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, loss in _our_losses(num_classes).items():
        compiled = timing.value_and_gradient(loss).lower(logits, labels).compile()
        value, gradient = compiled(logits, labels)
        found[name] = {
            "value": float(value),
            "logit_arrays": timing.logit_arrays(compiled, logits),
            # The classes of an example that have a gradient.
            "nonzeros": float((gradient != 0).sum(axis=-1).mean()),
        }
        contestants[name] = timing.blocking(compiled, logits, labels)
    theirs = {
        name: _in_torch(loss, logits, labels) for name, loss in _their_losses(num_classes).items()
    }
    for name, contestant in theirs.items():
        contestants[f"their {name}"] = contestant
        found[name]["their_value"] = float(contestant())
    seconds = timing.medians_in_turns(contestants, repetitions, settle=bool(theirs))
    for name, one in found.items():
        one["seconds"] = seconds[name]
        one["their_seconds"] = seconds.get(f"their {name}")
    return {"batch": batch, "classes": num_classes, "losses": found}


def _in_torch(
    loss: Callable[[Any, Any], Any], logits: jax.Array, labels: jax.Array
) -> timing.Contestant:
    import torch  # noqa: PLC0415

    scores = torch.tensor(np.asarray(logits), requires_grad=True)
    classes = torch.tensor(np.asarray(labels), dtype=torch.int64)

    def run() -> Any:
        scores.grad = None
        value = loss(scores, classes)
        value.backward()
        return value.detach()

    return run


def _relaxations() -> dict[str, dict[str, float]]:
    """The mean distance of each soft top-k from the hard one, by temperature.

    The distance of an example is the sum over the classes, in units of 2 K, the distance of two
    sets without a common class. The scores are normal.
    """
    scores = jax.random.normal(jax.random.key(0), (64, 1000))
    hard = sets.top_k_set(scores, k=RANK)

    def ranks(method: str) -> Callable[[jax.Array, float], jax.Array]:
        return lambda s, tau: operators.relaxed_ranks(s, RANK, method=method, tau=tau).sum(axis=-2)

    def norm(p: float) -> Callable[[jax.Array, float], jax.Array]:
        return lambda s, tau: operators.p_norm_top_k(s, RANK, p=p, regularization=tau)

    soft: dict[str, Callable[[jax.Array, float], jax.Array]] = {
        "lapsum_top_k": lambda s, tau: operators.lapsum_top_k(s, RANK, alpha=tau),
        "sigmoid_top_k": lambda s, tau: operators.sigmoid_top_k(s, RANK, tau=tau),
        # The memberships are sigmoids of 2 s / epsilon.
        "sinkhorn_top_k": lambda s, tau: operators.sinkhorn_top_k(s, RANK, epsilon=2 * tau),
        "p_norm_top_k, p 2": norm(2.0),
        "p_norm_top_k, p 4/3": norm(4 / 3),
        "relaxed_ranks, soft_sort": ranks("soft_sort"),
    }

    def distance(function: Callable[[jax.Array, float], jax.Array], tau: float) -> float:
        # The scores are an argument because XLA would take minutes to sort a constant.
        memberships = jax.jit(function)(scores, tau)
        return float(jnp.abs(memberships - hard).sum(axis=-1).mean() / (2 * RANK))

    return {
        name: {str(tau): distance(function, tau) for tau in TEMPERATURES}
        for name, function in soft.items()
    }


def _conformal(examples: int, repetitions: int) -> dict[str, dict[str, float]]:
    """Seconds to calibrate on examples, and to predict the sets of the same number, by kind."""
    rng = np.random.default_rng(0)
    logits = jnp.asarray(2.5 * rng.standard_normal((examples, CONFORMAL_CLASSES), dtype=np.float32))
    labels = jax.random.categorical(jax.random.key(0), logits)
    kinds: dict[str, dict[str, Any]] = {
        "lac": {},
        "aps": {},
        "raps": {"rank_penalty": 0.01, "unpenalized_ranks": 5},
        "saps": {"rank_penalty": 0.1},
    }
    found = {}
    for kind, parameters in kinds.items():
        calibrated, predicted = (
            jax.jit(partial(function, kind=kind, **parameters))
            for function in (_calibrated, _predicted)
        )
        quantile = calibrated(logits, labels)
        contestants = {
            "calibrate": timing.blocking(calibrated, logits, labels),
            "predict": timing.blocking(predicted, logits, quantile),
        }
        if HAS_PEERS:
            contestants |= _torchcp(kind, parameters, np.asarray(logits), np.asarray(labels))
        found[kind] = timing.medians_in_turns(contestants, repetitions)
    return found


def _calibrated(logits: jax.Array, labels: jax.Array, **settings: Any) -> jax.Array:
    scores = _in_batches(sets.conformal_label_scores, settings, logits, labels)
    return sets.conformal_quantile(scores, labels, error=ERROR)


def _predicted(logits: jax.Array, quantile: jax.Array, **settings: Any) -> jax.Array:
    def sets_of(probabilities: jax.Array, **given: Any) -> jax.Array:
        return sets.conformal_set(probabilities, quantile, **given)

    return _in_batches(sets_of, settings, logits)


def _in_batches(
    function: Callable[..., jax.Array], settings: Mapping[str, Any], *arrays: jax.Array
) -> jax.Array:
    def of_batch(batch: tuple[jax.Array, ...]) -> jax.Array:
        key, logits, *others = batch
        # The scores of "lac" are never random.
        randomness = {} if settings["kind"] == "lac" else {"key": key}
        return function(jax.nn.softmax(logits), *others, **settings, **randomness)

    batches = [array.reshape(-1, CONFORMAL_BATCH, *array.shape[1:]) for array in arrays]
    keys = jax.random.split(jax.random.key(0), len(batches[0]))
    results = jax.lax.map(of_batch, (keys, *batches))
    return results.reshape(-1, *results.shape[2:])


def _torchcp(
    kind: str, parameters: Mapping[str, Any], logits: np.ndarray, labels: np.ndarray
) -> dict[str, timing.Contestant]:
    """TorchCP's calibration and prediction."""
    import torch  # noqa: PLC0415

    score, predictor = torchcp_modules.load()
    if kind == "raps":
        function = score.RAPS(
            penalty=parameters["rank_penalty"], kreg=parameters["unpenalized_ranks"]
        )
    elif kind == "saps":
        function = score.SAPS(weight=parameters["rank_penalty"])
    else:
        function = {"lac": score.LAC, "aps": score.APS}[kind]()
    scores, classes = torch.tensor(logits), torch.tensor(labels, dtype=torch.int64)
    made = predictor.SplitPredictor(function, alpha=ERROR)
    made.calculate_threshold(scores, classes, ERROR)
    return {
        "their calibrate": lambda: made.calculate_threshold(scores, classes, ERROR),
        "their predict": lambda: made.predict_with_logits(scores),
    }


if __name__ == "__main__":
    main()
