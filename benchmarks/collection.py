"""The losses that people compare, side by side, and beside their authors' code in one process.

    python -m benchmarks.collection [--repetitions=21] [--examples=100000] [--output=FILE.json]

Needs jax, numpy and optax. Includes pytopk, difftopk, entmax, LapSum and TorchCP if they are
installed; all need PyTorch. LapSum is built from its authors' repository, and DFTopK is not
packaged. It measures on the CPU, in float32, forward and backward of the mean loss.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import command, timing, torchcp_modules
from topk_jax import losses, operators, sets

# Batch, classes.
SHAPES = ((64, 100), (64, 1081), (64, 10_000))
RANK = 5
# Classes that take part in the sorting networks, as in their paper.
CANDIDATES = 16
TEMPERATURES = (0.01, 0.1, 1.0, 10.0)
ERROR = 0.1
CONFORMAL_CLASSES = 1000
# Examples whose probabilities are in memory at a time.
CONFORMAL_BATCH = 1000
_TOP_K_WEIGHTS = (0.5, 0.0, 0.0, 0.0, 0.5)

Loss = Callable[[jax.Array, jax.Array], jax.Array]
# Makes a PyTorch loss of scores and classes for a number of classes.
Peer = Callable[[int], Callable[[Any, Any], Any]]


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21)
    parser.add_argument(
        "--examples",
        type=command.integer(CONFORMAL_BATCH),
        default=100_000,
        help=f"of the conformal sets, a multiple of {CONFORMAL_BATCH}",
    )
    arguments = parser.parse_args()
    if arguments.examples % CONFORMAL_BATCH:
        parser.error(f"--examples must be a multiple of {CONFORMAL_BATCH}")
    results = {
        "machine": timing.machine("difftopk", "entmax", "lapsum", "torchcp"),
        "repetitions": arguments.repetitions,
        "losses": [row(*shape, arguments.repetitions) for shape in SHAPES],
        "relaxations": relaxations(),
        "conformal": {
            "examples": arguments.examples,
            "classes": CONFORMAL_CLASSES,
            "kinds": conformal(arguments.examples, min(arguments.repetitions, 3)),
        },
    }
    command.write(results, arguments.output)


def our_losses(num_classes: int) -> dict[str, Loss]:
    """The losses by name, with usual parameters."""
    # From 1 to 1,000 training examples.
    counts = np.geomspace(1000, 1, num_classes).round()
    margins = losses.class_margins(counts, max_margin=0.5)
    key = jax.random.key(0)

    def relaxed(method: str) -> Loss:
        return functools.partial(
            losses.relaxed_top_k_cross_entropy,
            top_k_weights=np.array(_TOP_K_WEIGHTS),
            method=method,
            tau=1.0,
            num_candidates=CANDIDATES,
        )

    return {
        "cross_entropy": losses.cross_entropy,
        "focal": functools.partial(losses.focal, gamma=2.0),
        "ldam": functools.partial(losses.ldam, margins=margins, scale=30.0),
        "logit_adjusted_cross_entropy": functools.partial(
            losses.logit_adjusted_cross_entropy, class_counts=counts
        ),
        "vector_scaling": functools.partial(
            losses.vector_scaling, class_counts=counts, gamma=0.2, tau=1.2
        ),
        "generalized_cross_entropy": functools.partial(losses.generalized_cross_entropy, q=0.7),
        "symmetric_cross_entropy": functools.partial(
            losses.symmetric_cross_entropy, alpha=0.1, beta=1.0
        ),
        "top_k_hinge": functools.partial(losses.top_k_hinge, k=RANK),
        "smooth_top_k_hinge": functools.partial(losses.smooth_top_k_hinge, k=RANK, tau=1.0),
        "noised_top_k_hinge": functools.partial(
            losses.noised_top_k_hinge, k=RANK, epsilon=1.0, num_samples=10, key=key
        ),
        "expected_top_k_hinge": functools.partial(losses.expected_top_k_hinge, k=RANK, epsilon=1.0),
        "lapsum_top_k_loss": functools.partial(losses.lapsum_top_k_loss, k=RANK, alpha=1.0),
        "sigmoid_top_k_loss": functools.partial(losses.sigmoid_top_k_loss, k=RANK, tau=1.0),
        "relaxed, bitonic": relaxed("bitonic"),
        "relaxed, odd_even": relaxed("odd_even"),
        "relaxed, neural_sort": relaxed("neural_sort"),
        "relaxed, soft_sort": relaxed("soft_sort"),
        "entmax_loss, alpha 1.5": functools.partial(losses.entmax_loss, alpha=1.5),
        "sparsemax_loss": losses.sparsemax_loss,
        "assume_negative": losses.assume_negative,
    }


def peers() -> dict[str, Peer]:
    """The authors' losses in PyTorch, by the names of ours, as far as they are installed."""
    found: dict[str, Peer] = {}
    if importlib.util.find_spec("pytopk") is not None:
        import pytopk  # noqa: PLC0415

        found["noised_top_k_hinge"] = lambda _num_classes: pytopk.BalNoisedTopK(
            k=RANK, epsilon=1.0, n_sample=10
        )
    if importlib.util.find_spec("entmax") is not None:
        import entmax  # noqa: PLC0415

        found["entmax_loss, alpha 1.5"] = lambda _num_classes: entmax.Entmax15Loss()
        found["sparsemax_loss"] = lambda _num_classes: entmax.SparsemaxLoss()
    if importlib.util.find_spec("difftopk") is not None:
        import difftopk  # noqa: PLC0415

        def relaxed(method: str, **network: Any) -> Peer:
            return lambda num_classes: difftopk.TopKCrossEntropyLoss(
                method,
                1.0,
                n=num_classes,
                m=CANDIDATES,
                p_k=list(_TOP_K_WEIGHTS),
                top1_mode="sm",
                **network,
            )

        found["relaxed, bitonic"] = relaxed("bitonic__non_sparse", distribution="cauchy")
        found["relaxed, odd_even"] = relaxed("odd_even", distribution="cauchy")
        found["relaxed, neural_sort"] = relaxed("neuralsort")
        found["relaxed, soft_sort"] = relaxed("softsort")
    if importlib.util.find_spec("lapsum") is not None:
        import torch  # noqa: PLC0415

        log_soft_topk = importlib.import_module("lapsum.topk").log_soft_topk

        def lapsum(scores: Any, classes: Any) -> Any:
            sizes, alpha = torch.full((len(scores), 1), float(RANK)), torch.tensor(1.0)
            return torch.nn.functional.nll_loss(log_soft_topk(scores, sizes, alpha), classes)

        found["lapsum_top_k_loss"] = lambda _num_classes: lapsum
    return found


