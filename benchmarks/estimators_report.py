"""Tables and plot for the results of benchmarks.estimators."""

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks import markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ARGMAX, _SCORE = "argmax average", "score function"
# Okabe and Ito's colours, which colour-blind readers can tell apart; markers differ as well.
_STYLES = {_ARGMAX: ("#0072B2", "o"), _SCORE: ("#D55E00", "s")}
_GREY = "#555555"
_BUDGETS_IN_MILLISECONDS = (0.3, 1, 3, 10, 30, 100)

_Row = dict[str, Any]


def tables(results: dict[str, Any]) -> str:
    """Errors and times at equal M, the error at equal time, and errors by epsilon."""
    parts = [
        f"{markdown.machine(results['machine'])}; K = {results['k']}, at most "
        f"{results['repetitions']} calls of each, in turns; means over a batch, and the median "
        "times of a batch.",
    ]
    for rows in _by_case(results["by_samples"]):
        parts += [f"{_title(rows[0])}:", _errors(rows, "M"), _times(rows), equal_time(rows)]
    for rows in _by_case(results["by_epsilon"]):
        parts += [f"L = {rows[0]['classes']:,}, M = {rows[0]['M']}:", _errors(rows, "epsilon")]
    return "\n\n".join(parts) + "\n"


def _by_case(rows: list[_Row]) -> list[list[_Row]]:
    names = dict.fromkeys(row["case"] for row in rows)
    return [[row for row in rows if row["case"] == name] for name in names]


def _title(row: _Row) -> str:
    return f"{row['case']}, L = {row['classes']:,}, epsilon {row['epsilon']}, batch {row['batch']}"


def _errors(rows: list[_Row], first: str) -> str:
    header = [
        first,
        *(f"squared bias, {name}" for name in (_ARGMAX, _SCORE)),
        f"variance, {_ARGMAX}",
        "measured / theory",
        f"variance, {_SCORE}",
        "ratio of variances",
        *(f"relative RMSE, {name}" for name in (_ARGMAX, _SCORE)),
    ]
    lines = []
    for row in rows:
        argmax, score = (row["estimators"][name] for name in (_ARGMAX, _SCORE))
        check = row["argmax_variance_over_theory"]
        lines.append(
            [
                f"{row[first]:,}",
                *(
                    f"{errors['squared_bias']:.1e} ± {errors['squared_bias_standard_error']:.0e}"
                    for errors in (argmax, score)
                ),
                _two_digits(argmax["variance"]),
                f"{check['ratio']:.4f} ± {check['standard_error']:.4f}",
                _two_digits(score["variance"]),
                f"{score['variance'] / argmax['variance']:,.0f}",
                *(_two_digits(errors["relative_rmse"]) for errors in (argmax, score)),
            ]
        )
    return markdown.table(header, lines)


def _times(rows: list[_Row]) -> str:
    header = ["M", f"{_ARGMAX}, ms", f"{_SCORE}, ms", "ratio of variance × time"]
    lines = []
    for row in rows:
        argmax, score = (row["estimators"][name] for name in (_ARGMAX, _SCORE))
        costs = [errors["variance"] * errors["seconds"] for errors in (argmax, score)]
        times = [f"{1e3 * errors['seconds']:.2f}" for errors in (argmax, score)]
        lines.append([f"{row['M']:,}", *times, f"{costs[1] / costs[0]:,.0f}"])
    return markdown.table(header, lines)


def equal_time(rows: list[_Row]) -> str:
    """The smallest error within each time budget, and its M."""
    header = ["within, ms", *(f"relative RMSE, {name} (M)" for name in (_ARGMAX, _SCORE)), "exact"]
    exact = _exact_milliseconds(rows)
    rounding = max(row["exact"]["relative_rmse"] for row in rows)
    lines = []
    for budget in _BUDGETS_IN_MILLISECONDS:
        line = [f"{budget}"]
        for name in (_ARGMAX, _SCORE):
            errors = [
                (row["estimators"][name]["relative_rmse"], row["M"])
                for row in rows
                if 1e3 * row["estimators"][name]["seconds"] <= budget
            ]
            error, num_samples = min(errors, default=(None, 0))
            line.append("–" if error is None else f"{_two_digits(error)} ({num_samples:,})")
        lines.append([*line, f"{rounding:.0e} (in {exact:.1f} ms)" if exact <= budget else "–"])
    return markdown.table(header, lines)


def _two_digits(number: float) -> str:
    """Two significant digits, without an exponent for numbers from 100."""
    return f"{float(f'{number:.2g}'):,g}"


def _exact_milliseconds(rows: list[_Row]) -> float:
    return 1e3 * statistics.median(row["exact"]["seconds"] for row in rows)


def figure(results: dict[str, Any]) -> "Figure":
    """The relative error over M and over time, with one row of panels per case."""
    # Imported here, so that the benchmark runs without matplotlib.
    from matplotlib.figure import Figure  # noqa: PLC0415

    cases = _by_case(results["by_samples"])
    drawing = Figure(figsize=(9, 3.3 * len(cases)), dpi=150, layout="constrained")
    panels = drawing.subplots(len(cases), 2, sharex="col", sharey="row", squeeze=False)
    for rows, (by_samples, by_time) in zip(cases, panels, strict=True):
        for name in (_ARGMAX, _SCORE):
            milliseconds = [1e3 * row["estimators"][name]["seconds"] for row in rows]
            _curve(by_samples, rows, name, [row["M"] for row in rows])
            _curve(by_time, rows, name, milliseconds)
        by_samples.set_xticks([row["M"] for row in rows])
        by_samples.set_title(_title(rows[0]), loc="left", fontsize="medium")
        by_samples.set_ylabel("RMSE / norm of the exact gradient")
        exact = _exact_milliseconds(rows)
        by_time.axvline(exact, color=_GREY, ls=":")
        by_time.annotate(
            f" exact gradient,\n {exact:.1f} ms",
            (exact, 0.02),
            xycoords=("data", "axes fraction"),
            color=_GREY,
            fontsize="small",
        )
    panels[-1, 0].set_xlabel("samples M")
    panels[-1, 1].set_xlabel("value and gradient of a batch, ms")
    return drawing


def _curve(axes: "Axes", rows: list[_Row], name: str, positions: list[float]) -> None:
    """The error of one estimator, with its name beside the line."""
    color, marker = _STYLES[name]
    errors = [row["estimators"][name]["relative_rmse"] for row in rows]
    axes.loglog(positions, errors, color=color, marker=marker, markersize=4)
    middle = 3 * len(rows) // 5
    axes.annotate(
        name,
        (positions[middle], errors[middle]),
        xytext=(6, 6),
        textcoords="offset points",
        color=color,
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
