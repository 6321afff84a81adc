"""The figures by name, with the options of each.

The functions that draw them are named and not imported: --help does not need matplotlib.
"""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Kind:
    """A figure of the command.

    Attributes:
        what: what it shows, and its number in the thesis.
        draw: the function that draws it, as "module:function" in this package.
        options: the flags that it has beside `--out`, with their default values.
        of: what it is drawn from, and is then the first argument of `draw`: "runs" of one data
            set, runs of any "data sets", or "networks" for what networks reach in runs and
            evaluations of any data sets; None if it has only options.
    """

    what: str
    draw: str
    options: dict[str, Any]
    of: Literal["runs", "data sets", "networks"] | None = "runs"


_OF_CROSS_ENTROPY = {"loss": "cross_entropy"}

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
    "surrogate_losses": Kind(
        "the 0-1 loss of two classes and losses in its place (2.2)", "surrogates:by_loss", {}, None
    ),
    "lorenz_curves": Kind(
        "share of the training images that the rarest classes have, by data set (3.2)",
        "lorenz:by_data_set",
        {},
        of="data sets",
    ),
    "networks_micro_and_macro": Kind(
        "top-K and macro top-K accuracy on Pl@ntNet-300K, by network (3.5)",
        "networks:micro_and_macro",
        {"k": 1, **_OF_CROSS_ENTROPY},
        of="networks",
    ),
    "networks_on_two_data_sets": Kind(
        "a metric on Pl@ntNet-300K against that on ImageNet, by network (3.8a; 3.6 with "
        "--metric=macro_average_5_accuracy)",
        "networks:on_two_data_sets",
        {"metric": "macro_top_1_accuracy", **_OF_CROSS_ENTROPY},
        of="networks",
    ),
    "networks_average_against_top": Kind(
        "macro average-K against macro top-K accuracy on Pl@ntNet-300K, by network (3.8b)",
        "networks:average_against_top",
        {"k": 5, **_OF_CROSS_ENTROPY},
        of="networks",
    ),
    "networks_by_loss": Kind(
        "top-K accuracy on Pl@ntNet-300K with a loss against that with cross-entropy, by network "
        "(3.9)",
        "networks:against_cross_entropy",
        {"k": 5, "loss": "smooth_top_k_hinge"},
        of="networks",
    ),
    "expert": Kind(
        "errors of an expert and of networks on a small test set (3.7)",
        "expert:against_networks",
        {"scores": None, "expert": None},
        of=None,
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
        "a metric over a field of the configuration (5.5)",
        "curves:metric_against_field",
        {"metric": "average_5_accuracy", "field": "loss.alpha", "split": "validation"},
    ),
    "metric_against_batch_size": Kind(
        "a metric over the batch size, at a constant ratio of rate and batch size (5.6)",
        "curves:metric_against_batch_size",
        {"metric": "average_5_accuracy", "split": "validation"},
    ),
    "learning_curves": Kind(
        "loss and metric over the epochs, of one run or several",
        "learning:learning_curves",
        {"metric": None},
    ),
}
