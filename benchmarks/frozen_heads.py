"""New heads on the features of frozen networks: as they are, standardized, and as runs have them.

    python -m benchmarks.frozen_heads NAME=FEATURES.npz ... [--repetitions=3] [--output=FILE.json]

Each file is what `train.embed` writes for a folder of images: with --weights for a file of weights,
with --workdir for a run of your own. The head is trained as by `configs/images.py` with
--config.model.freeze=True and --config.dataset.augmentation=none: its loss, batch size, epochs,
optimizer and schedule, for each of some learning rates. Repetitions are other seeds.
"""

import argparse
import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import command, markdown, timing
from configs import features as features_recipe
from configs import images
from topk_jax.losses import cross_entropy
from topk_jax.metrics import label_ranks
from train import data
from train.configuration import OptimizerFields
from train.data import Dataset, Examples
from train.models import feature_norm
from train.models.heads import LinearHead
from train.training import optimizer

RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclasses.dataclass(frozen=True)
class Features:
    """Features [n, d] and labels [n] for training and for validation."""

    train: np.ndarray
    train_labels: np.ndarray
    validation: np.ndarray
    validation_labels: np.ndarray

    def of_form(self, mean: np.ndarray, scale: np.ndarray) -> "Features":
        """The features minus a mean, divided by a scale."""
        changed = ((one - mean) / scale for one in (self.train, self.validation))
        train, validation = (one.astype(np.float32) for one in changed)
        return dataclasses.replace(self, train=train, validation=validation)


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=3, what="seeds of each")
    parser.add_argument("file", type=_named_file, nargs="+", help="NAME=FEATURES.npz")
    arguments = parser.parse_args()
    command.write(measure(dict(arguments.file), arguments.repetitions), arguments.output)


def measure(files: dict[str, Path], repetitions: int) -> dict[str, Any]:
    """The validation loss, top-1 and top-3 accuracy by network, form of the features and rate."""
    return {
        "machine": timing.machine(),
        "repetitions": repetitions,
        "rates": RATES,
        "networks": {name: _measure(path, repetitions) for name, path in files.items()},
    }


def tables(results: dict[str, Any]) -> str:
    """The means over seeds as a Markdown table, a row for a network and a form of its features."""
    rows = [
        [name, form, *(_cell(by_rate[str(rate)]) for rate in results["rates"])]
        for name, network in results["networks"].items()
        for form, by_rate in network["forms"].items()
    ]
    header = ["network", "features", *(f"rate {rate}" for rate in results["rates"])]
    return markdown.table(header, rows)


def _measure(path: Path, repetitions: int) -> dict[str, Any]:
    dataset = _load(path)
    found = Features(*_rows(dataset.train), *_rows(dataset.validation))
    mean, deviation = (np.asarray(one)[None] for one in (dataset.mean, dataset.std))
    norm = feature_norm.measure(found.train)
    forms = {
        "as they are": found,
        "standardized": found.of_form(mean, deviation),
        "normalized": found.of_form(norm["mean"][None], norm["scale"][None]),
    }
    train = _trainer(len(found.train), dataset.num_classes)
    return {
        "num_features": found.train.shape[1],
        "training_images": len(found.train),
        "validation_images": len(found.validation),
        "num_classes": dataset.num_classes,
        "mean_squared_length": float(np.square(found.train, dtype=np.float64).sum(axis=1).mean()),
        "forms": {
            name: {
                str(rate): [train(form, rate, seed) for seed in range(repetitions)]
                for rate in RATES
            }
            for name, form in forms.items()
        },
    }


def _load(path: Path) -> Dataset:
    config = features_recipe.get_config().dataset
    config.path = str(path)
    return data.read(config.to_dict()).load(None)


def _rows(split: Examples) -> tuple[np.ndarray, np.ndarray]:
    return split.rows(np.arange(len(split))).astype(np.float32), split.labels


def _trainer(num_examples: int, num_classes: int) -> Callable[[Features, float, int], list[float]]:
    """Trains a head on features at a rate, with a seed: validation loss, top-1, top-3 accuracy."""
    recipe = images.get_config()
    settings = OptimizerFields(**recipe.optimizer)
    batch_size, epochs = recipe.dataset.batch_size, recipe.num_epochs
    steps = num_examples // batch_size
    head = LinearHead(num_classes)

    def logits_of(params: Any, features: jax.Array) -> jax.Array:
        logits: Any = head.apply({"params": params}, features)
        return logits

    def loss_of(params: Any, features: jax.Array, labels: jax.Array) -> jax.Array:
        return cross_entropy(logits_of(params, features), labels)

    @jax.jit
    def run(features: jax.Array, labels: jax.Array, rate: jax.Array, seed: jax.Array) -> Any:
        values = {**optimizer.hyperparameters(settings), "learning_rate": rate}
        made = optimizer.build(
            settings, values, num_epochs=epochs, steps_per_epoch=steps
        ).transformation
        key, key_of_head = jax.random.split(jax.random.key(seed))
        params = head.init(key_of_head, features[:1])["params"]

        def step(state: Any, rows: jax.Array) -> tuple[Any, None]:
            params, opt_state = state
            gradients = jax.grad(
                lambda params: loss_of(params, features[rows], labels[rows]).mean()
            )(params)
            updates, opt_state = made.update(gradients, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), None

        orders = jax.vmap(lambda key: jax.random.permutation(key, num_examples))(
            jax.random.split(key, epochs)
        )
        batches = orders[:, : steps * batch_size].reshape(-1, batch_size)
        (params, _), _ = jax.lax.scan(step, (params, made.init(params)), batches)
        return params

    @jax.jit
    def evaluate(params: Any, features: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
        ranks = label_ranks(logits_of(params, features), labels)
        hits = (jnp.mean(ranks < k) for k in (1, 3))
        return loss_of(params, features, labels).mean(), *hits

    def train(found: Features, rate: float, seed: int) -> list[float]:
        params = run(found.train, found.train_labels, np.float32(rate), np.uint32(seed))
        return [float(one) for one in evaluate(params, found.validation, found.validation_labels)]

    return train


def _cell(seeds: list[list[float]]) -> str:
    loss, top_1, top_3 = (statistics.mean(values) for values in zip(*seeds, strict=True))
    return f"{loss:.2f}; {top_1:.1%}, {top_3:.1%}"


def _named_file(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not path or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"must be NAME=FILE, a file of train.embed; got {text!r}")
    return name, Path(path)


if __name__ == "__main__":
    main()
