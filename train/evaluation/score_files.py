"""Scores and labels in files: written from a run, or read from other programs.

A file that is written has these arrays, in this order: scores float32 [n, L], labels [n], loss [n],
names [n], class_names [L], groups [n] and class_counts [L]. The last two are there if they are
known. Names are texts: the paths of files or names of examples, or else "row N" or "example N".
"""

import bz2
import functools
import gzip
import io
import lzma
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from absl import logging
from scipy import special

from train.data import grouping
from train.evaluation import stored_scores
from train.evaluation.predictions import CHUNK, Predictions, chunks, ranks_in_64_bits
from train.evaluation.stored_scores import Scores, StoredScores
from train.foundation import array_files, files, names, stored_rows, text_files
from train.foundation.array_files import StoredArray
from train.foundation.errors import UserError, first_line

# The names of scores in an .npz file; logits become probabilities, the others do not change.
_LOGITS = "logits"
_PROBABILITIES = "probabilities"
_SCORES = (_PROBABILITIES, "scores")
_LABELS = "labels"
_LOSS = "loss"
_NAMES = "names"
_CLASS_NAMES = "class_names"
_GROUPS = "groups"
_CLASS_COUNTS = "class_counts"
# How a text is decompressed, by the end of its name.
_Decompressed = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
_DECOMPRESSED: Mapping[str, Callable[[Any], _Decompressed]] = MappingProxyType(
    {
        ".gz": lambda file: gzip.GzipFile(fileobj=file),
        ".bz2": bz2.BZ2File,
        ".xz": lzma.LZMAFile,
        ".lzma": lzma.LZMAFile,
    }
)
# How far the sum of the probabilities of an example may be from 1.
_SUM_TOLERANCE = 1e-3
# By how much a rounded probability may exceed 1; the functions of `topk_jax.sets` allow as much.
_ROUNDING = 1e-4


def _are_finite(rows: np.ndarray) -> np.ndarray:
    return np.isfinite(rows).all(axis=-1)


def _are_finite_or_masked(rows: np.ndarray) -> np.ndarray:
    """Whether the softmax of each row has a value. A NaN fails the first comparison."""
    return np.all(rows < np.inf, axis=-1) & np.any(rows > -np.inf, axis=-1)


# Which rows [n, L] are valid, what they must be, and what other rows have.
_FINITE = (_are_finite, "finite", "NaN or infinity")
_FINITE_OR_MASKED = (
    _are_finite_or_masked,
    "finite, or -inf for a class that is masked",
    "NaN or +inf, or -inf for every class",
)


