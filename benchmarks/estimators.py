"""Bias, variance and time of estimates of the smoothed top-k value's gradient.

    python -m benchmarks.estimators [--repetitions=200] [--output=FILE.json] [--plot=FILE.svg]

Two unbiased Monte Carlo estimates of the gradient of E[(s + epsilon Z)_[k]], from M samples of Z:

- argmax average: `operators.perturbed_top_k_value`, the mean of the one-hots of the k-th class,
  (1/M) sum_m onehot_k(s + epsilon Z_m). With p the exact gradient, its total variance is
  (1/M) sum_j p_j (1 - p_j): the measured variance is divided by it, as a check.
- score function: `optax.perturbations.make_perturbed_fun` around the hard k-th largest f, which is
  (1/M) sum_m (f(s + epsilon Z_m) - f(s)) Z_m / epsilon. f(s) is its default baseline; antithetic
  pairs are not used. Its noise is set to the normal (the default is Gumbel). It is mapped over the
  examples, with one key per example. Called on a batch it would multiply the value of each example
  by the scores of all examples, and the variance by the batch size.

The exact gradient is the gradient of `operators.expected_top_k_value` in float64 with many nodes.
The logits of an example are standard normals, with 3 added to ten random classes: a few candidates
for rank k, and a tail. Times are for the value and gradient of a batch, interleaved. The errors are
measured on the timed gradients.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import command, estimators_report, timing
from topk_jax import operators


class Case(NamedTuple):
    """A recipe's batch, classes and noise."""

    name: str
    batch: int
    num_classes: int
    epsilon: float


CASES = (Case("CIFAR-100", 64, 100, 0.2), Case("Pl@ntNet-300K", 32, 1081, 1.0))
MONTE_CARLO = ("argmax average", "score function")
K = 5
SAMPLES = (1, 2, 3, 5, 10, 30, 100, 300, 1000)
EPSILONS = (0.05, 0.2, 1.0, 5.0)
SAMPLES_OF_EPSILONS = 10
# Calls with a large M draw more samples each, so fewer calls estimate the variance as well.
MOST_SAMPLES = 30_000
FEWEST_CALLS = 30
NUM_RAISED = 10
RAISED_BY = 3.0


def main() -> None:
    """Measures, prints the tables, and writes the results and the plot if requested."""
    # A variance needs two calls.
    parser = command.parser(__doc__, repetitions=200, what="most calls of each", least=2)
    parser.add_argument(
        "--plot", type=command.output_file, help="a file for the plot, .svg or .png"
    )
    arguments = parser.parse_args()
    results = {
        "machine": timing.machine(),
        "k": K,
        "repetitions": arguments.repetitions,
        "by_samples": [
            measure(case, num_samples, arguments.repetitions)
            for case in CASES
            for num_samples in SAMPLES
        ],
        "by_epsilon": [
            measure(case._replace(epsilon=epsilon), SAMPLES_OF_EPSILONS, arguments.repetitions)
            for case in CASES
            for epsilon in EPSILONS
        ],
    }
    print(estimators_report.tables(results))  # noqa: T201
    if arguments.output is not None:
        command.write(results, arguments.output)
    if arguments.plot is not None:
        estimators_report.figure(results).savefig(arguments.plot)


