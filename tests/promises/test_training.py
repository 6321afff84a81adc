"""Training by hand: the steps of the optimizer, the keys of the noise, the order of the examples.

All runs train one layer on the same features. Where the learning rate is almost 0, what a run
reports of its steps depends on the batch and on the noise alone.
"""

import json

import numpy as np
import pytest

from tests.promises.commands import ok

CLASSES, WIDTH = 4, 5
ROWS = {"train": 64, "val": 28, "test": 28}
FROZEN = 1e-12


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Rows of features of a few classes, with their splits, as the user gives them."""
    rng = np.random.default_rng(0)
    split = np.repeat([*ROWS], [*ROWS.values()])
    labels = rng.permutation(np.arange(len(split)) % CLASSES)
    centres = rng.normal(size=(CLASSES, WIDTH))
    features = (centres[labels] + rng.normal(size=(len(split), WIDTH)) + 5).astype(np.float32)
    names = np.array([f"class {label}" for label in labels])
    path = tmp_path_factory.mktemp("table") / "rows.npz"
    np.savez(path, features=features, labels=names, split=split)
    return path, features[split == "train"], labels[split == "train"], features[split == "test"]


@pytest.fixture(scope="module")
def train(table, tmp_path_factory):
    """Trains with these fields; the lines of each split, and the run's folder."""

    def run(loss="cross_entropy", **fields):
        workdir = tmp_path_factory.mktemp("run") / "run"
        fields = {
            "dataset.path": table[0],
            "dataset.batch_size": ROWS["train"],
            "eval.ks": "(1,2)",
            "select_by": "top_1_accuracy",
            "num_epochs": 4,
            "optimizer.schedule": "step",
            "optimizer.warmup_epochs": 0,
            **fields,
        }
        given = " ".join(f"--config.{name}='{value}'" for name, value in fields.items())
        ok(f"train.main --config=configs/features.py:{loss} --workdir={workdir} {given}")
        lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["split"] == "train"], workdir

    return run


@pytest.fixture(scope="module")
def start(table, train, tmp_path_factory):
    """The parameters that runs of seed 0 start from, without what all classes share.

    The probabilities of the test rows determine them.
    """
    _, _, _, test_rows = table
    _, workdir = train(**{"optimizer.learning_rate": FROZEN, "num_epochs": 1})
    scores = tmp_path_factory.mktemp("scores") / "test.npz"
    ok(f"train.evaluate --workdir={workdir} --out={scores}")
    with np.load(scores) as written:
        logits = np.log(written["scores"].astype(np.float64))
    logits -= logits.mean(axis=1, keepdims=True)
    return np.linalg.lstsq(standardized(table, test_rows), logits)[0]


def standardized(table, rows):
    """The rows by the means and deviations of the training rows, and a one for the bias."""
    rows, known = rows.astype(np.float64), table[1].astype(np.float64)
    scaled = (rows - known.mean(axis=0)) / known.std(axis=0)
    return np.concatenate([scaled, np.ones((len(rows), 1))], axis=1)


def cross_entropy(parameters, rows, labels):
    """The mean loss and its gradient."""
    logits = rows @ parameters
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    is_label = np.eye(CLASSES)[labels]
    loss = -np.log((probabilities * is_label).sum(axis=1)).mean()
    return loss, rows.T @ (probabilities - is_label) / len(rows)