def write_scores(
    path: Path,
    predictions: Predictions,
    class_counts: np.ndarray | None,
    class_names: Sequence[str],
) -> None:
    """Writes an .npz file of the scores, with the arrays that the module lists.

    Examples of classes that the model does not know do not have a label here, and are left out.

    Args:
        path: the file.
        predictions: the predictions for the examples.
        class_counts: the training images of each class, [L]; None if they are not known.
        class_names: the names of the classes, [L] or more; those from L on are left out.
    """
    if not predictions.is_known.all():
        unknown = np.flatnonzero(~predictions.is_known)
        logging.warning(
            "%s has no examples of classes that the classifier does not know: %d are left out",
            path,
            len(unknown),
        )
        predictions = predictions.take(np.flatnonzero(predictions.is_known))
    texts = np.array(list(class_names)[: predictions.scores.shape[-1]], object)
    arrays: dict[str, Scores | None] = {
        "scores": predictions.scores,
        _LABELS: predictions.labels,
        _LOSS: predictions.loss,
        _NAMES: predictions.names_or_numbers(),
        _CLASS_NAMES: texts,
        _GROUPS: predictions.groups,
        _CLASS_COUNTS: class_counts,
    }
    with files.replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            if array is None:
                continue
            dtype = _dtype_of(array)
            # Like `np.savez_compressed`, but with only a few rows of the scores in memory at a
            # time.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                description = np.lib.format.dtype_to_descr(dtype)
                header = {"descr": description, "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_1_0(entry, header)
                for part in _split_rows(array):
                    # A memory view does not take texts.
                    entry.write(np.ascontiguousarray(part, dtype).view(np.uint8).data)


def _dtype_of(array: Scores) -> np.dtype:
    """The type of the numbers, or of texts as long as the longest."""
    if array.dtype != object:
        return array.dtype
    return np.dtype(f"U{max(map(len, array[:]), default=1) or 1}")


def _split_rows(array: Scores) -> Iterator[np.ndarray]:
    """The rows of an array, in parts if there are many numbers."""
    if len(array.shape) == 1:
        # Texts of one length take far more memory than those that they are made of.
        yield from (array[start : start + CHUNK] for start in range(0, len(array), CHUNK))
    else:
        yield from (array[chunk] for chunk in chunks(array))


def are_probabilities(scores: Scores) -> bool:
    """Whether the scores of each example add up to 1; scores of multi-label losses need not."""
    parts = (scores[chunk] for chunk in chunks(scores))
    return all(bool(add_up_to_1(part).all() and (part >= 0).all()) for part in parts)


def are_from_0_to_1(scores: Scores) -> bool:
    """Whether each score might be a rounded probability, or NaN."""
    parts = (scores[chunk] for chunk in chunks(scores))
    return not any(bool(((part < 0) | (part > 1 + _ROUNDING)).any()) for part in parts)


def add_up_to_1(scores: np.ndarray) -> np.ndarray:
    """Whether the scores of each of a few examples add up to 1, [m]."""
    add_up: np.ndarray = np.abs(scores.sum(axis=-1, dtype=np.float64) - 1) <= _SUM_TOLERANCE
    return add_up


def read_scores(logits: Path, labels: Path | None, *, flag: str) -> Predictions:
    """A user's scores of examples, and their labels.

    Args:
        logits: an .npy file of logits [n, L], or an .npz file with "logits", "probabilities" or
            "scores". A logit of -inf masks its class, which gets a probability of 0.
        labels: see `read_integers`; None if the .npz file has "labels".
        flag: what messages call the first; the second is called by it too.

    Raises:
        UserError: a file cannot be read, or the two are not what they must be.
    """
    arrays = _read_scores(logits, flag)
    found = [name for name in (_LOGITS, *_SCORES) if name in arrays]
    if len(found) != 1:
        raise UserError(
            f"--{flag} must have one array called logits, probabilities or scores; {logits} has "
            f"{', '.join(arrays) or 'none'}"
        )
    (name,) = found
    values = arrays[name]
    if len(values.shape) != 2 or 0 in values.shape or values.dtype.kind != "f":
        raise UserError(
            f"--{flag} must be floating-point numbers [examples, classes], of one example and "
            f"class at least; {name} in {logits} is {values.dtype} {list(values.shape)}"
        )
    # Before the scores are read, which may be far more than there are labels.
    labels_flag = flag.replace("logits", "labels")
    if labels is not None:
        classes = read_integers(labels, flag=labels_flag)
    elif _LABELS in arrays:
        classes = _check_integers(arrays[_LABELS], logits, flag)
    else:
        raise UserError(f"--{labels_flag} is needed: {logits} has no array called labels")
    _check_labels(classes, values.shape, flag=labels_flag)
    are_taken, must_be, have = _FINITE if name != _LOGITS else _FINITE_OR_MASKED
    bad = np.flatnonzero(~_apply_by_chunks(values, are_taken))
    if bad.size:
        raise UserError(
            f"--{flag} must be {must_be}; {bad.size} of the {len(values)} examples in {logits} "
            f"have {have}, the first of them example {bad[0]}"
        )
    if name == _PROBABILITIES and not are_probabilities(values):
        raise UserError(
            f"--{flag}: an array probabilities must be at least 0 and add up to 1 for each "
            f"example; the array in {logits} does not. Name it scores if it need not"
        )
    if name == _LOGITS and are_probabilities(values):
        logging.warning(
            "--%s looks like probabilities, and is read as logits; to have it read as "
            "probabilities, give an .npz file with an array of that name",
            flag,
        )
    if _LOSS in arrays:
        loss = _losses(arrays[_LOSS], len(classes), logits, flag)
    else:
        loss = _compute_losses(values, classes, are_logits=name == _LOGITS)
    ranks = np.concatenate(
        [
            ranks_in_64_bits(values[chunk].astype(np.float64), classes[chunk])
            for chunk in chunks(values)
        ]
    )
    scores = _prepare_scores(values, are_logits=name == _LOGITS)
    examples_names, given = (
        _texts_beside(arrays, of, len(classes), "examples", logits, flag)
        for of in (_NAMES, _GROUPS)
    )
    if given is None and examples_names is not None:
        where = f"--{flag} {logits}"
        grouping.warn_of_likely(where, examples_names.tolist(), classes, f"an array {_GROUPS}")
    return Predictions(loss, scores, classes.astype(np.int32), ranks, examples_names, given)


def _texts_beside(
    arrays: Mapping[str, Any], name: str, length: int, what: str, path: Path, flag: str
) -> np.ndarray | None:
    """An array of texts [length] in a file of scores; None if the file does not have it."""
    if name not in arrays:
        return None
    array = arrays[name]
    if array.dtype.kind != "U" or array.shape != (length,):
        raise UserError(
            f"--{flag}: {name} must be a text for each of the {length} {what}; that in {path} is "
            f"{array.dtype} {list(array.shape)}"
        )
    return array.astype(object)


def _compute_losses(values: Scores, classes: np.ndarray, *, are_logits: bool) -> np.ndarray:
    """The cross-entropy of each example, in 64 bits: a user's logits may be of any size."""

    def of_chunk(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
        rows = np.arange(len(classes))
        if are_logits:
            return -special.log_softmax(values.astype(np.float64), axis=-1)[rows, classes]
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.log(values[rows, classes].astype(np.float64))

    return np.concatenate([of_chunk(values[c], classes[c]) for c in chunks(values)])


def _prepare_scores(values: Scores, *, are_logits: bool) -> Scores:
    """The scores for sets in 32 bits: probabilities for logits. Many scores are in a file."""

    def of_chunk(part: np.ndarray) -> np.ndarray:
        in_64_bits = part.astype(np.float64)
        scores = special.softmax(in_64_bits, axis=-1) if are_logits else in_64_bits
        return scores.astype(np.float32)

    return stored_scores.collect((of_chunk(values[c]) for c in chunks(values)), len(values))


def _apply_by_chunks(values: Scores, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The results, one for each row, of a function of rows [n, L], computed chunk by chunk."""
    return np.concatenate([function(values[chunk]) for chunk in chunks(values)])


def class_names_beside(
    scores: Path, num_classes: int, *, flag: str = "logits"
) -> tuple[str, ...] | None:
    """The names of the classes in a file of scores, as `write_scores` leaves them; None if none.

    Args:
        scores: the file.
        num_classes: the number of classes.
        flag: what messages call the file.

    Raises:
        UserError: the file has something else by that name, or two classes of one name.
    """
    arrays = _read(scores, flag)
    found = _texts_beside(arrays, _CLASS_NAMES, num_classes, "classes", scores, flag)
    if found is None:
        return None
    first: dict[str, int] = {}
    for index, name in enumerate(found.tolist()):
        before = first.setdefault(names.same_form(name), index)
        if before != index:
            raise UserError(
                f"--{flag}: {_CLASS_NAMES} must be different; classes {before} and {index} in "
                f"{scores} are both {names.shown(name)!r}"
            )
    return tuple(found.tolist())


def class_counts_beside(scores: Path, num_classes: int) -> np.ndarray | None:
    """The class counts in a file of scores, as `write_scores` leaves them; None if none.

    Raises:
        UserError: the file has something else by that name.
    """
    arrays = _read(scores, "logits")
    if _CLASS_COUNTS not in arrays:
        return None
    counts = arrays[_CLASS_COUNTS]
    if counts.dtype.kind not in "iu" or counts.shape != (num_classes,) or (counts < 0).any():
        raise UserError(
            f"--logits: {_CLASS_COUNTS} must be the number of training images of each of the "
            f"{num_classes} classes; that in {scores} is {counts.dtype} {list(counts.shape)}"
            + (", with negative numbers" if counts.dtype.kind == "i" else "")
        )
    return counts.astype(np.int64)


def read_integers(path: Path, *, flag: str) -> np.ndarray:
    """Integers [n] from an .npy file, an .npz file with one array, or a text with one per line.

    Raises:
        UserError: the file cannot be read, or holds something else.
    """
    if path.suffix not in (".npy", ".npz"):
        with _naming_flag(path, flag):
            numbers = np.loadtxt(io.StringIO(_read_text(path)), dtype=np.float64, ndmin=1)
        whole = np.isfinite(numbers) & (numbers == np.round(numbers))
        if numbers.ndim != 1 or not whole.all():
            raise UserError(f"--{flag} must be integers, one a line; {path} has others")
        return numbers.astype(np.int64)
    with _naming_flag(path, flag):
        files.open_bounded(path, files.MOST_EXAMPLES_BYTES).close()
    arrays = _read(path, flag)
    if len(arrays) != 1:
        raise UserError(f"--{flag} must have one array; {path} has {len(arrays)}")
    return _check_integers(next(iter(arrays.values())), path, flag)


def _read_text(path: Path) -> str:
    """A text of a limited size, decompressed if its name has that ending."""
    most = files.MOST_EXAMPLES_BYTES
    with files.open_bounded(path, most) as stored:
        if path.suffix not in _DECOMPRESSED:
            return text_files.decoded(stored.readall())
        content = bytearray()
        try:
            decompressed = _DECOMPRESSED[path.suffix](stored)
            while len(content) <= most and (part := decompressed.read(2**24)):
                content += part
        except OSError as error:
            if error.errno is not None:  # The system raised it, not the content.
                raise
            raise ValueError(first_line(error)) from error
    if len(content) > most:
        raise ValueError(f"it has more than {most // 2**20:,} MiB when it is decompressed")
    return text_files.decoded(bytes(content))


def _losses(array: np.ndarray, num_examples: int, path: Path, flag: str) -> np.ndarray:
    if array.dtype.kind != "f" or array.shape != (num_examples,) or np.isnan(array).any():
        raise UserError(
            f"--{flag}: {_LOSS} must be a floating-point number for each of the {num_examples} "
            f"examples, and not NaN; that in {path} is {array.dtype} {list(array.shape)}"
        )
    return array


def _check_integers(array: np.ndarray, path: Path, flag: str) -> np.ndarray:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(
            f"--{flag} must be integers [examples]; {path} has {array.dtype} {list(array.shape)}"
        )
    return array.astype(np.int64)


def _check_labels(labels: np.ndarray, shape: tuple[int, ...], *, flag: str) -> None:
    if len(labels) != shape[0]:
        raise UserError(
            f"--{flag} must have a label for each of the {shape[0]} examples; got {len(labels)}"
        )
    bad = np.flatnonzero((labels < 0) | (labels >= shape[1]))
    if bad.size:
        raise UserError(
            f"--{flag} must be from 0 to {shape[1] - 1}, the classes of the scores; example "
            f"{bad[0]} has {labels[bad[0]]}"
        )


def _read_scores(path: Path, flag: str) -> Mapping[str, Any]:
    """The arrays of a file, as `_read` gives them; many scores of an .npy file stay there."""
    arrays = _read(path, flag)
    if arrays.is_npy:
        with _naming_flag(path, flag):
            found = arrays.finders[_LOGITS]()
            rows = found.rows()
        if rows is not None and 4 * math.prod(rows.shape) > stored_rows.MOST_IN_MEMORY:
            return {_LOGITS: StoredScores.of(rows)}
    return arrays


@dataclass(frozen=True)
class _Arrays(Mapping[str, np.ndarray]):
    """The arrays of a file; each is read when it is used.

    Attributes:
        path: the file.
        flag: what messages call it.
        is_npy: whether it has one array without a name, which is logits here.
        finders: finds each array, by its name.
    """

    path: Path
    flag: str
    is_npy: bool
    finders: Mapping[str, Callable[[], StoredArray]]

    def __getitem__(self, name: str) -> np.ndarray:
        find = self.finders[name]
        with _naming_flag(self.path, self.flag):
            return find().read()

    def __contains__(self, name: object) -> bool:
        return name in self.finders

    def __iter__(self) -> Iterator[str]:
        return iter(self.finders)

    def __len__(self) -> int:
        return len(self.finders)


def _read(path: Path, flag: str) -> _Arrays:
    """The arrays of an .npz file by their names, or the one of an .npy file as logits."""
    with _naming_flag(path, flag):
        with files.open_regular(path) as file:
            start = file.read(len(array_files.NPY))
        if start == array_files.NPY:
            one = functools.partial(array_files.in_npy, path)
            return _Arrays(path, flag, is_npy=True, finders={_LOGITS: one})
        if start.startswith(array_files.ZIP):
            return _Arrays(path, flag, is_npy=False, finders=array_files.in_npz(path))
        raise ValueError("it is not an .npy or .npz file")


@contextmanager
def _naming_flag(path: Path, flag: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        state = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"--{flag} must name a file; {path} {state}") from error
    except (files.NotRegularError, files.TooLargeError) as error:
        raise UserError(f"--{flag}: {path} cannot be read: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"--{flag}: {path} cannot be read: {error}") from error
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    except Exception as error:  # NumPy's readers raise these for a file of another kind.
        raise UserError(f"--{flag}: {path} cannot be read: {first_line(error)}") from error
