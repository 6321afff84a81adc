"""Processes that train one classifier agree on what it is, or none of them starts."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils

from configs import digits, features
from train import experiment
from train.devices import processes
from train.foundation.errors import UserError

pytestmark = pytest.mark.usefixtures("standard_promotion")


def test_what_differs_between_processes_is_refused(monkeypatch):
    texts = ["a", "a", "b"]

    def of_all(digest):
        """What each would send: this one sends `texts[0]`'s."""
        sent = [digest if text == texts[0] else digest ^ 1 for text in texts]
        return np.stack(sent)

    processes.check_same("the colour", lambda: pytest.fail("one process has nothing to compare"))
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(multihost_utils, "process_allgather", of_all)
    with pytest.raises(UserError, match=r"the colour must be the same .* in process 2 it differs"):
        processes.check_same("the colour", lambda: "a")
    texts[2] = "a"
    processes.check_same("the colour", lambda: "a")


def be_second(monkeypatch, first):
    """Has this process be the second of two; the first one sends the arrays.

    Returns:
        What this process sends, as it does.
    """
    sent = []

    def of_both(own):
        sent.append(own)
        of_first = b"".join(array.tobytes() for array in first.values())
        return np.stack([np.frombuffer(of_first, np.uint8), own])

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", of_both)
    return sent


def test_all_processes_have_the_arrays_of_the_first(monkeypatch):
    own = {"mean": np.arange(3.0), "scale": np.ones(2)}
    np.testing.assert_equal(processes.of_first(own), own)
    first = {"mean": np.arange(3.0) + 1, "scale": np.full(2, 2.0)}
    be_second(monkeypatch, first)
    np.testing.assert_equal(processes.of_first(own), first)


def test_arrays_of_several_types_are_sent_at_once_and_arrive_exactly(monkeypatch):
    rng = np.random.default_rng(0)
    first, second = (
        {
            # Every other row, which are apart in memory.
            "scores": rng.normal(size=(8, 3)).astype(np.float32)[::2],
            "mask": rng.random(4) < 0.5,
            "examples": 2**40 + rng.integers(9, size=4),
            "weights": rng.normal(size=(4, 2)),
            "features": rng.normal(size=(4, 5)).astype(jnp.bfloat16),
            "class_ranks": np.zeros((4, 0), np.int32),
        }
        for _ in range(2)
    )
    sent = be_second(monkeypatch, first)
    found = processes.gather(second)
    assert len(sent) == 1
    for name, own in second.items():
        assert found[name].dtype == own.dtype
        np.testing.assert_array_equal(found[name], np.concatenate([first[name], own]))


class EnoughError(Exception):
    """All has been compared."""


def compared(config, workdir, monkeypatch):
    """What a run compares before its first step."""
    facts = {}

    def record(name, text):
        facts[name] = text()
        if name == "the state to train from":
            raise EnoughError

    with monkeypatch.context() as patch:
        patch.setattr(processes, "check_same", record)
        patch.setattr(processes, "are_several", lambda: True)
        with pytest.raises(EnoughError):
            experiment.run(config, workdir)
    return facts


def test_a_run_compares_all_that_it_starts_from(tmp_path, monkeypatch):
    config = json.loads(digits.get_config().to_json())
    config["model"]["name"] = "mlp"
    facts = compared(config, tmp_path / "run", monkeypatch)
    assert json.loads(facts["the configuration, with --extend,"]) == [config, False]
    # Neither results nor checkpoints.
    assert facts["what --workdir holds"] == "[null, false]"
    others = compared({**config, "seed": 1}, tmp_path / "other", monkeypatch)
    # The split of the digits is not drawn with the run's seed.
    assert [name for name in facts if facts[name] == others[name]] == [
        *("what --workdir holds", "the data set")
    ]


def test_data_of_the_same_labels_are_compared_by_their_digest(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    given = rng.normal(size=(90, 4)).astype(np.float32)
    found = []
    for scale in (1, 2):
        np.savez(tmp_path / "rows.npz", features=scale * given, labels=np.arange(90) % 3)
        config = json.loads(features.get_config().to_json())
        config["dataset"] |= {"path": str(tmp_path / "rows.npz"), "batch_size": 8}
        config["eval"]["ks"], config["select_by"] = [1], "top_1_accuracy"
        found.append(compared(config, tmp_path / "run", monkeypatch)["the data set"])
    assert found[0] != found[1]
