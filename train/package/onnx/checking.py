"""Compares an ONNX file in ONNX Runtime with the classifier in JAX, before it is kept."""

import contextlib
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from train.classifiers import onnx_runtime
from train.classifiers.trained import TrainedClassifier
from train.data import streaming
from train.data.batches import Batches
from train.foundation.errors import UserError, errors_told
from train.package import program
from train.reports.rules import SetRule

# Sums in 32 bits in another order. A probability is at most 1.
BOUND = 1e-5
# The same for outlier scores, in units of the largest: distances are differences of large numbers.
_OUTLIER_BOUND = 1e-3
# Eight units in the last place of a probability, and how often these are drawn.
_ROUNDING, _DRAWS = 2.0**-20, 16
_EXAMPLES, _BATCH_SIZE = 64, 16


def check(classifier: TrainedClassifier, rule: SetRule, content: bytes) -> str:
    """Compares the file with the classifier on test examples, and returns in words what it found.

    Args:
        classifier: the classifier, as `export.adapt` has it.
        rule: the rule.
        content: the bytes of the file.

    Raises:
        UserError: they differ.
    """
    with errors_told("--format=onnx: ONNX Runtime refuses the file"):
        call = onnx_runtime.load(content)
    what, batches = _examples(classifier)
    infer, ours, others = jax.jit(program.make(classifier, rule)), [], []
    for batch in batches:
        ours.append(infer(batch))
        # The first example of a batch is alone: the file takes any number.
        others += [call(rows) for rows in (batch[:1], batch[1:]) if len(rows)]
    wanted, found = (
        [np.concatenate(parts) for parts in zip(*outputs, strict=True)]
        for outputs in (ours, others)
    )
    difference = float(np.abs(found[0] - wanted[0]).max())
    # NaN is not below a bound.
    if not difference <= BOUND:
        raise UserError(
            f"--format=onnx: a probability in ONNX Runtime differs by {difference:.1e} from that "
            f"in JAX, by more than {BOUND:.0e}, on {what}: the file is not kept"
        )
    differ = wrong(rule, found)
    if rule.says_new:
        bound = _OUTLIER_BOUND * np.abs(wanted[-1]).max()
        differ |= ~(np.abs(found[-1] - wanted[-1]) <= bound)
    if differ.any():
        raise UserError(
            f"--format=onnx: {int(differ.sum())} of {len(differ)} sets differ from those in JAX on "
            f"{what}: the file is not kept"
        )
    return f"{what}: probabilities differ by at most {difference:.1e}; all sets are the same"


def wrong(rule: SetRule, outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Which answers of a file are not those of the rule in JAX for the file's own scores, [n].

    Of sums in another order, either set is right if a score is at its limit: one of the answers for
    probabilities that are rounded otherwise has to be the file's.

    Args:
        rule: the rule.
        outputs: the outputs of the file.
    """
    probabilities, *answers = outputs
    unusual = answers.pop() if rule.says_new else None
    answer, draws = jax.jit(rule.answer), np.random.default_rng(0)
    found = np.ones(len(probabilities), np.bool_)
    for rounding in (0, *[_ROUNDING] * _DRAWS):
        factors = 1 + rounding * draws.uniform(-1, 1, probabilities.shape)
        expected = answer((probabilities * factors).astype(np.float32), unusual)
        pairs = zip(answers, (one for one in expected if one is not None), strict=True)
        differ = [(one != np.asarray(other)).reshape(len(found), -1).any(1) for one, other in pairs]
        found &= np.logical_or.reduce(differ)
    return found


def _examples(classifier: TrainedClassifier) -> tuple[str, Iterator[np.ndarray]]:
    """What the examples are, and batches of these: of the test, or drawn if none are here."""
    draws = np.random.default_rng(0)
    # The data set of a run on features that is joined with its network has no images, and the rules
    # of a run can be on another machine than its data.
    if classifier.run is classifier and classifier.classes.counts is not None:
        with contextlib.suppress(UserError):
            dataset = classifier.load_dataset()
            name = "test" if len(dataset.test) else "validation"
            order = draws.permutation(len(dataset.splits[name]))[:_EXAMPLES]
            chosen = dataset.splits[name].take(np.sort(order))
            stream = streaming.stream(Batches(examples=chosen, size=_BATCH_SIZE))
            what = f"{len(chosen)} {name} {classifier.inputs}"
            return what, (batch["images"][batch["mask"]] for batch in stream)
    shape = (_EXAMPLES, *classifier.shape)
    if classifier.inputs == "images":
        drawn = draws.integers(0, 256, shape, np.uint8)
    else:
        spec = classifier.parts.data.spec
        drawn = draws.normal(spec.mean, spec.std, shape).astype(np.float32)
    return f"{_EXAMPLES} random {classifier.inputs}", iter(np.split(drawn, 4))
