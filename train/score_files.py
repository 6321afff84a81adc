"""Scores and labels in files: those of a run for whoever wants them, and somebody else's."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np

from train import files
from train.errors import UserError
from train.evaluation import Predictions

# What an .npz file may call its scores; logits become probabilities, the others are as they are.
_LOGITS = "logits"
_SCORES = ("probabilities", "scores")
_LABELS = "labels"


def write_scores(path: Path, predictions: Predictions, class_counts: np.ndarray) -> None:
    """Writes an .npz file of scores float32 [n, L], labels [n], losses [n] and class counts [L]."""
    content = io.BytesIO()
    np.savez_compressed(
        content,
        scores=predictions.scores,
        labels=predictions.labels,
        loss=predictions.loss,
        class_counts=class_counts,
    )
    files.write_whole(path, content.getvalue())


def read_scores(logits: Path, labels: Path | None, *, flag: str) -> Predictions:
    """Somebody's scores of examples, and their labels.

    Args:
        logits: an .npy file of logits [n, L], or an .npz file with "logits", "probabilities" or
            "scores".
        labels: see `read_integers`; None where the .npz file has "labels".
        flag: what messages call the first; the second is called by it too.

    Raises:
        UserError: a file cannot be read, or the two are not what they must be.
    """
    arrays = _read(logits, flag)
    name = next((name for name in (_LOGITS, *_SCORES) if name in arrays), None)
    if name is None:
        raise UserError(
            f"--{flag} must have an array called logits, probabilities or scores; {logits} has "
            f"{', '.join(arrays) or 'none'}"
        )
    values = arrays[name]
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind != "f":
        raise UserError(
            f"--{flag} must be floating-point numbers [examples, classes]; {name} in {logits} is "
            f"{values.dtype} {list(values.shape)}"
        )
    bad = np.flatnonzero(~np.isfinite(values).all(axis=-1))
    if bad.size:
        raise UserError(
            f"--{flag} must be finite; {bad.size} of the {len(values)} examples in {logits} have "
            f"NaN or infinity, the first of them example {bad[0]}"
        )
    values = values.astype(np.float32)
    scores = np.asarray(jax.nn.softmax(values)) if name == _LOGITS else values
    labels_flag = flag.replace("logits", "labels")
    if labels is not None:
        classes = read_integers(labels, flag=labels_flag)
    elif _LABELS in arrays:
        classes = _integers(arrays[_LABELS], logits, flag)
    else:
        raise UserError(f"--{labels_flag} is needed: {logits} has no array called labels")
    _check_labels(classes, scores.shape, flag=labels_flag)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = -np.log(scores[np.arange(len(classes)), classes])
    return Predictions(loss, scores, classes.astype(np.int32))


def read_integers(path: Path, *, flag: str) -> np.ndarray:
    """Whole numbers [n] from an .npy file, an .npz file with one array, or a text, one a line.

    Raises:
        UserError: the file cannot be read, or holds something else.
    """
    if path.suffix not in (".npy", ".npz"):
        with _reading(path, flag):
            return np.loadtxt(path, dtype=np.int64, ndmin=1)
    arrays = list(_read(path, flag).values())
    if len(arrays) != 1:
        raise UserError(f"--{flag} must have one array; {path} has {len(arrays)}")
    return _integers(arrays[0], path, flag)


def _integers(array: np.ndarray, path: Path, flag: str) -> np.ndarray:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(
            f"--{flag} must be whole numbers [examples]; {path} has {array.dtype} "
            f"{list(array.shape)}"
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
            f"--{flag} must be from 0 to {shape[1] - 1}, the classes of the scores; that of "
            f"example {bad[0]} is {labels[bad[0]]}"
        )


def _read(path: Path, flag: str) -> Mapping[str, np.ndarray]:
    """The arrays of an .npz file by their names, or the one of an .npy file as logits."""
    with _reading(path, flag):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {_LOGITS: loaded}
        with loaded:
            return dict(loaded)


@contextmanager
def _reading(path: Path, flag: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"--{flag} must name a file; there is no {path}") from error
    except OSError:
        raise
    except Exception as error:  # What NumPy's readers raise at a file of another kind.
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"--{flag}: {path} cannot be read: {first_line}") from error
