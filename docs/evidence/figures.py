"""The figures of the evidence: the differences of each question, with their intervals."""

from answers import of_question
from texts import POINTS

from train.workdir import figure_style

# What is measured, by question.
_METRICS = {
    "tail": "macro top-5 accuracy",
    "noise": "top-5 accuracy",
    "average": "average-K accuracy",
    "epsilon": "top-5 accuracy",
    "samples": "top-5 accuracy",
}


def differences(question: str) -> bytes:
    """A row for each contrast, with a point for each study.

    Differences that are "better" or "worse" are filled.
    """
    shown = of_question(question)
    studies = list(dict.fromkeys(answer.study for answer in shown))
    names = list(dict.fromkeys(answer.planned.name for answer in shown))
    # Points of one contrast lie above each other, within four fifths of its row.
    step = 0.8 / len(studies)
    figure = figure_style.new_figure(8.0, 1.2 + len(names) * max(0.35, 0.16 * len(studies)))
    axes = figure.add_subplot()
    for number, study in enumerate(studies):
        found = [one for one in shown if one.study == study]
        shift = step * ((len(studies) - 1) / 2 - number)
        look = figure_style.point_look(number)
        places = [shift - names.index(one.planned.name) for one in found]
        estimates = [POINTS * one.found.estimate for one in found]
        axes.errorbar(
            estimates,
            places,
            xerr=[POINTS * one.found.half_width for one in found],
            linestyle="none",
            label=study,
            **look,
        )
        for one, estimate, place in zip(found, estimates, places, strict=True):
            if one.decided:
                axes.plot(estimate, place, color=look["color"], marker=look["marker"])
    axes.axvline(0.0, color=figure_style.REFERENCE_COLOR, linewidth=1.0)
    axes.set_ylim(0.5 - len(names), 0.5)
    rows = [name.replace(" - ", " minus ") for name in names]
    axes.set_yticks([-place for place in range(len(rows))], rows, fontsize=8)
    figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    figure_style.finish(axes, x_label=f"points of {_METRICS[question]}", y_label="")
    return figure_style.encode(figure, ".png")
