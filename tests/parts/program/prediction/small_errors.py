"""Tables of examples for pages of errors."""

import numpy as np

from train.data.classes import Classes
from train.reports import rules
from train.reports.examples import ExampleTable
from train.scores.scores import Scores


def table_of(names, class_names, *, number, ks=(1,)):
    """Examples with random scores, whose sets have the two likeliest classes."""
    rng, num_classes = np.random.default_rng(5), len(class_names)
    values = rng.dirichlet(np.full(num_classes, 0.05 if num_classes > 9 else 1), size=number)
    values = values.astype(np.float32)
    # Each class has an example, which most have a likelier class for.
    labels = np.arange(number, dtype=np.int32) % num_classes
    of_label = values[np.arange(number), labels]
    scores = Scores(
        values=values,
        labels=labels,
        ranks=(values > of_label[:, None]).sum(axis=1),
        loss=-np.log(np.maximum(of_label, 1e-9)),
        classes=Classes(tuple(class_names), (0,) * num_classes),
        names=names,
        indices=np.arange(number)[::-1].copy(),
    )
    rule = rules.parse("top_k=2").fit(scores, "nothing")
    return ExampleTable.of(scores, rule, ks)
