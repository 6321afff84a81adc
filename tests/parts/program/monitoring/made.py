"""Outcomes that were made up, as lines of train.predict with a label, for a run on the digits."""

import json

import numpy as np


def lines(misses, rule="coverage=0.9", probabilities=0.75, on=270):
    """A line for each outcome: a set of one class, which is the label unless it is missed."""
    probabilities = np.broadcast_to(probabilities, len(misses))
    return [
        json.dumps(
            {
                "path": f"{index}.png",
                "set": [{"class": str(chosen), "index": chosen, "probability": float(probability)}],
                "size": 1,
                "rule": rule,
                **({} if on is None else {"calibrated_on": {"examples": on, "groups": on}}),
                "label": str(index % 10),
            }
        )
        for index, (missed, probability) in enumerate(zip(misses, probabilities, strict=True))
        for chosen in [(index + bool(missed)) % 10]
    ]


def write(path, some):
    path.write_text("".join(f"{line}\n" for line in some))
    return path