def measure(case: Case, num_samples: int, repetitions: int) -> dict[str, Any]:
    """Errors and median seconds of the estimators at one case and number of samples."""
    calls = min(repetitions, max(MOST_SAMPLES // num_samples, FEWEST_CALLS))
    logits, exact = _problem(case)
    key = jax.random.fold_in(jax.random.key(0), num_samples)
    # Two more calls compile and warm up. Their estimates are used, their times are not.
    keys = list(jax.random.split(key, (calls + 2, case.batch)))
    estimators = {
        "argmax average": functools.partial(_argmax_average, num_samples, case.epsilon),
        "score function": functools.partial(_score_function, num_samples, case.epsilon),
        "exact": functools.partial(_exact, case.epsilon),
    }
    gradients: dict[str, list[jax.Array]] = {name: [] for name in estimators}
    contestants = {
        name: _contestant(estimator, logits, keys, gradients[name])
        for name, estimator in estimators.items()
    }
    seconds = timing.medians_in_turns(contestants, calls)
    found = {name: np.stack(calls) for name, calls in gradients.items()}
    return {
        "case": case.name,
        "batch": case.batch,
        "classes": case.num_classes,
        "epsilon": case.epsilon,
        "M": num_samples,
        "calls": len(keys),
        "estimators": {
            name: {"seconds": seconds[name], **errors(found[name], exact)} for name in MONTE_CARLO
        },
        "exact": {
            "seconds": seconds["exact"],
            "relative_rmse": errors(found["exact"], exact)["relative_rmse"],
        },
        "argmax_variance_over_theory": against_theory(found["argmax average"], exact, num_samples),
    }


@functools.cache
def _problem(case: Case) -> tuple[np.ndarray, np.ndarray]:
    logits = draw_logits(case)
    return logits, exact_gradient(logits, case.epsilon)


def draw_logits(case: Case) -> np.ndarray:
    """Standard normal logits, raised for a few classes of each example."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(case.batch, case.num_classes))
    raised = rng.permuted(np.tile(np.arange(case.num_classes), (case.batch, 1)), axis=-1)
    logits[np.arange(case.batch)[:, None], raised[:, :NUM_RAISED]] += RAISED_BY
    return logits.astype(np.float32)


def exact_gradient(logits: np.ndarray, epsilon: float, num_nodes: int = 128) -> np.ndarray:
    """The exact gradient in float64, which both methods estimate; it adds up to one."""
    with jax.enable_x64(True):

        def total(logits: jax.Array) -> jax.Array:
            return operators.expected_top_k_value(
                logits, K, epsilon=epsilon, num_nodes=num_nodes
            ).sum()

        return np.asarray(jax.jit(jax.grad(total))(jnp.asarray(logits, jnp.float64)))


def errors(gradients: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """Bias, variance and error of gradients [calls, batch, L]: means over the batch."""
    differences = np.swapaxes(gradients.astype(np.float64) - exact, 0, 1)
    calls = differences.shape[1]
    products = differences @ np.swapaxes(differences, 1, 2)
    squared_errors = np.trace(products, axis1=1, axis2=2) / calls
    # The mean of products of different calls is the squared bias. Without bias these products are
    # uncorrelated. Each pair is counted twice.
    products[:, np.arange(calls), np.arange(calls)] = 0
    pairs = calls * (calls - 1)
    squared_biases = products.sum(axis=(1, 2)) / pairs
    spreads = 2 * (products**2).sum(axis=(1, 2)) / pairs**2
    return {
        "squared_bias": float(squared_biases.mean()),
        "squared_bias_standard_error": float(np.sqrt(spreads.sum()) / len(spreads)),
        "variance": float((squared_errors - squared_biases).mean()),
        "relative_rmse": float(np.sqrt(squared_errors.mean() / (exact**2).sum(axis=-1).mean())),
    }


def against_theory(gradients: np.ndarray, exact: np.ndarray, num_samples: int) -> dict[str, float]:
    """The argmax average's variance divided by sum_j p_j (1 - p_j) / M, and its standard error."""
    variances = gradients.astype(np.float64).var(axis=0, ddof=1).sum(axis=-1)
    theory = (exact * (1 - exact)).sum(axis=-1) / num_samples
    # The examples are independent, so their spread gives the error of the mean.
    deviation = (variances - theory).std(ddof=1) / np.sqrt(len(theory))
    return {
        "ratio": float(variances.mean() / theory.mean()),
        "standard_error": float(deviation / theory.mean()),
    }


def _contestant(
    estimator: Callable[[jax.Array, jax.Array], jax.Array],
    logits: np.ndarray,
    keys: list[jax.Array],
    gradients: list[jax.Array],
) -> Callable[[], None]:
    """A call that uses the next keys and stores the gradient."""
    compiled = jax.jit(jax.value_and_grad(lambda logits, keys: estimator(keys, logits).sum()))
    operand = jax.device_put(logits)

    def run() -> None:
        _, gradient = jax.block_until_ready(compiled(operand, keys[len(gradients)]))
        gradients.append(gradient)

    return run


def _argmax_average(
    num_samples: int, epsilon: float, keys: jax.Array, logits: jax.Array
) -> jax.Array:
    return operators.perturbed_top_k_value(
        keys, logits, K, epsilon=epsilon, num_samples=num_samples
    )


def _score_function(
    num_samples: int, epsilon: float, keys: jax.Array, logits: jax.Array
) -> jax.Array:
    def kth(scores: jax.Array) -> jax.Array:
        # Without the barrier XLA turns the selection into a sort.
        return jax.lax.optimization_barrier(jax.lax.top_k(scores, K)[0])[..., -1]

    perturbed = optax.perturbations.make_perturbed_fun(
        kth, num_samples=num_samples, sigma=epsilon, noise=optax.perturbations.Normal()
    )
    return jax.vmap(perturbed)(keys, logits)


def _exact(epsilon: float, _keys: jax.Array, logits: jax.Array) -> jax.Array:
    return operators.expected_top_k_value(logits, K, epsilon=epsilon)


if __name__ == "__main__":
    main()
