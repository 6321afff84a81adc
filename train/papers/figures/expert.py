"""The errors of an expert and of networks on a small test set, with sets of one mean size.

This is Figure 3.7 of the thesis. A botanist named the possible species of at most five test images
of each species of two genera. Which images these were is not published: without a table of an
expert's answers, the images here are another draw, and the expert is the published one.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from train.data import taxonomy
from train.data.sources import table
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.reports import figure_style
from train.reports.summaries import average_k_threshold
from train.scores import files
from train.scores.scores import Scores

GENERA = ("Crotalaria", "Lupinus")
MOST_PER_CLASS = 5
# The published expert's share of images whose species is not in the answer, and the mean number of
# species in an answer.
PUBLISHED_ERROR, PUBLISHED_SIZE = 0.205, 4.1
_SEED = 0
# In inches: the width, the margins, and a row.
_WIDTH, _MARGINS, _ROW = 7.0, 1.3, 0.25


@dataclass(frozen=True)
class Scored:
    """The scores of a network for the examples of a test split.

    Attributes:
        path: the file.
        scores: its scores, labels, names and classes.
        rows: the row of each example by its name.
    """

    path: Path
    scores: Scores
    rows: Mapping[str, int]

    def labels(self, names: Sequence[str]) -> list[str]:
        """The class of each of the named examples."""
        labels = self.scores.labels[[self.rows[name] for name in names]]
        return [self.scores.classes.names[label] for label in labels]


@dataclass(frozen=True)
class Expert:
    """The answers to a small test set.

    Attributes:
        names: the names of the examples.
        size: the mean number of classes in an answer.
        error: the share of the examples whose class is not in the answer.
        words: who answered.
    """

    names: Sequence[str]
    size: float
    error: float
    words: str


def against_networks(*, scores: Sequence[str] | None, expert: str | None) -> Figure:
    """A row for the expert and for each network: the share of the images whose class is missed.

    Args:
        scores: the files of the networks, which `train.evaluate --out=FILE.npz` wrote.
        expert: a table with the columns path and label: the name of an image, and a class that the
            expert names. An image has several rows, or labels with semicolons between them. None
            for the published expert.

    Raises:
        UserError: a file is missing or is something else, or the files are of different examples.
    """
    if not scores or not all(scores):
        raise UserError(
            "--figure=expert needs --scores=A.npz,B.npz, the files of the networks that "
            "python -m train.evaluate --workdir=DIR --out=FILE.npz writes"
        )
    paths = [Path(path).expanduser() for path in scores]
    for path, other in itertools.combinations(paths, 2):
        if path.resolve() == other.resolve():
            raise UserError(f"--scores names {path} twice")
    networks = [_read(path) for path in paths]
    first = networks[0]
    answers = _published(first) if expert is None else _answers(Path(expert).expanduser(), first)
    names, true = answers.names, first.labels(answers.names)
    for network in networks[1:]:
        if missing := [name for name in names if name not in network.rows]:
            raise UserError(
                f"{network.path} has no example {shown(missing[0])}, which {first.path} has"
            )
        if network.labels(names) != true:
            raise UserError(
                f"{network.path} and {first.path} must have one class for an example of one name"
            )
    errors = {answers.words: answers.error}
    for network in networks:
        name = network.path.stem
        errors[name if name not in errors else str(network.path)] = error(network, answers)
    return _draw(errors, answers)


def error(network: Scored, answers: Expert) -> float:
    """The error of a network whose sets are as large on average as the answers of the expert."""
    if answers.size >= len(network.scores.classes):
        raise UserError(
            f"the answers of the expert must have fewer classes on average than {network.path}, "
            f"which has {len(network.scores.classes)}; got {answers.size:g}"
        )
    examples = network.scores.take(np.array([network.rows[name] for name in answers.names]))
    # A quotient may be rounded to below the number of classes that it stands for.
    size = float(np.nextafter(answers.size, np.inf))
    threshold = np.float32(average_k_threshold(examples, size))
    of_labels = examples.values[:][np.arange(len(examples)), examples.labels]
    return float(np.mean(of_labels < threshold))


def _read(path: Path) -> Scored:
    found = files.read(path, flag="--scores")
    if found.names is None:
        raise UserError(
            f"--scores must be files that train.evaluate --out=FILE.npz wrote; {path} has no names "
            "of examples"
        )
    rows = {same_form(name): row for row, name in enumerate(found.names)}
    if len(rows) < len(found.names):
        raise UserError(f"--scores: {path} has two examples of one name")
    return Scored(path, found, rows)


def _published(scored: Scored) -> Expert:
    """The published expert, and images that are drawn like the images of the thesis."""
    genera = taxonomy.genera(scored.scores.classes.names)
    by_class: dict[int, list[str]] = {
        label: [] for label, genus in enumerate(genera) if genus in GENERA
    }
    for name, row in sorted(scored.rows.items()):
        label = int(scored.scores.labels[row])
        if label in by_class:
            by_class[label].append(name)
    random = np.random.default_rng(_SEED)
    names = [
        name
        for of_class in by_class.values()
        for name in random.permutation(np.array(of_class, object))[:MOST_PER_CLASS]
    ]
    if not names:
        raise UserError(
            f"{scored.path} has no example of {' or '.join(GENERA)}, of which the published expert "
            "named images; --expert=TABLE gives the answers of an expert for other data"
        )
    return Expert(names, PUBLISHED_SIZE, PUBLISHED_ERROR, "expert, published (other images)")


def _answers(path: Path, scored: Scored) -> Expert:
    """The answers in a table."""
    columns = table.read(path, "--expert")
    if not {"path", "label"} <= columns.keys():
        raise UserError(f"--expert {path} must have the columns path and label")
    answers: dict[str, set[str]] = {}
    for name, cell in zip(columns["path"], columns["label"], strict=True):
        named = filter(None, map(same_form, cell.split(";")))
        answers.setdefault(same_form(name), set()).update(named)
    names = [*answers]
    if not names:
        raise UserError(f"--expert {path} must have answers; it has no rows")
    if missing := [name for name in names if name not in scored.rows]:
        raise UserError(
            f"--expert {path}: {scored.path} has no example {shown(missing[0])}; it has, for "
            f"example, {shown(next(iter(scored.rows)))}"
        )
    classes = scored.scores.classes.names
    if set().union(*answers.values()).isdisjoint(map(same_form, classes)):
        raise UserError(
            f"--expert {path} must name classes of {scored.path}, for example {shown(classes[0])}"
        )
    true = map(same_form, scored.labels(names))
    missed = [label not in answer for label, answer in zip(true, answers.values(), strict=True)]
    size = float(np.mean([*map(len, answers.values())]))
    return Expert(names, size, float(np.mean(missed)), "expert")


def _draw(errors: Mapping[str, float], answers: Expert) -> Figure:
    figure = figure_style.new_figure(_WIDTH, _MARGINS + _ROW * len(errors))
    axes = figure.subplots()
    for place, value in enumerate(errors.values()):
        axes.plot(value, place, linestyle="", mew=1.5, ms=7, **figure_style.point_look(place > 0))
    axes.axvline(answers.error, color=figure_style.REFERENCE_COLOR, ls=":")
    axes.set_yticks(range(len(errors)), [*errors], fontsize=8)
    axes.set_ylim(len(errors) - 0.5, -0.5)
    # A marker at 0 is not cut off.
    axes.set_xlim(left=-0.02 * axes.get_xlim()[1])
    figure_style.show_as_percent(axes.xaxis)
    axes.set_title(
        f"{len(answers.names):,} images, sets of {answers.size:.3g} classes on average", fontsize=9
    )
    figure_style.finish(axes, x_label="images whose class is not in the set", y_label="")
    return figure
