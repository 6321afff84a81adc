"""The figures of the evidence: the differences of each question, and means of the first edition.

They are narrow, so that their text can be read on a phone.
"""

from collections.abc import Callable, Mapping
from functools import partial

import first_edition
from answers import of_question
from texts import POINTS

from train.workdir import figure_style

# In inches. A phone shows a figure in some 358 pixels, and so its smallest text in 10.
_WIDTH = 4.0
_TEXT = 8


def differences(question: str, metric: str) -> bytes:
    """A panel for each contrast, with a point for each study.

    Differences that are "better" or "worse" are filled.
    """
    shown = of_question(question)
    studies = list(dict.fromkeys(answer.study for answer in shown))
    names = list(dict.fromkeys(answer.planned.name for answer in shown))
    figure = figure_style.new_figure(_WIDTH, 0.5 + len(names) * (0.4 + 0.14 * len(studies)))
    panels = figure.subplots(len(names), sharex=True)
    for axes, name in zip(panels, names, strict=True):
        for answer in shown:
            if answer.planned.name != name:
                continue
            place = studies.index(answer.study)
            look = figure_style.point_look(place)
            if answer.decided:
                look["markerfacecolor"] = look["color"]
            axes.errorbar(
                POINTS * answer.found.estimate,
                place,
                xerr=POINTS * answer.found.half_width,
                markersize=5,
                **look,
            )
        axes.axvline(0.0, color=figure_style.REFERENCE_COLOR, linewidth=1.0)
        axes.set_ylim(len(studies) - 0.5, -0.5)
        axes.set_yticks(
            range(len(studies)), [study.removeprefix(f"{question}_") for study in studies]
        )
        axes.set_title(name.replace(" - ", "\nminus "), loc="left", fontsize=_TEXT)
        axes.tick_params(labelsize=_TEXT)
        figure_style.finish(axes, x_label="", y_label="")
    panels[-1].set_xlabel(f"points of {metric}", fontsize=_TEXT)
    return figure_style.encode(figure, ".png")


def means(name: str, metric: str) -> bytes:
    """The means of a table of the first edition, which has one row, with their intervals."""
    table = first_edition.read(name)
    intervals = [first_edition.contrast((1, cell.values)) for cell in table.values()]
    fields, values = zip(*(column.split("=") for _, column in table), strict=True)
    figure = figure_style.new_figure(_WIDTH, 2.5)
    axes = figure.add_subplot()
    axes.errorbar(
        values,
        [interval.center for interval in intervals],
        yerr=[interval.half_width for interval in intervals],
        **figure_style.line_look(0),
    )
    axes.tick_params(labelsize=_TEXT)
    figure_style.finish(axes, x_label=fields[0], y_label=metric)
    return figure_style.encode(figure, ".png")


# By the name of the file.
FIGURES: Mapping[str, Callable[[], bytes]] = {
    "evidence_tail": partial(differences, "tail", "macro top-5 accuracy"),
    "evidence_noise": partial(differences, "noise", "top-5 accuracy"),
    "evidence_average": partial(differences, "average", "average-K accuracy"),
    "alpha": partial(means, "E7", "average-5 accuracy (%)"),
    "gradient_sparsity": partial(means, "E8", "non-zero coordinates of 100"),
}
