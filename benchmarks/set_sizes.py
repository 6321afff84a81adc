"""The mean size of conformal sets after losses that train sets, beside cross-entropy.

    python -m benchmarks.set_sizes [--repetitions=4] [--output=FILE.json]

It uses the embedded digits and a network of one hidden layer. Each repetition has another seed, and
another division of the examples that are not trained on into two halves: one calibrates the score
"lac" at an error, the other one gives the coverage and the mean size. All losses of a repetition
start from the same weights and see the same batches. The losses of sets are added to the
cross-entropy with the settings of `configs/own_data.py`, for the error of the sets.

The networks of cross-entropy also get randomised sets of the score "aps" at three temperatures: 1,
the calibrated one, and the one of conformal temperature scaling (ConfTS). Thirds of the same
examples fit the temperature, calibrate, and are measured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats
from flax import linen as nn

from benchmarks import command, markdown, timing
from configs import own_data
from topk_jax import losses, sets
from train import data

ERRORS = (0.01, 0.1)
EPOCHS, RATE = 60, 3e-3
# A batch has a quantile at each error.
BATCH_SIZE = 256
LOSSES = {
    "cross_entropy": {},
    "conformal_training, expected": {"quantile": "expected"},
    "conformal_training, soft_sort": {"quantile": "soft_sort"},
    "size_at_average_error": {},
}
TEMPERATURES = ("one", "calibrated", "ConfTS")
# Adam's steps, and their size in the logarithm of the temperature, which starts at 0.
CONFTS_STEPS, CONFTS_RATE = 200, 0.01

# Logits, [n, L], and labels.
Examples = tuple[np.ndarray, np.ndarray]


class _Classifier(nn.Module):
    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        pixels = images.reshape(len(images), -1).astype(jnp.float32) / 255
        logits: jax.Array = nn.Dense(self.num_classes)(jax.nn.relu(nn.Dense(64)(pixels)))
        return logits


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    arguments = command.parser(__doc__, repetitions=4, what="seeds of each", least=2).parse_args()
    command.write(measure(arguments.repetitions), arguments.output)


def measure(repetitions: int) -> dict[str, Any]:
    """Coverage and mean size by data set, error and loss, a number of each repetition."""
    by_loss, by_temperature = _measure(repetitions)
    return {
        "machine": timing.machine(),
        "data_sets": {"digits": by_loss},
        "temperatures": {"digits": by_temperature},
    }


def tables(results: Mapping[str, Any]) -> str:
    """The losses, and the temperatures; differences with 95 % intervals."""
    return "\n\n".join(
        [
            _table(results["data_sets"], "loss", "cross_entropy", "cross-entropy", []),
            _table(results["temperatures"], "temperature", "one", "at 1", ["found"]),
        ]
    )


def _table(
    found: Mapping[str, Any], of: str, base: str, base_in_words: str, further: Sequence[str]
) -> str:
    """A row of each data set, error and choice, with the differences to a base."""
    rows = []
    for name, by_error in found.items():
        for error, by_choice in by_error.items():
            for choice, numbers in by_choice.items():
                row = [name, error, choice, *(f"{np.mean(numbers[key]):.2f}" for key in further)]
                row += [f"{np.mean(numbers['coverage']):.3f}", f"{np.mean(numbers['size']):.2f}"]
                gains = np.subtract(numbers["size"], by_choice[base]["size"])
                rows.append([*row, "" if choice == base else _interval(gains)])
    header = ["data set", "error", of, *further, "coverage", "mean size", f"minus {base_in_words}"]
    return markdown.table(header, rows)


def _interval(differences: np.ndarray) -> str:
    """The mean of paired differences, and half of its interval by Student's law."""
    number = len(differences)
    half = scipy.stats.t.ppf(0.975, number - 1) * differences.std(ddof=1) / np.sqrt(number)
    return f"{differences.mean():+.2f} ± {half:.2f}"


