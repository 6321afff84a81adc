"""A search for a loss of our own, on images that the study on a pretrained network only trains on.

    python docs/evidence/leads.py --features=DIR

DIR has `omniglot.npz`, as for `pretrained_study.py`. Each finished search is added to
`pretrained/leads.json`; searches that are there do not run again. `write_pages.py` makes the table
of `pretrained.md` from this file.

What was fixed before the first run:

- *Data*: the ten images of each Omniglot class that the study may train on. The study selects and
  tests with none of them. Five may be trained on, two select, and three are compared. All ten
  normalize the features. Their first 512 principal components stand for them, to save time: the
  nearest class means are as accurate on the images that select as those of all features.
- *Settings*: a tail of five images to one, and 40 % wrong labels across groups. A run has 160 or
  240 steps of 128 images.
- *Baselines*, with cosine heads and the ranges of the study: cross-entropy, logit adjustment,
  generalized cross-entropy and the smooth hinge.
- *Averaged heads*: an exponential moving average of the head is evaluated. Its horizon, a share of
  the steps, is tuned. The rate falls as in the study, or it is constant, so that the average takes
  the place of the fall.
- *Learnt scale*: the logarithm of the scale is trained with the head, from a tuned first value and
  with a tuned rate. *Learnt temperature*: the same for the temperature of the smooth hinge.
- *Margins*: generalized cross-entropy of scores of which the label's is lowered by a tuned margin
  of cosines. With a *top-5 margin*, the four best other classes are left out: the label has to beat
  the fifth one.
- *Search*: 13 candidates of a lattice with one seed. The best two by the images that select run
  with five fresh seeds, and the better mean by these images is compared. Two searches have other
  shifts and other seeds, and the same fresh seeds. An accuracy is the mean over both.
- *Standard error* of a difference: that of its mean over the fresh seeds, and the luck of the
  search. As in the study, half the squared difference of an arm between its searches estimates the
  variance of one search, and its mean over the arms of a setting is added to the squared error.
- *Found* is a loss that is better than the best baseline of its setting by more than two standard
  errors.

Fixed after the results of these, and before its own first run:

- *Learnt epsilon*: the same for epsilon of the noised hinges, which run without it, too. Every
  step has noise of its own. These arms take part in the luck of the search.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The program of this checkout comes before an installed one.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
from pretrained import design, training
from pretrained import examples as data
from pretrained.design import Range, Search, Setting
from pretrained.examples import Examples, TrainingSet
from pretrained.losses import LOSSES, Data, K, Parameters
from pretrained.training import Plan

from topk_jax.losses import generalized_cross_entropy
from topk_jax.metrics import label_ranks
from train.foundation import files

FILE = Path(__file__).parent / "pretrained" / "leads.json"
PER_CLASS = {"validation": 2, "compared": 3}
COMPONENTS = 512
SEARCHES = Search("A", (200,)), Search("B", (210,))
SEEDS = (300, 301, 302, 303, 304)
CANDIDATES, FINALISTS = 13, 2
SETTINGS = (
    Setting("tail", "tail", "omniglot", 160, 128, largest=5, smallest=1),
    Setting("noise", "noise", "omniglot", 240, 128, wrong=0.4, groups="across"),
)
_HORIZON = Range(0.02, 0.5, is_log=True)
_RATE_OF_LOGARITHMS = Range(0.0001, 0.1, is_log=True)
_MARGIN = Range(0.01, 0.3, is_log=True)
# Of the split of the development images.
_SPLIT = 2**20 + 3


@dataclass(frozen=True)
class Arm:
    """A loss with a cosine head.

    Attributes:
        name: its name.
        question: of the settings that it is tried in.
        loss: a loss of the study, whose ranges it has.
        own: the ranges of its further parameters.
        learnt: the parameters whose logarithms are trained.
        is_constant: whether the rate does not fall.
        objective: the loss, if it is not that of the study.
    """

    name: str
    question: str
    loss: str
    own: Mapping[str, Range] = field(default_factory=dict)
    learnt: tuple[str, ...] = ()
    is_constant: bool = False
    objective: Callable[..., jax.Array] | None = None


def _with_margin(
    scores: jax.Array, labels: jax.Array, values: Parameters, _data: Data
) -> jax.Array:
    """Generalized cross-entropy, if the score of the label is lowered by a margin."""
    margin = values["margin"] * values["scale"]
    lowered = scores - margin * jax.nn.one_hot(labels, scores.shape[-1])
    return generalized_cross_entropy(lowered, labels, q=values["q"])


def _with_top_k_margin(
    scores: jax.Array, labels: jax.Array, values: Parameters, own_data: Data
) -> jax.Array:
    """The same without the K - 1 best other classes."""
    is_label = jax.nn.one_hot(labels, scores.shape[-1], dtype=bool)
    others = jnp.where(is_label, -jnp.inf, scores)
    threshold = jax.lax.top_k(jax.lax.stop_gradient(others), K)[0][:, -1:]
    return _with_margin(jnp.where(others > threshold, -1e9, scores), labels, values, own_data)


def _variants(question: str, loss: str) -> tuple[Arm, ...]:
    """What is tried with the best baseline of a question."""
    return (
        Arm(f"{loss}, averaged", question, loss, {"horizon": _HORIZON}),
        Arm(
            f"{loss}, averaged at a constant rate",
            question,
            loss,
            {"horizon": _HORIZON},
            is_constant=True,
        ),
        Arm(
            f"{loss}, learnt scale",
            question,
            loss,
            {"rate of scale": _RATE_OF_LOGARITHMS},
            learnt=("scale",),
        ),
        Arm(
            "smooth hinge, learnt temperature",
            question,
            "smooth hinge",
            {"rate of tau": _RATE_OF_LOGARITHMS},
            learnt=("tau",),
        ),
    )


def _with_noise(question: str, loss: str) -> tuple[Arm, Arm]:
    """A noised hinge, and the same with a learnt epsilon."""
    own = {"rate of epsilon": _RATE_OF_LOGARITHMS}
    learnt = Arm(f"{loss}, learnt epsilon", question, loss, own, learnt=("epsilon",))
    return Arm(loss, question, loss), learnt


_GENERALIZED = "generalized cross-entropy"
_BASELINES: Mapping[str, tuple[str, ...]] = {
    "tail": ("cross-entropy", "smooth hinge", "logit adjustment"),
    "noise": ("cross-entropy", "smooth hinge", _GENERALIZED),
}
ARMS = (
    *(Arm(loss, question, loss) for question, every in _BASELINES.items() for loss in every),
    *_variants("tail", "logit adjustment"),
    *_variants("noise", _GENERALIZED),
    Arm(
        f"{_GENERALIZED}, margin",
        "noise",
        _GENERALIZED,
        {"margin": _MARGIN},
        objective=_with_margin,
    ),
    Arm(
        f"{_GENERALIZED}, top-5 margin",
        "noise",
        _GENERALIZED,
        {"margin": _MARGIN},
        objective=_with_top_k_margin,
    ),
    *_with_noise("tail", "noised hinge with priors"),
    *_with_noise("noise", "noised hinge"),
)


def arms_of(setting: Setting) -> list[Arm]:
    """The arms of a setting."""
    return [one for one in ARMS if one.question == setting.question]


def development(folder: Path) -> Examples:
    """The images that the study trains on, split once more, with their principal components."""
    found = data.load(folder, "omniglot", design.study())
    known = found.features[found.pool]
    # The features of the pool have the mean 0.
    _, directions = np.linalg.eigh(known.T @ known)
    features = found.features @ directions[:, : -COMPONENTS - 1 : -1]
    rng = np.random.default_rng(_SPLIT)
    validation, rest = data.split_rows(found.pool, found.labels, PER_CLASS["validation"], rng)
    compared, pool = data.split_rows(rest, found.labels, PER_CLASS["compared"], rng)
    return dataclasses.replace(
        found, features=features, pool=pool, validation=validation, test=compared
    )


def candidates(setting: Setting, arm: Arm, search: Search) -> list[dict[str, float]]:
    """The candidates of a search, by the rule of the study."""
    study = design.study()
    losses = {one.name: one for one in study.losses}
    space = {**losses[arm.loss].spaces["cosine"], **arm.own}
    smaller = dataclasses.replace(study, numbers={**study.numbers, "candidates": CANDIDATES})
    loss = design.Loss(arm.name, (arm.question,), len(SEARCHES), {"cosine": space})
    return smaller.candidates(design.Arm(setting, loss, "cosine", search))


def searched(
    setting: Setting, arm: Arm, search: Search, examples: Examples, features: jax.Array
) -> dict[str, Any]:
    """A search and its runs with fresh seeds, as plain JSON types."""
    began = time.process_time()
    every = candidates(setting, arm, search)
    validation, _ = accuracies(setting, arm, every, search.seeds[0], examples, features)
    best = np.argsort(-validation, kind="stable")[:FINALISTS]
    finalists = [every[one] for one in best]
    runs = [accuracies(setting, arm, finalists, seed, examples, features) for seed in SEEDS]
    of_validation, compared = np.array(runs).swapaxes(0, 1)
    selected = int(of_validation.mean(axis=0).argmax())
    return {
        "setting": setting.name,
        "arm": arm.name,
        "loss": arm.loss,
        "search": search.name,
        "candidates": validation.tolist(),
        "finalists": of_validation.mean(axis=0).tolist(),
        "selected": finalists[selected],
        "top_5": compared[:, selected].tolist(),
        "cpu_seconds": time.process_time() - began,
    }


def accuracies(
    setting: Setting,
    arm: Arm,
    values: Sequence[Mapping[str, float]],
    seed: int,
    examples: Examples,
    features: jax.Array,
) -> tuple[np.ndarray, np.ndarray]:
    """The top-5 accuracies of candidates on the images that select and those compared, [C] each.

    As many images of each class are evaluated, so that they are macro accuracies, too.
    """
    training_set = data.training_set(setting, examples, seed)
    named = {name: jnp.asarray([one[name] for one in values], jnp.float32) for name in values[0]}
    heads = trained(setting, arm, named, features, training_set, seed)
    found = []
    for rows in (examples.validation, examples.test):
        ranks = _ranks(heads, named, features[rows], jnp.asarray(examples.labels[rows]))
        found.append(np.asarray(ranks < K).mean(axis=0))
    return found[0], found[1]


def trained(
    setting: Setting,
    arm: Arm,
    values: Parameters,
    features: jax.Array,
    training_set: TrainingSet,
    seed: int,
) -> jax.Array:
    """The class vectors of the heads of candidates after their runs, [d, C, L].

    Batches, momentum and the rate are those of `training.train`.
    """
    numbers = design.study().numbers
    plan = Plan(setting.steps, setting.batch_size, 1, numbers["momentum"], 1.0)
    num_classes = len(training_set.class_counts)
    key = jax.random.key(seed)
    first = training.initial_params(
        "cosine", jax.random.fold_in(key, 0), features.shape[1], num_classes, num_classes
    )["kernel"]
    (count,) = values["rate"].shape
    kernel = jnp.broadcast_to(first[:, None], (len(first), count, num_classes))
    drawn = training.draw_batches(len(training_set.rows), plan, np.random.default_rng([seed, 2]))
    batches = jnp.asarray(training_set.rows[drawn]), jnp.asarray(training_set.labels[drawn])
    counts = jnp.asarray(training_set.class_counts, jnp.float32)
    noise = jax.random.fold_in(key, 1)
    return _run(arm.name, plan, kernel, values, features, batches, counts, noise)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(
    name: str,
    plan: Plan,
    kernel: jax.Array,
    values: Parameters,
    features: jax.Array,
    batches: tuple[jax.Array, jax.Array],
    class_counts: jax.Array,
    noise: jax.Array,
) -> jax.Array:
    """All steps of SGD; the last or the averaged class vectors."""
    arm = next(one for one in ARMS if one.name == name)
    objective = arm.objective or LOSSES[arm.loss]
    logarithms = {one: jnp.log(values[one]) for one in arm.learnt}

    def of_batch(params: Any, rows: jax.Array, labels: jax.Array, own_data: Data) -> jax.Array:
        kernel, logarithms = params
        own = {**values, **{one: jnp.exp(value) for one, value in logarithms.items()}}
        scores = training.head_scores("cosine", {"kernel": kernel}, own, features[rows])
        by_example = jax.vmap(objective, in_axes=(1, None, 0, None))(scores, labels, own, own_data)
        return by_example.mean(axis=1).sum()

    def step(state: Any, inputs: Any) -> tuple[Any, None]:
        params, velocity, average = state
        index, rows, labels = inputs
        own_data = Data(class_counts, jax.random.fold_in(noise, index))
        gradient = jax.grad(of_batch)(params, rows, labels, own_data)
        share = (
            1.0
            if arm.is_constant
            else (1 + jnp.cos(jnp.pi * index.astype(jnp.float32) / plan.steps)) / 2
        )
        rates = (
            values["rate"][None, :, None] * share,
            {one: values[f"rate of {one}"] * share for one in arm.learnt},
        )
        velocity = jax.tree.map(lambda v, g: plan.momentum * v + g, velocity, gradient)
        params = jax.tree.map(
            lambda p, v, g, rate: p - rate * (plan.momentum * v + g),
            params,
            velocity,
            gradient,
            rates,
        )
        if average is not None:
            # The length of a class vector has no effect: the average may start from 0.
            new = 1 / jnp.maximum(values["horizon"] * plan.steps, 1)[None, :, None]
            average = average + new * (params[0] - average)
        return (params, velocity, average), None

    params = kernel, logarithms
    average = jnp.zeros_like(kernel) if "horizon" in values else None
    state = params, jax.tree.map(jnp.zeros_like, params), average
    (params, _, average), _ = jax.lax.scan(step, state, (jnp.arange(plan.steps), *batches))
    return params[0] if average is None else average


@jax.jit
def _ranks(kernel: jax.Array, values: Parameters, rows: jax.Array, labels: jax.Array) -> jax.Array:
    """The ranks of the labels of examples, [n, C]."""
    scores = training.head_scores("cosine", {"kernel": kernel}, values, rows)
    return label_ranks(scores, jnp.broadcast_to(labels[:, None], scores.shape[:2]))


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=Path, required=True, help="the folder of the features")
    examples = development(parser.parse_args().features)
    features = jnp.asarray(examples.features)
    found = json.loads(FILE.read_text()) if FILE.exists() else []
    done = {(one["setting"], one["arm"], one["search"]) for one in found}
    planned = [(setting, arm) for setting in SETTINGS for arm in arms_of(setting)]
    for search, (setting, arm) in itertools.product(SEARCHES, planned):
        key = setting.name, arm.name, search.name
        if key not in done:
            found.append(searched(setting, arm, search, examples, features))
            FILE.write_bytes(files.to_json(found, indent=1) + b"\n")
            sys.stdout.write(f"{'; '.join(key)}: {found[-1]['cpu_seconds']:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
