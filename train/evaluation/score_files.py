"""Scores and labels in .npz files: written from what was evaluated, or by other programs.

A file that is written has these arrays, in this order: scores float32 [n, L], labels [n], loss [n],
names [n], class_names [L], groups [n] and class_counts [L]. The last two are there if they are
known. Names are texts: the paths of files or names of examples, or else "row N" or "example N".
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from scipy import special

from train.data import grouping
from train.evaluation import stored_scores
from train.evaluation.predictions import Predictions, chunks, ranks_in_64_bits
from train.foundation import files, zip_files
from train.foundation.errors import UserError, first_line, let_through
from train.foundation.names import same_form, shown

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
# How far the sum of the probabilities of an example may be from 1.
_SUM_TOLERANCE = 1e-3
# By how much a rounded probability may exceed 1; the functions of `topk_jax.sets` allow as much.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class ScoreFile:
    """What a file has.

    Attributes:
        examples: the scores, and what is known of the n examples.
        class_names: the names of the L classes; None if it has none.
        class_counts: the training images of each class, [L]; None if it has none.
    """

    examples: Predictions
    class_names: tuple[str, ...] | None
    class_counts: np.ndarray | None


def write_scores(
    path: Path,
    predictions: Predictions,
    class_counts: np.ndarray | None,
    class_names: Sequence[str],
) -> None:
    """Writes a file with the arrays that the module lists.

    Examples of classes that the model does not know do not have a label here, and are left out.

    Args:
        path: the file.
        predictions: the predictions for the examples.
        class_counts: the training images of each class, [L]; None if they are not known.
        class_names: the names of the classes, [L] or more; those from L on are left out.
    """
    known = np.flatnonzero(predictions.is_known)
    if unknown := len(predictions.labels) - len(known):
        logging.warning(
            "%s has no examples of classes that the classifier does not know: %d are left out",
            path,
            unknown,
        )
        predictions = predictions.take(known)
    arrays: dict[str, Any] = {
        "scores": predictions.scores[:],
        "labels": predictions.labels,
        "loss": predictions.loss,
        "names": predictions.names_or_numbers().astype(str),
        "class_names": np.array(list(class_names)[: predictions.scores.shape[-1]], str),
        "groups": None if predictions.groups is None else predictions.groups.astype(str),
        "class_counts": class_counts,
    }
    with files.replacing(path) as file:
        np.savez_compressed(file, **{name: one for name, one in arrays.items() if one is not None})


def are_probabilities(scores: np.ndarray) -> bool:
    """Whether the scores of each example add up to 1; scores of multi-label losses need not."""
    parts = (scores[chunk] for chunk in chunks(scores))
    return all(bool(add_up_to_1(part).all() and (part >= 0).all()) for part in parts)


def are_from_0_to_1(scores: np.ndarray) -> bool:
    """Whether each score might be a rounded probability, or NaN."""
    parts = (scores[chunk] for chunk in chunks(scores))
    return not any(bool(((part < 0) | (part > 1 + _ROUNDING)).any()) for part in parts)


def add_up_to_1(scores: np.ndarray) -> np.ndarray:
    """Whether the scores of each of a few examples add up to 1, [m]."""
    add_up: np.ndarray = np.abs(scores.sum(axis=-1, dtype=np.float64) - 1) <= _SUM_TOLERANCE
    return add_up


def read_scores(path: Path, *, flag: str) -> ScoreFile:
    """Scores of examples, their labels and what else a file has; see `docs/new_data.md`.

    A logit of -inf masks its class, which gets a probability of 0.

    Args:
        path: an .npz file.
        flag: what messages call it.

    Raises:
        UserError: the file cannot be read, or its arrays are not what they must be.
    """
    try:
        with files.open_regular(path) as file:
            zip_files.opened(file).close()
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in (*_KINDS, *_BESIDE) if name in archive}
        kind = _check(arrays)
    except Exception as error:  # Readers raise many for a damaged file.
        let_through(error)
        why = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise UserError(f"--{flag} must be an .npz file of scores; {path} is not: {why}") from error
    values, labels = arrays[kind], arrays["labels"].astype(np.int64)
    _, loss, names, groups, class_names, counts = map(arrays.get, _BESIDE)
    if kind == "logits" and are_probabilities(values):
        logging.warning("--%s %s: logits look like probabilities; name them so", flag, path)
    if groups is None and names is not None:
        grouping.warn_of_likely(f"--{flag} {path}", names.tolist(), labels, "an array groups")
    examples = _predictions(values, labels, are_logits=kind == "logits")
    return ScoreFile(
        dataclasses.replace(
            examples,
            loss=examples.loss if loss is None else loss,
            names=None if names is None else names.astype(object),
            groups=None if groups is None else groups.astype(object),
        ),
        None if class_names is None else tuple(class_names.tolist()),
        None if counts is None else counts.astype(np.int64),
    )


def _check(arrays: Mapping[str, np.ndarray]) -> str:
    """What the scores are called; raises `ValueError` for arrays that cannot be."""
    found = [name for name in _KINDS if name in arrays]
    if len(found) != 1 or "labels" not in arrays:
        raise ValueError(
            "it must have labels, and one of logits, probabilities and scores; of the names of "
            f"docs/new_data.md it has {', '.join(arrays) or 'none'}"
        )
    (kind,) = found
    values, labels = arrays[kind], arrays["labels"]
    if values.ndim != 2 or not values.size or values.dtype.kind != "f":
        raise ValueError(
            f"{kind} must be floating-point numbers [examples, classes]; it has "
            f"{values.dtype} {list(values.shape)}"
        )
    lengths = dict(zip(("examples", "classes"), values.shape, strict=True))
    for name, (types, what, of) in _BESIDE.items():
        one = arrays.get(name)
        if one is not None and (one.dtype.kind not in types or one.shape != (lengths[of],)):
            raise ValueError(
                f"{name} must have {what} for each of the {lengths[of]} {of}; it has "
                f"{one.dtype} {list(one.shape)}"
            )
    bad = np.flatnonzero((labels < 0) | (labels >= lengths["classes"]))
    if bad.size:
        raise ValueError(
            f"labels must be from 0 to {lengths['classes'] - 1}, the classes of {kind}; that of "
            f"example {bad[0]} is {labels[bad[0]]}"
        )
    if "loss" in arrays and np.isnan(arrays["loss"]).any():
        raise ValueError("loss must have numbers; it has NaN")
    if "class_counts" in arrays and arrays["class_counts"].min() < 0:
        raise ValueError("class_counts must be 0 or more; it has negative numbers")
    first: dict[str, int] = {}
    for index, name in enumerate(arrays["class_names"].tolist() if "class_names" in arrays else ()):
        if (before := first.setdefault(same_form(name), index)) != index:
            raise ValueError(
                f"class_names must be different; classes {before} and {index} are {shown(name)!r}"
            )
    are_valid = _have_softmax if kind == "logits" else _are_finite
    bad = np.flatnonzero(~np.concatenate([are_valid(values[one]) for one in chunks(values)]))
    if bad.size:
        or_masked = ", or -inf for some classes" if kind == "logits" else ""
        raise ValueError(
            f"{kind} must be finite{or_masked}; those of {bad.size} of the {len(values)} examples "
            f"are not, the first of them example {bad[0]}"
        )
    if kind == "probabilities" and not are_probabilities(values):
        raise ValueError(
            "probabilities must be 0 or more and add up to 1 for each example; name them scores if "
            "they need not"
        )
    return kind


def _are_finite(rows: np.ndarray) -> np.ndarray:
    return np.isfinite(rows).all(axis=-1)


def _have_softmax(rows: np.ndarray) -> np.ndarray:
    # A NaN fails the first comparison.
    return np.all(rows < np.inf, axis=-1) & np.any(rows > -np.inf, axis=-1)


def _predictions(values: np.ndarray, labels: np.ndarray, *, are_logits: bool) -> Predictions:
    """Scores for sets, losses and ranks, found in 64 bits: a user's logits may be of any size."""
    losses, ranks = [], []

    def prepared() -> Iterator[np.ndarray]:
        for chunk in chunks(values):
            part, of_part = values[chunk].astype(np.float64), labels[chunk]
            ranks.append(ranks_in_64_bits(part, of_part))
            of_labels = np.arange(len(part)), of_part
            if are_logits:
                losses.append(-special.log_softmax(part, axis=-1)[of_labels])
                part = special.softmax(part, axis=-1)
            else:
                with np.errstate(divide="ignore", invalid="ignore"):
                    losses.append(-np.log(part[of_labels]))
            yield part.astype(np.float32)

    scores = stored_scores.collect(prepared(), len(values))
    loss, rank = np.concatenate(losses), np.concatenate(ranks)
    return Predictions(loss, scores, labels.astype(np.int32), rank)
