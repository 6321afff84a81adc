"""Scores and labels in .npz files: written from what was evaluated, or by other programs.

A file that is written has these arrays, in this order: scores float32 [n, L], labels [n], loss [n],
names [n], class_names [L], groups [n] and class_counts [L]. The last two are there if they are
known. Names are texts: the paths of files or names of examples, or else "row N" or "example N".
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from scipy import special

from train.data import grouping
from train.data.classes import Classes
from train.foundation import files
from train.foundation.errors import errors_told
from train.foundation.names import same_form, shown
from train.scores.scores import Scores, are_probabilities, collect, exact_ranks, slices

# What a file may call its scores; logits become probabilities, the others do not change.
_KINDS = ("logits", "probabilities", "scores")
_NUMBERS, _INTEGERS, _TEXTS = ("f", "floating-point numbers"), ("iu", "integers"), ("U", "texts")
# The letters of the types that an array may have, these in words, and what its axes are.
_FORMS = {
    **dict.fromkeys(_KINDS, (*_NUMBERS, ("examples", "classes"))),
    "labels": (*_INTEGERS, ("examples",)),
    "loss": (*_NUMBERS, ("examples",)),
    "names": (*_TEXTS, ("examples",)),
    "groups": (*_TEXTS, ("examples",)),
    "class_names": (*_TEXTS, ("classes",)),
    "class_counts": (*_INTEGERS, ("classes",)),
}


def write(path: Path, scores: Scores) -> None:
    """Writes a file with the arrays that the module lists.

    Examples of classes that are not known do not have a label here, and are left out.
    """
    kept = scores.of_known()
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


def has_class_names(path: Path) -> bool:
    """Whether a file of scores names its classes; others are called by their numbers."""
    with np.load(path, allow_pickle=False) as archive:
        return "class_names" in archive


def read(path: Path, *, flag: str) -> Scores:
    """Scores of examples, their labels and what else a file has; see `docs/after_training.md`.

    A logit of -inf masks its class, which gets a probability of 0. Classes without names are
    called by their numbers.

    Args:
        path: an .npz file.
        flag: what messages call it, as --scores.

    Raises:
        UserError: the file cannot be read, or its arrays are not what they must be.
    """
    with errors_told(f"{flag} must be an .npz file of scores; {path} is not"):
        zipfile.ZipFile(path).close()  # NumPy takes anything else for a pickle.
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in _FORMS if name in archive}
            kind = _checked(arrays, archive.files)
    values, labels = arrays[kind], arrays["labels"].astype(np.int32)
    names, groups, loss = (arrays.get(name) for name in ("names", "groups", "loss"))
    if kind == "logits" and are_probabilities(values):
        logging.warning("%s %s: logits look like probabilities; name them so", flag, path)
    if groups is None and names is not None:
        grouping.warn_of_likely(f"{flag} {path}", names.tolist(), labels, "an array groups")
    classes = Classes.of(arrays.get("class_names", np.arange(values.shape[1]).astype(str)).tolist())
    if "class_counts" in arrays:
        classes = Classes(classes.names, tuple(arrays["class_counts"].tolist()))
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

    return Scores(
        values=collect(prepared(), len(values)),
        labels=labels,
        ranks=np.concatenate(ranks),
        loss=np.concatenate(losses) if loss is None else loss,
        classes=classes,
        names=None if names is None else names.astype(object),
        groups=None if groups is None else groups.astype(object),
        # An example of a half keeps its number.
        indices=np.arange(len(values)),
    )


def _checked(arrays: Mapping[str, np.ndarray], found: Sequence[str]) -> str:
    """What the file calls its scores; raises `ValueError` if the arrays cannot be scores."""
    kinds = [name for name in _KINDS if name in arrays]
    if len(kinds) != 1 or "labels" not in arrays:
        raise ValueError(
            "it must have labels, and one of logits, probabilities and scores; it has "
            f"{', '.join(found) or 'nothing'}"
        )
    kind = kinds[0]
    values, labels = arrays[kind], arrays["labels"]
    lengths = dict(zip(("examples", "classes"), (*values.shape, 1, 1), strict=False))
    for name, array in arrays.items():
        types, what, axes = _FORMS[name]
        shape = tuple(lengths[axis] for axis in axes)
        if array.dtype.kind not in types or array.shape != shape or not array.size:
            has = ", ".join(f"{one} {of.dtype} {list(of.shape)}" for one, of in arrays.items())
            raise ValueError(f"{name} must be {what} [{', '.join(axes)}]; it has {has}")
    if (outside := labels[(labels < 0) | (labels >= lengths["classes"])]).size:
        raise ValueError(
            f"labels must be from 0 to {lengths['classes'] - 1}, the classes of {kind}; got "
            f"{outside[0]}"
        )
    places: dict[str, int] = {}
    for index, name in enumerate(arrays["class_names"].tolist() if "class_names" in arrays else ()):
        if (before := places.setdefault(same_form(name), index)) != index:
            raise ValueError(
                f"class_names must be different; classes {before} and {index} are {shown(name)!r}"
            )
    least, or_masked = (np.max, ", or -inf for some classes") if kind == "logits" else (np.min, "")
    for chunk in slices(*values.shape):
        part = values[chunk]
        # A NaN fails each comparison.
        is_good = (part.max(axis=1) < np.inf) & (least(part, axis=1) > -np.inf)
        if not is_good.all():
            first = chunk.start + is_good.argmin()
            raise ValueError(f"{kind} must be finite{or_masked}; those of example {first} are not")
    if kind == "probabilities" and not are_probabilities(values):
        raise ValueError(
            "probabilities must be 0 or more and add up to 1 for each example; name them scores if "
            "they need not"
        )
    return kind
