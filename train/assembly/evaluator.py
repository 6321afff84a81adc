"""Computes the scores of a network on all devices, and reports on them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax

from train.assembly.run_data import RunData
from train.data import streaming
from train.data.batches import Batches
from train.data.examples import Examples
from train.devices.parallel import Devices
from train.reports import summaries
from train.reports.outcomes import Outcomes
from train.reports.summaries import Evaluation, average_k_thresholds
from train.scores import collecting, temperature
from train.scores.scores import Scores
from train.training.objectives import class_logits
from train.training.state import TrainState
from train.workdir import terminal

# A compiled step of evaluation: parameters, statistics and batch to scores.
EvalStep = Callable[[Any, Any, Any], Any]
# Maps the outputs of the network to scores.
MakesScores = Callable[[Any], jax.Array]


@dataclass(frozen=True)
class SelectedEvaluation:
    """What is reported about the selected parameters of a run.

    Attributes:
        validation: the report of the validation split.
        tests: the report of each test split, by its name.
        temperature: the fitted temperature; None without `config.eval.temperature`.
    """

    validation: Evaluation
    tests: Mapping[str, Evaluation]
    temperature: float | None


class Evaluator:
    """Evaluates parameters of a network.

    Args:
        data: the data of the run.
        devices: all devices of all processes.
        compile_step: compiles the step of evaluation. Its argument makes the scores; None for the
            scores of the objective.
    """

    def __init__(
        self,
        data: RunData,
        devices: Devices,
        compile_step: Callable[[MakesScores | None], EvalStep],
    ) -> None:
        self._data = data
        self._devices = devices
        self._compile_step = compile_step

    @cached_property
    def _step(self) -> EvalStep:
        """The step with the scores of the objective."""
        return self._compile_step(None)

    @cached_property
    def _logits_step(self) -> EvalStep:
        """The step with the logits that rank the classes instead of the scores."""
        return self._compile_step(class_logits)

    def predict(
        self,
        params: Any,
        batch_stats: Any,
        split: str,
        *,
        shows_progress: bool = False,
        with_logits: bool = False,
        at_temperature: float | None = None,
    ) -> Scores:
        """The scores of a split of the data set.

        Args:
            params: the parameters, on the devices.
            batch_stats: batch norm's statistics with them, on the devices.
            split: "train", "validation", "test" or "balanced_test".
            shows_progress: whether a bar is shown.
            with_logits: whether the scores are logits.
            at_temperature: if it is a number, the scores are the softmax of the logits divided by
                it.
        """
        return self.score(
            params,
            batch_stats,
            self._data.dataset.splits[split],
            name=split,
            shows_progress=shows_progress,
            with_logits=with_logits,
            at_temperature=at_temperature,
        )

    def validate(self, state: TrainState) -> Evaluation:
        """What is reported of the validation split after an epoch, for a state on the devices."""
        found = self.predict(*state.evaluated, "validation")
        thresholds = average_k_thresholds(found, self._data.config.eval.ks)
        return summaries.summarize(found, thresholds)

    def evaluate_selected(self, state: TrainState) -> SelectedEvaluation:
        """What is reported about the selected state, on the devices, after training.

        Temperature and thresholds are fitted on the validation split.
        """
        predict = partial(self.predict, *state.evaluated)
        fitted = None
        if self._data.config.eval.temperature:
            logits = predict("validation", with_logits=True)
            fitted = temperature.fit(logits)
            found = temperature.with_probabilities(logits, fitted)
        else:
            found = predict("validation")
        thresholds = average_k_thresholds(found, self._data.config.eval.ks)

        validation = summaries.summarize(found, thresholds)
        tests = {
            split: summaries.summarize(predict(split, at_temperature=fitted), thresholds)
            for split in self._data.test_splits
        }
        return SelectedEvaluation(validation, tests, fitted)

    def evaluated(self, outcomes: Outcomes) -> dict[str, Any]:
        """The classes and examples that the accuracies of a split are over."""
        return summaries.counted(
            outcomes.counted_labels,
            len(outcomes.labels),
            self._data.class_counts,
            self._data.classes.names,
        )

    def score(
        self,
        params: Any,
        batch_stats: Any,
        examples: Examples,
        *,
        name: str,
        shows_progress: bool = False,
        with_logits: bool = False,
        at_temperature: float | None = None,
    ) -> Scores:
        """The scores of any examples; see `predict`.

        Args:
            params: the parameters, on the devices.
            batch_stats: batch norm's statistics with them, on the devices.
            examples: the examples.
            name: which examples they are, a split or "new".
            shows_progress: whether a bar is shown.
            with_logits: whether the scores are logits.
            at_temperature: divides the logits before they become scores, if it is a number.
        """
        batches = Batches(
            examples=examples,
            size=self._evaluation_batch_size(),
            share=(jax.process_index(), jax.process_count()),
        )
        # Of new examples, threads decode: starting processes takes longer than many evaluations.
        num_workers = 0 if name == "new" else self._data.num_workers

        results = collecting.rows(
            self._logits_step if with_logits or at_temperature is not None else self._step,
            params,
            batch_stats,
            streaming.stream(batches, num_workers=num_workers),
            self._devices,
            split=examples,
            num_classes=self._data.num_classes,
        )
        if shows_progress:
            results = terminal.tracked(results, len(batches), f"{name} {self._data.spec.example}s")
        found = collecting.collected(results, examples, self._data.classes)
        if at_temperature is not None:
            return temperature.with_probabilities(found, at_temperature)
        return found

    def _evaluation_batch_size(self) -> int:
        """A multiple of the devices, as large as the batches of training, or a little larger.

        A finished run may be evaluated on other devices; the size of a batch changes no result.
        """
        share = math.ceil(self._data.config.dataset.batch_size / jax.device_count())
        return share * jax.device_count()
