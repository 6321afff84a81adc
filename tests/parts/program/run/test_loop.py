"""The loop: its order, what it selects, and the requests to save and to stop."""

import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from train.foundation.errors import UserError
from train.reports.metric import LOSS, Metric
from train.run import loop
from train.run.checkpoints import Progress
from train.run.loop import Signals

TOP_1 = Metric.accuracy("top", 1)


class Trained:
    """What a loop of 3 steps an epoch does to a state that is a number."""

    def __init__(self, losses=(), step=None):
        self.done: list[Any] = []
        self.losses = list(losses)
        self.step = step or (lambda number: 1.0)

    def run(
        self,
        progress=None,
        state=0,
        *,
        steps_per_epoch=3,
        every_steps=None,
        every_minutes=None,
        after_epoch=None,
        **fields,
    ):
        batches = ({"examples": np.array([i, i + 1])} for i in itertools.count())
        config = {"num_epochs": 2, "stop_after": None, "select_by": "top_1_accuracy", **fields}
        saves = SimpleNamespace(every_steps=every_steps, every_minutes=every_minutes)
        parts: Any = SimpleNamespace(
            config=SimpleNamespace(**config, checkpoint=saves),
            data=SimpleNamespace(steps_per_epoch=steps_per_epoch),
            devices=SimpleNamespace(to_host=lambda tree: tree, split=lambda batch: batch),
            train_step=self._train_step,
        )
        double: Any = self
        return loop.run(
            parts,
            state,
            progress or Progress(),
            batches,
            validate=self._validate,
            checkpoints=double,
            reporter=double,
            after_epoch=after_epoch,
        )

    def _train_step(self, state, batch):
        metrics = dict.fromkeys(("gradient_norm", "parameter_norm"), jnp.ones(()))
        request = jnp.asarray(batch["request"].max())
        return state + 1, metrics | {"loss": jnp.asarray(self.step(state + 1)), "request": request}

    def _validate(self, state):
        self.done.append(f"validate {state}")
        top_1, loss = self.losses.pop(0) if self.losses else (0.5, 1.0)
        return SimpleNamespace(metrics={TOP_1: top_1, LOSS: loss})

    def save(self, state, progress, score):
        assert state == progress.step
        self.saved = progress
        self.done.append(f"save {state}")

    pending = ()

    def training_step(self, number, metrics):
        self.done.append(number)

    def flush(self):
        pass

    def epoch(self, number, *_metrics, is_best):
        self.done.append(f"epoch {number}" + " best" * is_best)


def test_it_evaluates_saves_and_calls_in_this_order_and_continues():
    whole = Trained()
    called = lambda epoch, _metrics: whole.done.append(f"called {epoch}")  # noqa: E731
    assert whole.run(every_steps=2, after_epoch=called)[0] == 6
    first = [1, 2, "save 2", 3, "validate 3", "epoch 1 best", "save 3", "called 1"]
    second = [4, "save 4", 5, 6, "validate 6", "epoch 2", "save 6", "called 2"]
    assert whole.done == first + second
    # From each checkpoint it does the rest.
    part = Trained()
    part.run(num_epochs=1, every_steps=2)
    rest = Trained()
    state, progress = rest.run(part.saved, state=3, every_steps=2)
    assert rest.done == second[:-1]
    assert (state, progress.epochs, progress.best_epoch) == (6, 2, 1)


def test_of_equal_epochs_that_with_the_lowest_loss_is_selected_and_it_stops_after_some_others():
    scores = [(0.5, 2.97), (0.5, 2.59), (0.5, 2.59), (0.4, 1.0), (0.5, 2.7), (0.6, 9.0)]
    trained = Trained(scores)
    assert trained.run(num_epochs=6)[1].best_epoch == 6
    assert [one for one in trained.done if "best" in str(one)] == [
        f"epoch {number} best" for number in (1, 2, 6)
    ]
    assert Trained(scores).run(num_epochs=6, stop_after=2)[1].epochs == 4


def test_a_diverged_step_is_named_with_its_examples():
    trained = Trained(step=lambda number: float("nan") if number == 5 else 1.0)
    message = (
        r"diverged: at step 5 the loss is nan; lower config.optimizer.learning_rate; it was seen "
        r"with 2 training examples, such as 4, 5$"
    )
    with pytest.raises(UserError, match=message):
        trained.run()
    assert trained.saved.step == 3
    with pytest.raises(UserError, match="the validation loss is nan; lower"):
        Trained([(0.5, float("nan"))]).run()


def test_minutes_save_within_an_epoch():
    often = Trained()
    often.run(num_epochs=1, steps_per_epoch=9, every_minutes=1e-9)
    assert sum("save" in str(one) for one in often.done) > 1


def test_signals_that_the_process_ignores_or_another_thread_handles_are_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals() as received:
            os.kill(os.getpid(), signal.SIGINT)
            assert received.request == 0
            os.kill(os.getpid(), signal.SIGTERM)
            assert received.request == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

    def handler_in_another_thread():
        with Signals():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handler_in_another_thread).result() is before
