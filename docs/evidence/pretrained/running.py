"""Runs what is planned and has not run."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from pretrained import collecting, losses, selection, training
from pretrained import examples as data
from pretrained.design import Rule, Setting, Study
from pretrained.examples import Examples
from pretrained.records import Record, Records, packed
from pretrained.selection import Batch
from pretrained.training import Plan, Scorer
from topk_jax import sets

# By rule the accuracy that selects, [C], and by metric the hits of the test examples, [C, n].
_Found = tuple[dict[Rule, np.ndarray], dict[str, np.ndarray]]


def run(
    study: Study,
    records: Records,
    features: Path,
    *,
    only: Collection[str] = (),
    labels: Path,
    report: Callable[[str], None],
    development: bool = False,
) -> None:
    """Runs all that is left, or all that is left of some settings.

    Args:
        study: the study.
        records: what has finished; grows.
        features: the folder of the features.
        only: names of settings; all if there are none.
        labels: the folder where the labels of the test examples are left.
        report: gets a line after each batch.
        development: see `examples.load`.
    """

    @functools.lru_cache(maxsize=1)
    def loaded(data_set: str) -> tuple[Examples, jax.Array]:
        found = data.load(features, data_set, study, development=development)
        collecting.check_labels(study, data_set, found.labels[found.test])
        np.save(collecting.label_file(labels, data_set), found.labels[found.test])
        return found, jnp.asarray(found.features)

    for arm in study.arms():
        if only and arm.setting.name not in only:
            continue
        while batches := selection.pending(study, records, arm):
            for batch in batches:
                done = run_batch(study, batch, *loaded(arm.setting.data_set))
                records.add(done)
                used = done[0].used
                report(
                    f"{arm.setting.name}; {arm.loss.name}, {arm.head}; search {arm.search.name}, "
                    f"seed {batch.seed}: {len(done)} runs, {used['cpu_seconds']:.2f} s of the "
                    f"processor each, {used['flops'] / used['cpu_seconds'] / 1e9:.0f} GFLOP/s"
                )


def run_batch(study: Study, batch: Batch, examples: Examples, features: jax.Array) -> list[Record]:
    """The records of a batch."""
    setting = batch.arm.setting
    training_set = data.training_set(setting, examples, batch.seed)
    candidates = study.candidates(batch.arm)
    parameters = [candidates[one] for one in batch.candidates]
    evaluate = _average if setting.question == "sets" else _top_k
    trained = training.train(
        batch.arm.loss.name,
        batch.arm.head,
        parameters,
        plan_of(study, setting),
        features,
        training_set,
        functools.partial(evaluate, setting, examples, batch.is_final),
        batch.seed,
    )
    share = 1 / len(parameters)
    used = {
        "cpu_seconds": trained.cpu_seconds * share,
        "wall_seconds": trained.wall_seconds * share,
        "flops": trained.flops * share,
    }
    records = []
    for index, (key, values) in enumerate(zip(batch.run_keys, parameters, strict=True)):
        validation: dict[str, list[float]] = {
            rule: [float(of_rule[rule][index]) for of_rule, _ in trained.found]
            for rule in setting.rules
        }
        test: dict[str, dict[str, Any]] = {}
        if batch.is_final:
            for rule in setting.rules:
                checkpoint = int(np.argmax(validation[rule]))
                hits = trained.found[checkpoint][1]
                test[rule] = {
                    "checkpoint": checkpoint,
                    **{metric: packed(one[index]) for metric, one in hits.items()},
                }
        count = len(examples.test)
        records.append(Record(key, values, validation, test, count, used, study.digest))
    return records


def plan_of(study: Study, setting: Setting) -> Plan:
    """The numbers of the runs of a setting."""
    numbers = study.numbers
    return Plan(
        setting.steps,
        setting.batch_size,
        numbers["checkpoints"],
        numbers["momentum"],
        numbers["deferred_from"],
    )


def _top_k(setting: Setting, examples: Examples, is_final: bool, scorer: Scorer) -> _Found:
    """Top-5 accuracies, which are macro, too: all classes have as many images."""
    given: dict[Rule, np.ndarray] = {"correct": examples.labels[examples.validation]}
    if setting.wrong:
        given["wrong"] = data.validation_labels(setting, examples)
    accuracies = {
        rule: (scorer.ranks(examples.validation, labels) < losses.K).mean(axis=1)
        for rule, labels in given.items()
    }
    if not is_final:
        return accuracies, {}
    ranks = scorer.ranks(examples.test, examples.labels[examples.test])
    return accuracies, {"top_1": ranks < 1, "top_5": ranks < losses.K}


def _average(_setting: Setting, examples: Examples, is_final: bool, scorer: Scorer) -> _Found:
    """Average-5 accuracies, with a temperature that is fitted on validation."""
    labels = examples.labels[examples.validation]
    scores = scorer.scores(examples.validation)
    temperatures = [float(sets.temperature(one, labels)) for one in scores]
    accuracies: dict[Rule, np.ndarray] = {
        "correct": average_hits(scores, labels, temperatures).mean(axis=1)
    }
    if not is_final:
        return accuracies, {}
    labels = examples.labels[examples.test]
    hits = average_hits(scorer.scores(examples.test), labels, temperatures)
    return accuracies, {"average_5": hits}


def average_hits(scores: np.ndarray, labels: np.ndarray, temperatures: list[float]) -> np.ndarray:
    """Which sets have the label, if one threshold makes sets of 5 classes on average, [C, n].

    Ties at the threshold are left out, so that sets never have more than 5 classes on average. A
    candidate without a temperature, whose scores are not numbers, has no hits.

    Args:
        scores: [C, n, L].
        labels: [n].
        temperatures: one for each candidate.
    """
    hits = np.zeros((len(scores), len(labels)), bool)
    for index, (one, temperature) in enumerate(zip(scores, temperatures, strict=True)):
        if not np.isfinite(temperature):
            continue
        probabilities = special.softmax(one.astype(np.float64) / temperature, axis=1)
        place = probabilities.size - losses.K * len(labels)
        # The largest probability that is left out.
        left_out = np.partition(probabilities.ravel(), place - 1)[place - 1]
        hits[index] = probabilities[np.arange(len(labels)), labels] > left_out
    return hits
