"""Scores and labels in .npz files: written from what was evaluated, or by other programs.

A file that is written has these arrays, in this order: scores float32 [n, L], labels [n], loss [n],
names [n], class_names [L], groups [n] and class_counts [L]. The last two are there if they are
known. Names are texts: the paths of files or names of examples, or else "row N" or "example N".
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from scipy import special

from train.data import grouping
from train.data.classes import Classes
from train.foundation import files, zip_files
from train.foundation.errors import UserError, first_line, let_through
from train.foundation.names import same_form, shown
from train.scores.scores import Scores, are_probabilities, collect, exact_ranks, slices

# What a file may call its scores; logits become probabilities, the others do not change.
_KINDS = ("logits", "probabilities", "scores")
# The other arrays: the letters of the types that each may have, these in words, and what it has an
# entry for.
_BESIDE = {
    "labels": ("iu", "an integer", "examples"),
    "loss": ("f", "a floating-point number", "examples"),
    "names": ("U", "a text", "examples"),
    "groups": ("U", "a text", "examples"),
    "class_names": ("U", "a text", "classes"),
    "class_counts": ("iu", "an integer", "classes"),
}


def write(path: Path, scores: Scores) -> None:
    """Writes a file with the arrays that the module lists.

    Examples of classes that are not known do not have a label here, and are left out.
    """
    kept = scores.of_known()
    if unknown := len(scores) - len(kept):
        logging.warning(
            "%s has no examples of classes that the classifier does not know: %d are left out",
            path,
            unknown,
        )
    arrays: dict[str, Any] = {
        "scores": kept.values[:],
        "labels": kept.labels,
        "loss": kept.loss,
        "names": kept.names_or_numbers().astype(str),
        "class_names": np.array(kept.classes.names, str),
        "groups": None if kept.groups is None else kept.groups.astype(str),
        "class_counts": kept.classes.counts,
    }
    with files.replacing(path) as file:
        np.savez_compressed(file, **{name: one for name, one in arrays.items() if one is not None})


def read(path: Path, *, flag: str) -> Scores:
    """Scores of examples, their labels and what else a file has; see `docs/new_data.md`.

    A logit of -inf masks its class, which gets a probability of 0. Classes without names are
    called by their numbers.

    Args:
        path: an .npz file.
        flag: what messages call it, as --scores.

    Raises:
        UserError: the file cannot be read, or its arrays are not what they must be.
    """
    try:
        with files.open_regular(path) as file:
            zip_files.opened(file).close()
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in (*_KINDS, *_BESIDE) if name in archive}
        for reason in _faults(arrays):
            raise ValueError(reason)
    except Exception as error:  # Readers raise many for a damaged file.
        let_through(error)
        why = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        but = f"{path} is not: {why}"
        raise UserError(field=flag, must_be="an .npz file of scores", but=but) from error
    (kind,) = arrays.keys() & set(_KINDS)
    values, labels = arrays[kind], arrays["labels"].astype(np.int64)
    _, loss, names, groups, class_names, counts = map(arrays.get, _BESIDE)
    if kind == "logits" and are_probabilities(values):
        logging.warning("%s %s: logits look like probabilities; name them so", flag, path)
    if groups is None and names is not None:
        grouping.warn_of_likely(f"{flag} {path}", names.tolist(), labels, "an array groups")
    given = map(str, range(values.shape[1])) if class_names is None else class_names.tolist()
    classes = Classes.of(tuple(given))
    if counts is not None:
        classes = Classes(classes.names, tuple(counts.tolist()))
    losses, ranks = [], []

    def prepared() -> Iterator[np.ndarray]:
        # In 64 bits: a user's logits may be of any size.
        for chunk in slices(*values.shape):
            part, of_part = values[chunk].astype(np.float64), labels[chunk]
            of_labels = np.arange(len(part)), of_part
            ranks.append(exact_ranks(part, of_part))
            if kind == "logits":
                losses.append(-special.log_softmax(part, axis=1)[of_labels])
                part = special.softmax(part, axis=1)
            else:
                with np.errstate(divide="ignore", invalid="ignore"):
                    losses.append(-np.log(part[of_labels]))
            yield part.astype(np.float32)

    scores = collect(prepared(), len(values))
    return Scores(
        values=scores,
        labels=labels.astype(np.int32),
        ranks=np.concatenate(ranks),
        loss=np.concatenate(losses) if loss is None else loss,
        classes=classes,
        names=None if names is None else names.astype(object),
        groups=None if groups is None else groups.astype(object),
    )


def _faults(arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Why the arrays cannot be scores, each in a line; those after the first may make no sense."""
    found = [name for name in _KINDS if name in arrays]
    if len(found) != 1 or "labels" not in arrays:
        yield (
            "it must have labels, and one of logits, probabilities and scores; of the names of "
            f"docs/new_data.md it has {', '.join(arrays) or 'none'}"
        )
    kind = found[0]
    values, labels = arrays[kind], arrays["labels"]
    if values.ndim != 2 or not values.size or values.dtype.kind != "f":
        yield (
            f"{kind} must be floating-point numbers [examples, classes]; it has "
            f"{values.dtype} {list(values.shape)}"
        )
    lengths = dict(zip(("examples", "classes"), values.shape, strict=True))
    for name, (types, what, of) in _BESIDE.items():
        one = arrays.get(name)
        if one is not None and (one.dtype.kind not in types or one.shape != (lengths[of],)):
            yield (
                f"{name} must have {what} for each of the {lengths[of]} {of}; it has "
                f"{one.dtype} {list(one.shape)}"
            )
    for example in np.flatnonzero((labels < 0) | (labels >= lengths["classes"])):
        yield (
            f"labels must be from 0 to {lengths['classes'] - 1}, the classes of {kind}; that of "
            f"example {example} is {labels[example]}"
        )
    if "loss" in arrays and np.isnan(arrays["loss"]).any():
        yield "loss must have numbers; it has NaN"
    if "class_counts" in arrays and arrays["class_counts"].min() < 0:
        yield "class_counts must be 0 or more; it has negative numbers"
    first: dict[str, int] = {}
    for index, name in enumerate(arrays["class_names"].tolist() if "class_names" in arrays else ()):
        if (before := first.setdefault(same_form(name), index)) != index:
            yield f"class_names must be different; classes {before} and {index} are {shown(name)!r}"
    least, or_masked = (np.max, ", or -inf for some classes") if kind == "logits" else (np.min, "")
    # A NaN fails each comparison.
    good = [
        (part.max(axis=1) < np.inf) & (least(part, axis=1) > -np.inf)
        for part in (values[chunk] for chunk in slices(*values.shape))
    ]
    if not (is_good := np.concatenate(good)).all():
        yield (
            f"{kind} must be finite{or_masked}; those of {(~is_good).sum()} of the {len(values)} "
            f"examples are not, the first of them example {is_good.argmin()}"
        )
    if kind == "probabilities" and not are_probabilities(values):
        yield (
            "probabilities must be 0 or more and add up to 1 for each example; name them scores if "
            "they need not"
        )