def row(batch: int, num_classes: int, repetitions: int) -> dict[str, Any]:
    """Seconds, temporary memory and non-zeros of the gradient of each loss at one shape."""
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(batch, num_classes)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, num_classes, batch), jnp.int32)
    contestants: dict[str, timing.Contestant] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, loss in our_losses(num_classes).items():
        compiled = timing.value_and_gradient(loss).lower(logits, labels).compile()
        value, gradient = compiled(logits, labels)
        found[name] = {
            "value": float(value),
            "logit_arrays": timing.logit_arrays(compiled, logits),
            "nonzeros": float((gradient != 0).sum(axis=-1).mean()),
        }
        contestants[name] = timing.blocking(compiled, logits, labels)
    theirs = {name: _in_torch(make(num_classes), logits, labels) for name, make in peers().items()}
    for name, contestant in theirs.items():
        contestants[f"their {name}"] = contestant
        found[name]["their_value"] = float(contestant())
    seconds = timing.medians_in_turns(contestants, repetitions, settle=bool(theirs))
    for name, one in found.items():
        one["seconds"] = seconds[name]
        one["their_seconds"] = seconds.get(f"their {name}")
    return {"batch": batch, "classes": num_classes, "losses": found}


def relaxations() -> dict[str, dict[str, float]]:
    """The mean distance of each soft top-k from the hard one, by temperature.

    The distance of an example is the sum over the classes, in units of 2 K, the distance of two
    sets without a common class. The scores are normal.
    """
    scores = jax.random.normal(jax.random.key(0), (64, 1000))
    hard = sets.top_k_set(scores, k=RANK)
    soft: dict[str, Callable[[jax.Array, float], jax.Array]] = {
        "lapsum_top_k": lambda scores, tau: operators.lapsum_top_k(scores, RANK, alpha=tau),
        "sigmoid_top_k": lambda scores, tau: operators.sigmoid_top_k(scores, RANK, tau=tau),
        # The memberships are sigmoids of 2 s / epsilon.
        "sinkhorn_top_k": lambda scores, tau: operators.sinkhorn_top_k(
            scores, RANK, epsilon=2 * tau
        ),
        "p_norm_top_k, p 2": lambda scores, tau: operators.p_norm_top_k(
            scores, RANK, p=2.0, regularization=tau
        ),
        "p_norm_top_k, p 4/3": lambda scores, tau: operators.p_norm_top_k(
            scores, RANK, p=4 / 3, regularization=tau
        ),
        "relaxed_ranks, soft_sort": lambda scores, tau: operators.relaxed_ranks(
            scores, RANK, method="soft_sort", tau=tau
        ).sum(axis=-2),
        "relaxed_ranks, neural_sort": lambda scores, tau: operators.relaxed_ranks(
            scores, RANK, method="neural_sort", tau=tau
        ).sum(axis=-2),
    }

    def distance(function: Callable[[jax.Array, float], jax.Array], tau: float) -> float:
        # The scores are an argument because XLA would take minutes to sort a constant.
        memberships = jax.jit(function)(scores, tau)
        return float(jnp.abs(memberships - hard).sum(axis=-1).mean() / (2 * RANK))

    return {
        name: {str(tau): distance(function, tau) for tau in TEMPERATURES}
        for name, function in soft.items()
    }


