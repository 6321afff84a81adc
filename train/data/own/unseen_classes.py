"""Classes that have examples for validation or test, and none for training.

No classifier can answer such a class. `config.dataset.unseen_classes` chooses what is done with it:

- "refuse": the data set is refused.
- "leave_out": its examples are left out.
- "count_as_unknown": its test examples are kept, and no set has their label. They are misses in
  every accuracy and coverage. In a mean over classes it is a class with an accuracy of 0, of few
  shots. They have no loss, and means of losses are over the others. Nothing can be calibrated or
  selected by them, so its validation examples are left out.
"""

import dataclasses

import numpy as np
from absl import logging

from train.data.own.listing import NO_SPLIT, Listing, Role
from train.foundation.errors import UserError
from train.foundation.messages import in_words

REFUSE, _LEAVE_OUT, COUNT_AS_UNKNOWN = "refuse", "leave_out", "count_as_unknown"


def sort_out(examples: Listing, unseen: str | None, where: str, example: str) -> Listing:
    """Treats classes without training examples as `unseen_classes` asks.

    Unseen classes that are kept come last, and those that are left out after them.

    Args:
        examples: the examples of all classes.
        unseen: the value of the field; None to keep all classes as they are.
        where: what the examples were found in, for messages.
        example: what messages call an example, "image" or "row".

    Raises:
        UserError: there are such classes, and they are refused; or there are no others.
    """
    names, roles = examples.class_names, examples.roles
    trained = examples.occurrences(np.flatnonzero(roles == Role.TRAIN)) > 0
    if trained.all() or unseen is None:
        return examples
    if not trained.any():
        raise UserError(f"{where} has no {example}s for training")
    is_unseen = examples.have_any(~trained)
    of_validation, of_test = (is_unseen & (roles == role) for role in (Role.VALIDATION, Role.TEST))
    without = [names[label] for label in np.flatnonzero(~trained).tolist()]
    found = f"{where} has no training {example} of {in_words(without, 'classes')}"
    numbers = {"validation": of_validation.sum(), "the test": of_test.sum()}
    given = [split for split, number in numbers.items() if number]
    if given:
        found += f", but {' and '.join(f'{numbers[split]:,} for {split}' for split in given)}"
    if unseen == REFUSE:
        raise UserError(
            f"{found}; config.dataset.unseen_classes={_LEAVE_OUT} leaves them out, and "
            f"{COUNT_AS_UNKNOWN} counts those of the test as misses"
        )
    counted = unseen == COUNT_AS_UNKNOWN
    becomes = {"validation": "are left out", "the test": "count as misses"}
    each = (f"those for {split} {becomes[split]}" for split in given)
    logging.warning("%s; %s", found, ", and ".join(each) if counted else "all are left out")
    is_counted = counted & ~trained & (examples.occurrences(np.flatnonzero(of_test)) > 0)
    # Classes that are trained first, then those that are counted, each in their order.
    order = np.argsort(np.where(trained, 0, np.where(is_counted, 1, 2)), kind="stable")
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    left_out = of_validation if counted else is_unseen
    return dataclasses.replace(
        examples.renumbered(number),
        roles=np.where(left_out, np.int8(NO_SPLIT), roles),
        class_names=tuple(name for name, seen in zip(names, trained, strict=True) if seen),
        unseen_names=tuple(names[label] for label in np.flatnonzero(is_counted).tolist()),
    )
