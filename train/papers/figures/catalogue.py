"""The figures by name, with the options of each.

The functions that draw them are named and not imported: --help does not need matplotlib.
"""

from dataclasses import dataclass
from typing import Any, Literal

# The types of files that can be written; others would be untested.
SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Kind:
    """A figure of the command.

    Attributes:
        what: what it shows, and its number in the thesis.
        draw: the function that draws it, as "module:function" in this package.
        options: the flags that it has beside `--out`, with their default values.
        of: what it is drawn from, and is then the first argument of `draw`: "runs", or "networks"
            for what networks reach in runs and evaluations of any data sets; None for nothing.
    """

    what: str
    draw: str
    options: dict[str, Any]
    of: Literal["runs", "networks"] | None = "runs"


FIGURES = {
    "level_sets": Kind(
        "level sets of every loss (4.1 with K = 2; 4.6 with K = 1)",
        "level_sets:by_loss",
        {"k": 2},
        of=None,
    ),
    "level_sets_by_samples": Kind(
        "level sets of the noised loss for several M (4.4)", "level_sets:by_samples", {}, None
    ),
    "level_sets_by_epsilon": Kind(
        "level sets of the noised loss for several ε (4.5)", "level_sets:by_epsilon", {}, None
    ),
    "networks_on_two_data_sets": Kind(
        "macro top-1 accuracy on Pl@ntNet-300K against that on ImageNet, by network (3.8a)",
        "networks:on_two_data_sets",
        {},
        of="networks",
    ),
    "networks_average_against_top": Kind(
        "macro average-5 against macro top-5 accuracy on Pl@ntNet-300K, by network (3.8b)",
        "networks:average_against_top",
        {},
        of="networks",
    ),
    "top_against_average": Kind(
        "top-K against average-K accuracy, by run", "accuracies:top_against_average", {"k": 5}
    ),
    "gradient_sparsity": Kind(
        "non-zero gradient coordinates in the first epoch over ε (4.2)",
        "curves:gradient_sparsity",
        {},
    ),
    "epoch_time": Kind("time of an epoch over K, by loss (4.3)", "curves:epoch_time", {}),
    "set_sizes": Kind("histograms of set sizes, by loss (5.4)", "set_sizes:by_loss", {"k": 5}),
    "set_sizes_by_shot": Kind(
        "histograms of set sizes, by loss and shot (5.4)", "set_sizes:by_shot", {"k": 5}
    ),
    "metric_against_field": Kind(
        "a test metric over a field of the configuration (5.5, 5.6)",
        "curves:metric_against_field",
        {"metric": "average_5_accuracy", "field": "loss.alpha"},
    ),
    "learning_curves": Kind(
        "loss and metric over the epochs, of one run or several",
        "learning:learning_curves",
        {"metric": None},
    ),
}
