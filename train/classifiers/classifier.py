"""`Classifier`: what gives scores of examples, wherever it comes from."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import jax
import numpy as np

from train.data import streaming
from train.data.batches import Batches
from train.data.classes import Classes
from train.data.crops import ImageReader
from train.data.examples import Examples
from train.foundation.console import tracked
from train.foundation.errors import UserError
from train.reports.rules import SetRule
from train.scores.scores import Scores

# Examples to one value or more of each; pure.
Function = Callable[[jax.Array], jax.Array]
_Outputs = TypeVar("_Outputs")
_BATCH_SIZE = 64


class Classifier(Protocol):
    """A run, published weights, a head with its network, or an exported program."""

    @property
    def title(self) -> str:
        """What headings call it."""

    @property
    def what(self) -> str:
        """An example in words."""

    @property
    def classes(self) -> Classes:
        """The names of its classes, with what is known of them."""

    @property
    def inputs(self) -> str:
        """What it takes: images or features."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an example."""

    @property
    def reader(self) -> ImageReader | None:
        """Makes pixels of image files; None for features."""

    @property
    def own_rule(self) -> SetRule | None:
        """The rule of a program; None for a classifier that takes any rule."""

    def scores(self) -> Function:
        """uint8 images [n, height, width, channels] or features [n, d] to scores [n, L]; pure."""

    def outliers(self, name: str) -> Function:
        """The same inputs to how unusual they are, float32 [n]; pure.

        Raises:
            UserError: the classifier has no such score.
        """

    def score(
        self, examples: Examples, *, new_score: str | None = None, name: str = "new"
    ) -> Scores:
        """The scores of examples, computed on all devices.

        Args:
            examples: the examples. Their classes from the L-th on are those that it does not know.
            new_score: the outlier score that is computed, too; None for none.
            name: what the bar calls the examples.
        """


def check_takes(classifier: Classifier, inputs: str) -> None:
    """Refuses examples of another kind, "images" or "features", than the classifier takes."""
    needed = classifier.inputs
    if inputs != needed:
        instead = "; with --weights=FILE, the network that made the features, a run takes images"
        raise UserError(
            f"--{needed} is needed, not --{inputs}: {classifier.title} is on {needed}"
            f"{instead if inputs == 'images' else ''}"
        )


def compute(
    function: Callable[[Any], _Outputs], examples: Examples, what: str
) -> Iterator[tuple[Mapping[str, np.ndarray], _Outputs]]:
    """The arrays of each batch of examples, and what a function makes of it, without padding.

    Args:
        function: takes the inputs of a batch; returns arrays [n, ...].
        examples: the examples.
        what: what the bar calls them.
    """
    batches = Batches(examples=examples, size=_BATCH_SIZE)
    for batch in tracked(streaming.stream(batches), len(batches), what):
        arrays = {name: batch[name] for name in ("examples", "labels")}, function(batch["images"])
        yield jax.tree.map(lambda array, mask=batch["mask"]: np.asarray(array)[mask], arrays)
