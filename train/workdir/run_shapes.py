"""The shapes of the JSON files of a run, as far as the program reads them."""

from typing import Any

from train.foundation import shapes
from train.foundation.fields import Field, Number, integer, optional, text
from train.foundation.shapes import NUMBER, NUMBER_OR_NULL, list_of, record, string, table_of

# Float64 can represent all integers up to here.
_COUNT = integer(0, 2**53)
_SIZES = list_of(integer(1, 2**31 - 1), at_least=1)
# Values by the names of the metrics.
METRICS: Field = table_of(NUMBER_OR_NULL)

# Runs are found and compared by these. Training or loading a run checks all groups and fields.
CONFIG: Field = record(
    {},
    {
        "seed": integer(0),
        "num_epochs": integer(1),
        "select_by": text(),
        "dataset": record({}, {"name": text(), "batch_size": integer(1)}),
        "model": record({}, {"name": text()}),
        "loss": record({}, {"name": text(), "class_weights": text()}),
        "optimizer": table_of(shapes.anything),
        "eval": record({}, {"ks": list_of(integer(1))}),
        "checkpoint": table_of(shapes.anything),
        "extensions": list_of(list_of(integer(0))),
    },
)

CLASSES: Field = list_of(
    record({"name": string, "training_images": _COUNT}, {"ranks": table_of(string)}), at_least=1
)

_DIGEST = optional(string)
DATA: Field = record(
    {"image_shape": _SIZES, "digest": _DIGEST},
    {"mean": list_of(NUMBER), "std": list_of(NUMBER), "embedded_by": table_of(shapes.anything)},
)

SEEN: Field = record(
    {
        "digest": string,
        "size": optional(_SIZES),
        "grey": shapes.anything,
        "unreadable": table_of(string),
    },
    {"groups": optional(list_of(string))},
)

# A line of the metrics. All other entries are metrics.
_OF_LINE = record({"step": integer(0), "split": text()}, {"epoch": integer(0)})


def line_of_metrics(value: Any) -> str | None:
    """A step, its split, and numbers by the names of metrics."""
    if (wrong := _OF_LINE(value)) is not None:
        return wrong
    return METRICS({name: entry for name, entry in value.items() if name != "split"})


_GROUP = record({"classes": _COUNT, "examples": _COUNT})
# What `train.reports.summaries.counted` writes about a split.
_EVALUATED = record(
    {
        "groups": table_of(_GROUP),
        "classes_without_examples": _COUNT,
        "named": list_of(string),
    }
)

RESULTS: Field = record(
    {"test": METRICS},
    {
        "config": CONFIG,
        "validation": METRICS,
        "balanced_test": METRICS,
        "bayes": METRICS,
        "bayes_balanced_test": METRICS,
        "best_epoch": integer(0),
        "selected_by": text(),
        "evaluated": table_of(_EVALUATED),
        "class_weights_epoch": integer(0),
        "num_parameters": _COUNT,
        "num_classes": integer(1),
        "epoch_seconds": list_of(NUMBER),
        "examples_per_second": NUMBER_OR_NULL,
        "data_wait_share": NUMBER_OR_NULL,
        "temperature": Number(above=0),
        "left_out": _COUNT,
        "versions": table_of(string),
        "digests": table_of(string),
    },
)
# The results that the closing table of a run shows.
WHOLE_RESULTS: Field = record(
    {
        "test": record({"loss": NUMBER_OR_NULL}),
        "validation": METRICS,
        "best_epoch": integer(1),
        "config": CONFIG,
    },
)

# The report of a split of a data set.
EVALUATION: Field = record(
    {"split": string, "config": CONFIG, "sets": table_of(table_of(shapes.anything))}
)
