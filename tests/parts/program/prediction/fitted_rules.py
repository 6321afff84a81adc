"""Rules of sets with limits that a test gives."""

from train.data.classes import Classes
from train.reports import rules


def of(text, limits=None, *, classes, **more):
    """The rule of a text for some classes, by their number or with what is known of them."""
    if isinstance(classes, int):
        classes = Classes.of([str(label) for label in range(classes)])
    empty = dict.fromkeys(("known_to", "new_from", "class_counts", "calibrated_on"))
    plain = {**empty, **more, "rule": text, "limits": limits}
    if (made_for := plain.pop("tree", None)) is not None:
        plain["made_for"] = made_for
    return rules.from_json(plain, classes)