def _measure(repetitions: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers by error and loss, and by error and temperature."""
    dataset = data.read({"name": "digits", "batch_size": BATCH_SIZE}).load(None)
    network = _Classifier(dataset.num_classes)
    trained = _arrays(dataset.train)
    held_out = [
        np.concatenate(parts)
        for parts in zip(_arrays(dataset.validation), _arrays(dataset.test), strict=True)
    ]
    found: dict[str, Any] = {str(error): {loss: [] for loss in LOSSES} for error in ERRORS}
    tempered: dict[str, Any] = {str(error): {kind: [] for kind in TEMPERATURES} for error in ERRORS}
    for loss in LOSSES:
        runs = {
            error: _trainer(network, _objective(loss, error), trained)
            for error in (ERRORS[:1] if loss == "cross_entropy" else ERRORS)
        }
        for seed in range(repetitions):
            logits = {error: run(seed, held_out[0]) for error, run in runs.items()}
            for error in ERRORS:
                # Cross-entropy does not depend on the error.
                scores = logits.get(error, logits[ERRORS[0]])
                old, new = _parts(scores, held_out[1], seed, 2)
                found[str(error)][loss].append(_quality(old, new, error, kind="lac"))
                if loss == "cross_entropy":
                    parts = _parts(scores, held_out[1], seed, 3)
                    for kind, numbers in _at_temperatures(parts, error, seed).items():
                        tempered[str(error)][kind].append(numbers)
    return _by_number(found), _by_number(tempered)


def _by_number(found: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of all repetitions, by their names."""
    return {
        error: {
            choice: {key: [each[key] for each in repeated] for key in repeated[0]}
            for choice, repeated in by_choice.items()
        }
        for error, by_choice in found.items()
    }


def _arrays(split: data.Examples) -> tuple[np.ndarray, np.ndarray]:
    return split.rows(np.arange(len(split))), split.labels


def _objective(name: str, error: float) -> Callable[[jax.Array, jax.Array], jax.Array]:
    public, _, _ = name.partition(",")
    if public == "cross_entropy":
        return lambda logits, labels: losses.cross_entropy(logits, labels).mean()
    settings = {**own_data.loss_fields(public), **LOSSES[name], "error": error}
    names = ["error", "temperature", "quantile", "smoothing", "size_weight"]
    chosen = {field: settings[field] for field in names if field in settings}
    of_sets = getattr(losses, public)
    return lambda logits, labels: (
        losses.cross_entropy(logits, labels).mean()
        + settings["weight"] * of_sets(logits, labels, **chosen)
    )


def _trainer(
    network: nn.Module,
    objective: Callable[[jax.Array, jax.Array], jax.Array],
    trained: tuple[np.ndarray, np.ndarray],
) -> Callable[[int, np.ndarray], np.ndarray]:
    """Trains by AdamW with a seed, and gives the logits of the examples that are not trained on."""
    inputs, labels = map(jnp.asarray, trained)
    steps = len(labels) // BATCH_SIZE
    optimizer = optax.adamw(optax.cosine_decay_schedule(RATE, EPOCHS * steps), weight_decay=1e-4)

    def logits_of(params: Any, inputs: jax.Array) -> jax.Array:
        logits: Any = network.apply(params, inputs)
        return logits

    @jax.jit
    def run(seed: jax.Array) -> Any:
        key, key_of_weights = jax.random.split(jax.random.key(seed))
        params = network.init(key_of_weights, inputs[:1])

        def step(state: Any, rows: jax.Array) -> tuple[Any, None]:
            params, optimizer_state = state
            gradients = jax.grad(
                lambda params: objective(logits_of(params, inputs[rows]), labels[rows])
            )(params)
            updates, optimizer_state = optimizer.update(gradients, optimizer_state, params)
            return (optax.apply_updates(params, updates), optimizer_state), None

        orders = jax.vmap(lambda key: jax.random.permutation(key, len(labels)))(
            jax.random.split(key, EPOCHS)
        )
        batches = orders[:, : steps * BATCH_SIZE].reshape(-1, BATCH_SIZE)
        return jax.lax.scan(step, (params, optimizer.init(params)), batches)[0][0]

    apply = jax.jit(logits_of)

    def held_out_logits(seed: int, held_out: np.ndarray) -> np.ndarray:
        params = run(np.uint32(seed))
        parts = np.array_split(held_out, max(1, len(held_out) // 2000))
        return np.concatenate([np.asarray(apply(params, part)) for part in parts])

    return held_out_logits


def _parts(logits: np.ndarray, labels: np.ndarray, seed: int, number: int) -> list[Examples]:
    """Random parts of the examples, of nearly equal size."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return [(logits[part], labels[part]) for part in np.array_split(order, number)]


def _quality(
    old: Examples, new: Examples, error: float, *, kind: str, key: jax.Array | None = None
) -> dict[str, float]:
    """The coverage and the mean size of new sets, calibrated on old examples."""
    keys = (None, None) if key is None else jax.random.split(key)
    probabilities = [np.asarray(jax.nn.softmax(logits)) for logits, _ in (old, new)]
    scores = sets.conformal_label_scores(probabilities[0], old[1], kind=kind, key=keys[0])
    quantile = sets.conformal_quantile(scores, old[1], error=error)
    chosen = np.asarray(sets.conformal_set(probabilities[1], quantile, kind=kind, key=keys[1]))
    covered = chosen[np.arange(len(chosen)), new[1]]
    return {"coverage": float(covered.mean()), "size": float(chosen.sum(axis=-1).mean())}


def _at_temperatures(
    parts: Sequence[Examples], error: float, seed: int
) -> dict[str, dict[str, float]]:
    """The temperatures that the first of three parts has, and the sets "aps" of the others."""
    fitted = parts[0]
    temperatures = {
        "one": 1.0,
        "calibrated": float(sets.temperature(*fitted)),
        "ConfTS": _conformal_temperature(*fitted, error),
    }
    found = {}
    for kind, temperature in temperatures.items():
        old, new = [(logits / np.float32(temperature), labels) for logits, labels in parts[1:]]
        quality = _quality(old, new, error, kind="aps", key=jax.random.key(seed))
        found[kind] = {"found": temperature, **quality}
    return found


def _conformal_temperature(logits: np.ndarray, labels: np.ndarray, error: float) -> float:
    """The temperature after some steps from 1 that lower the efficiency gap; it has no minimum."""
    optimizer = optax.adam(CONFTS_RATE)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        logarithm, state = carry
        gradient = jax.grad(
            lambda logarithm: losses.efficiency_gap(
                logits * jnp.exp(-logarithm), labels, error=error
            )
        )(logarithm)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(logarithm, updates), state), None

    start = jnp.zeros(())
    (logarithm, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=CONFTS_STEPS)
    return float(jnp.exp(logarithm))


if __name__ == "__main__":
    main()