def conformal(examples: int, repetitions: int) -> dict[str, dict[str, Any]]:
    """Seconds to calibrate on examples, and to predict the sets of the same number, by kind."""
    rng = np.random.default_rng(0)
    logits = jnp.asarray(2.5 * rng.standard_normal((examples, CONFORMAL_CLASSES), dtype=np.float32))
    labels = jax.random.categorical(jax.random.key(0), logits)
    found: dict[str, dict[str, Any]] = {}
    theirs = _torchcp()
    for kind, parameters in {
        "lac": {},
        "aps": {},
        "raps": {"rank_penalty": 0.01, "unpenalized_ranks": 5},
        "saps": {"rank_penalty": 0.1},
    }.items():
        functions = _conformal_functions({"kind": kind, **parameters})
        calibrated, predicted = (jax.jit(function) for function in functions)
        quantile = calibrated(logits, labels)
        contestants: dict[str, timing.Contestant] = {
            "calibrate": timing.blocking(calibrated, logits, labels),
            "predict": timing.blocking(predicted, logits, quantile),
        }
        if theirs is not None:
            contestants |= theirs(kind, parameters, np.asarray(logits), np.asarray(labels))
        found[kind] = timing.medians_in_turns(contestants, repetitions)
    return found


def _conformal_functions(settings: dict[str, Any]) -> tuple[Callable[..., jax.Array], ...]:
    """Calibration and prediction in batches, as docs/conformal.md has them for many examples."""

    def in_batches(function: Callable[..., jax.Array], *arrays: jax.Array) -> jax.Array:
        def of_batch(batch: tuple[jax.Array, ...]) -> jax.Array:
            key, logits, *others = batch
            # The scores of "lac" are never random.
            randomness = {} if settings["kind"] == "lac" else {"key": key}
            return function(jax.nn.softmax(logits), *others, **settings, **randomness)

        batches = [array.reshape(-1, CONFORMAL_BATCH, *array.shape[1:]) for array in arrays]
        keys = jax.random.split(jax.random.key(0), len(batches[0]))
        results = jax.lax.map(of_batch, (keys, *batches))
        return results.reshape(-1, *results.shape[2:])

    def calibrated(logits: jax.Array, labels: jax.Array) -> jax.Array:
        scores = in_batches(sets.conformal_label_scores, logits, labels)
        return sets.conformal_quantile(scores, labels, error=ERROR)

    def predicted(logits: jax.Array, quantile: jax.Array) -> jax.Array:
        def sets_of(probabilities: jax.Array, **given: Any) -> jax.Array:
            return sets.conformal_set(probabilities, quantile, **given)

        return in_batches(sets_of, logits)

    return calibrated, predicted


def _torchcp() -> Callable[..., dict[str, timing.Contestant]] | None:
    """The contestants of TorchCP, if it is installed."""
    if importlib.util.find_spec("torchcp") is None:
        return None
    import torch  # noqa: PLC0415

    score, predictor = torchcp_modules.load()
    makers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "lac": lambda _: score.LAC(),
        "aps": lambda _: score.APS(),
        "raps": lambda given: score.RAPS(
            penalty=given["rank_penalty"], kreg=given["unpenalized_ranks"]
        ),
        "saps": lambda given: score.SAPS(weight=given["rank_penalty"]),
    }

    def contestants(
        kind: str, parameters: dict[str, Any], logits: np.ndarray, labels: np.ndarray
    ) -> dict[str, timing.Contestant]:
        scores, classes = torch.tensor(logits), torch.tensor(labels, dtype=torch.int64)
        made = predictor.SplitPredictor(makers[kind](parameters), alpha=ERROR)
        made.calculate_threshold(scores, classes, ERROR)
        return {
            "their calibrate": lambda: made.calculate_threshold(scores, classes, ERROR),
            "their predict": lambda: made.predict_with_logits(scores),
        }

    return contestants


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


if __name__ == "__main__":
    main()