@pytest.mark.parametrize("nesterov", [True, False])
def test_steps_are_those_of_the_written_out_recurrence(table, train, start, nesterov):
    rate, momentum, decay = 0.5, 0.9, 0.01
    lines, _ = train(
        **{
            "optimizer.learning_rate": rate,
            "optimizer.momentum": momentum,
            "optimizer.weight_decay": decay,
            "optimizer.nesterov": nesterov,
            "optimizer.decay_epochs": "(3,)",
            "num_epochs": 5,
        }
    )
    rows, labels = standardized(table, table[1]), table[2]
    parameters, velocity = start, np.zeros_like(start)
    for step, line in enumerate(lines):
        loss, gradient = cross_entropy(parameters, rows, labels)
        hits = (rows @ parameters).argmax(axis=1) == labels
        now = rate * (0.1 if step >= 3 else 1)
        # Float32, from parameters that are known to some roundings of it.
        assert line["learning_rate"] == pytest.approx(now, rel=1e-6)
        assert line["loss"] == pytest.approx(loss, rel=1e-4)
        assert line["gradient_norm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-3)
        assert line["accuracy"] == pytest.approx(hits.mean(), abs=1e-6)
        decayed = gradient + decay * parameters
        velocity = momentum * velocity + decayed
        parameters = parameters - now * (decayed + momentum * velocity if nesterov else velocity)
    assert len(lines) == 5


def test_sets_of_all_classes_are_left_out(table, tmp_path):
    fields = f"--config.dataset.path={table[0]} --config.num_epochs=1 --config.dataset.batch_size=8"
    selected = "--config.select_by=macro_top_5_accuracy"
    command = f"train.main --config=features --workdir={tmp_path / 'run'} {fields} {selected}"
    assert "sets of 5 are left out, because there are 4 classes" in ok(command).out
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["selected_by"] == "macro_top_3_accuracy"
    assert {"top_3_accuracy", "average_1_accuracy"} < results["test"].keys()
    assert "top_5_accuracy" not in results["test"]
    assert "this run is finished" in ok(command).out
    ok(f"train.evaluate --workdir={tmp_path / 'run'}")
    assert "macro top-3 accuracy" in ok(f"train.compare --runs={tmp_path}").out


def test_every_step_and_every_seed_draws_its_own_noise(train, tmp_path):
    """A step has seven equal rows and another one, in one of eight orders: the noise differs."""
    labels, split = np.arange(24) % 8 // 7, np.repeat(["train", "val", "test"], 8)
    rows = np.eye(2, WIDTH, dtype=np.float32)[labels]
    np.savez(tmp_path / "rows.npz", features=rows, labels=labels, split=split)
    fields = {"dataset.path": tmp_path / "rows.npz", "dataset.batch_size": 8, "eval.ks": "(1,)"}
    fields |= {"optimizer.learning_rate": FROZEN, "loss.k": 1, "num_epochs": 12}
    first, again, other = (
        [line["loss"] for line in train("noised_top_k_hinge", **fields, seed=seed)[0]]
        for seed in (0, 0, 1)
    )
    assert len({*first}) == len(first) == 12
    assert again == first
    # The other seed starts from other parameters, too.
    assert not {*first} & {*other}


def test_every_epoch_has_its_own_order(train):
    """The mean norm of the gradients of an epoch's batches depends on which rows are together."""
    frozen = {"optimizer.learning_rate": FROZEN, "dataset.batch_size": 16}
    first, again = (train(**frozen)[0] for _ in range(2))
    norms = [line["gradient_norm"] for line in first]
    assert len({*norms}) == len(norms) == 4
    assert [line["gradient_norm"] for line in again] == norms
    # Each row is seen once in an epoch, in whatever order.
    losses = [line["loss"] for line in first]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


# A loss of each kind: two heads and a coupled batch, estimated labels, several slopes of a
# selection, margins of classes, a loss of sets. `parts` has all of them.
@pytest.mark.parametrize("loss", ["average_k", "role", "smooth_top_k_hinge", "ldam"])
def test_a_loss_of_each_kind_learns(train, loss):
    fields = {"num_epochs": 20, "optimizer.learning_rate": 0.5}
    lines, workdir = train(loss, **fields | ({} if loss == "ldam" else {"loss.k": 2}))
    results = json.loads((workdir / "results.json").read_text())
    assert lines[-1]["loss"] < lines[0]["loss"]
    # Guessing has 0.5.
    assert results["test"]["top_2_accuracy"] > 0.6
