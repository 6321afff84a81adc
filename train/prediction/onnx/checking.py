"""Compares an ONNX file in ONNX Runtime with the classifier in JAX, before it is kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from train.classifiers import onnx_runtime
from train.classifiers.trained import TrainedClassifier
from train.data import streaming
from train.data.batches import Batches
from train.data.examples import Examples
from train.foundation.errors import UserError, first_line
from train.prediction import exported_program
from train.reports.rules import SetRule

# Sums in 32 bits in another order. A probability is at most 1.
BOUND = 1e-5
# Eight units in the last place of a probability, and how often these are drawn: of two equal sets,
# each draw has either with a chance of a half.
_ROUNDING, _DRAWS = 2.0**-20, 16
_EXAMPLES = 64
_BATCH_SIZE = 16
_SEED = 0


@dataclass(frozen=True)
class Checked:
    """What a comparison has found.

    Attributes:
        what: the examples, in words.
        difference: the largest difference of a probability.
        number: the number of examples.
        at_limit: how many of these have other sets because a score is at a limit, within the
            rounding of the network.
    """

    what: str
    difference: float
    number: int
    at_limit: int

    def __str__(self) -> str:
        sets = "all sets are the same"
        if self.at_limit:
            sets = f"{self.number - self.at_limit} sets are the same, the others at their limits"
        return f"{self.what}: probabilities differ by at most {self.difference:.1e}; {sets}"


def check(classifier: TrainedClassifier, rule: SetRule, content: bytes) -> Checked:
    """Compares the file with the classifier on test examples, in batches of several sizes.

    Args:
        classifier: the classifier, as `precision.adapted` has it.
        rule: the rule.
        content: the bytes of the file.

    Raises:
        UserError: they differ.
    """
    try:
        call = onnx_runtime.load(content)
    except Exception as error:  # ONNX Runtime has errors of its own.
        raise UserError(
            f"--format=onnx: ONNX Runtime refuses the file: {first_line(error)}"
        ) from error
    what, batches = _examples(classifier)
    infer = jax.jit(exported_program.make(classifier, rule))
    difference, number, at_limit = 0.0, 0, 0
    for batch in batches:
        wanted = [np.asarray(output) for output in infer(batch)]
        found = call(batch)
        of_batch = float(np.abs(found[0] - wanted[0]).max())
        # NaN is not below the bound, and `max` would leave it out.
        if not of_batch <= BOUND:
            raise UserError(
                f"--format=onnx: a probability in ONNX Runtime differs by {of_batch:.1e} from "
                f"that in JAX, by more than {BOUND:.0e}, on {what}: the file is not kept"
            )
        answers = _answers(rule, found)
        other = _differ(answers, _answers(rule, wanted))
        if other.any() and (rule.says_new or (other & not_at_limit(rule, found[0], answers)).any()):
            raise UserError(
                f"--format=onnx: {int(other.sum())} of {len(batch)} sets differ from those in "
                f"JAX on {what}: the file is not kept"
            )
        difference = max(difference, of_batch)
        number, at_limit = number + len(batch), at_limit + int(other.sum())
    return Checked(what, difference, number, at_limit)


def not_at_limit(
    rule: SetRule, probabilities: np.ndarray, answers: Sequence[np.ndarray]
) -> np.ndarray:
    """Which answers JAX does not have for any probabilities that differ by rounding, [n].

    A score is at its limit, or two sets are equally good, if rounding decides. The probabilities of
    the file come first, and then some that are drawn: sums in another order are rounded otherwise.

    Args:
        rule: the rule.
        probabilities: the probabilities of the file, [n, L].
        answers: the answers of the file.
    """

    @jax.jit
    def choose(probabilities: jax.Array) -> list[jax.Array]:
        return [one for one in rule.answer(probabilities) if one is not None]

    draws, wrong = np.random.default_rng(_SEED), np.ones(len(probabilities), np.bool_)
    for index in range(_DRAWS + 1):
        factors = 1 + (index > 0) * draws.uniform(-_ROUNDING, _ROUNDING, probabilities.shape)
        found = choose((probabilities * factors).astype(np.float32))
        wrong &= _differ(answers, [*map(np.asarray, found)])
    return wrong


def _answers(rule: SetRule, outputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The outputs without the numbers: probabilities, which are first, and outlier scores, last."""
    return outputs[1:-1] if rule.says_new else outputs[1:]


def _differ(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> np.ndarray:
    """Which examples have another set, or another answer beside it, [n]."""
    pairs = zip(found, wanted, strict=True)
    rows = [(one != other).reshape(len(one), -1).any(axis=-1) for one, other in pairs]
    return np.logical_or.reduce(rows)


def _examples(classifier: TrainedClassifier) -> tuple[str, Iterator[np.ndarray]]:
    """What the examples are, and batches of these: 16 at a time, and then 1."""
    split = None
    # The data set of a run on features that is joined with its network has no images.
    if classifier.run is classifier and classifier.classes.counts is not None:
        try:
            dataset = classifier.load_dataset()
        except UserError:
            # The rules of a run can be on another machine than its data.
            dataset = None
        if dataset is not None:
            name, split = "test", dataset.test
            if not len(split):
                # One of the validation examples has the score of the limit.
                name, split = "validation", dataset.validation
    if split is None:
        return f"{_EXAMPLES} random {classifier.inputs}", _random(classifier)
    order = np.random.default_rng(_SEED).permutation(len(split))[:_EXAMPLES]
    chosen = split.take(np.sort(order))
    return f"{len(chosen)} {name} {classifier.inputs}", _read(chosen)


def _read(examples: Examples) -> Iterator[np.ndarray]:
    for batch in streaming.stream(Batches(examples=examples, size=_BATCH_SIZE)):
        rows = batch["images"][batch["mask"]]
        yield from filter(len, (rows[1:], rows[:1]))


def _random(classifier: TrainedClassifier) -> Iterator[np.ndarray]:
    """Inputs of the right type, used if no examples are on this machine."""
    generator = np.random.default_rng(_SEED)
    shape = classifier.shape
    for number in (1, *[_BATCH_SIZE] * (_EXAMPLES // _BATCH_SIZE - 1), _BATCH_SIZE - 1):
        if classifier.inputs == "images":
            # Coarse patterns, as photographs have them, and fine ones.
            coarse = generator.integers(0, 256, (number, 4, 4, shape[-1]))
            down, across = (np.arange(size) * 4 // size for size in shape[:2])
            pixels = coarse[:, down][:, :, across] + generator.integers(-30, 31, (number, *shape))
            yield pixels.clip(0, 255).astype(np.uint8)
        else:
            spec = classifier.parts.data.spec
            rows = generator.normal(spec.mean, spec.std, (number, *shape))
            yield rows.astype(np.float32)
