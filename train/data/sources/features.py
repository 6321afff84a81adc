"""A matrix of features with labels: an .npz file, or a folder of .npy or of .npz files."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec
import numpy as np

from train.configuration.datasets import FEATURES_ARE_IN
from train.data.examples import Examples, given_groups
from train.data.sources.named_splits import given_splits
from train.data.truths import ONE, SEVERAL, Truths
from train.foundation.errors import UserError, errors_told, first_line
from train.foundation.names import same_form

# One text: what `train.embed` knows of the network that made the features, in JSON.
EMBEDDED_BY = "embedded_by"
# What the files of a folder have in common. Their other arrays are rows, which are joined.
_IN_COMMON = ("class_names", EMBEDDED_BY)
# What an array may have, by the kinds of its type in NumPy.
_TEXTS, _FLOATS, _NUMBERS = "iuU", "f", "biuf"
_IN_WORDS = {_TEXTS: "texts or integers", _FLOATS: "float16 or float32", _NUMBERS: "numbers"}
# The numbers that are looked at together.
_BLOCK = 2**20
# Processors may take smaller numbers of 32 bits for 0, and 0 / 0 is NaN. Improbable classes have
# such probabilities.
_LEAST_DEVIATION = np.finfo(np.float32).tiny


class _Network(msgspec.Struct):
    """The least that `train.embed` knows of a network; `train.classifiers.network` has the rest."""

    network: str
    parameters_digest: str
    group: str | None = None


@dataclass(frozen=True)
class Arrays:
    """Arrays, each of which is read when it is asked for; .npy files are mapped.

    Attributes:
        where: the path in messages, with the field or the flag that names it.
        files: the .npy file of each array, or .npz files, whose rows follow one another.
        names: the names of the arrays.
    """

    where: str
    files: Sequence[Path]
    names: Sequence[str]

    def read(self, name: str, kinds: str, *shape: int | str) -> np.ndarray:
        """An array of one of the kinds of types; a word in its shape is any size but 0.

        Raises:
            UserError: there is none of that name, it cannot be read, or it is another one.
        """
        if name not in self.names:
            has = ", ".join(self.names) or "none"
            raise UserError(f"{self.where} must have an array {name}; it has {has}")
        with errors_told(f"{self.where}: the array {name} cannot be read"):
            parts = [*self._in_files(name)]
            if name in _IN_COMMON and not all(np.array_equal(parts[0], one) for one in parts):
                raise ValueError("it must be the same in all files")
            found = parts[0] if name in _IN_COMMON or len(parts) == 1 else np.concatenate(parts)
        given = zip(shape, found.shape, strict=False)
        wanted = tuple(size if size and isinstance(one, str) else one for one, size in given)
        if found.dtype.kind not in kinds or found.ndim != len(shape) or found.shape != wanted:
            must_be = f"{_IN_WORDS[kinds]} [{', '.join(map(str, shape))}]"
            but = f"got {found.dtype} {[*found.shape]}"
            raise UserError(field=f"{self.where}: {name}", must_be=must_be, but=but)
        return found

    def texts(self, name: str, number: int | str = "n") -> np.ndarray | None:
        """An array of texts, or of integers as texts; None if there is no such array."""
        if name not in self.names:
            return None
        return np.array([*map(str, self.read(name, _TEXTS, number).tolist())], object)

    def _in_files(self, name: str) -> Iterator[np.ndarray]:
        """The array in each file that has it."""
        if self.files[0].suffix == ".npy":
            file = self.files[self.names.index(name)]
            yield np.load(file, mmap_mode="r")
            return
        for file in self.files:
            with np.load(file) as found:
                yield found[name]


def arrays(path: Path, field: str = "config.dataset.path") -> Arrays:
    """The arrays at a path.

    Args:
        path: an .npz file; an .npy file, which is the features; or a folder, with an .npy file for
            each array, or with .npz files, whose rows are joined in the order of their names.
        field: the field or the flag that names the path, for messages.

    Raises:
        UserError: there are no such files, or they have different arrays.
    """
    where = f"{field} {path}"
    files = sorted(path.glob("[!.]*.np[yz]")) if path.is_dir() else [path]
    kinds = {file.suffix for file in files}
    if kinds == {".npy"}:
        return Arrays(where, files, [one.stem for one in files] if path.is_dir() else ["features"])
    if kinds != {".npz"}:
        raise UserError(field=where, must_be=FEATURES_ARE_IN)
    named = [_names(file, field) for file in files]
    if lacking := set().union(*named) - set(named[0]).intersection(*named):
        raise UserError(f"{where}: some of its files have an array {min(lacking)}, and others not")
    return Arrays(where, files, named[0])


def find(
    path: Path,
    *,
    kind: str = ONE,
    group: str | None = None,
    rule: str = "shares",
    labelled: bool = True,
    field: str = "config.dataset.path",
) -> Examples:
    """The rows: `features` [n, d] and `labels` [n], integers or texts.

    With votes or several labels, `labels` is [n, L], with a column for each of `class_names`: the
    votes or the shares, or whether the label holds. Optional are `class_names` with labels [n], and
    `names`, `split` and `group` [n]. `Examples.content` is empty: `summarize` finds it.

    Args:
        path: see `arrays`.
        kind: `config.dataset.labels`.
        group: the array of the groups; None for `group`, if there is one.
        rule: `config.dataset.votes`.
        labelled: whether there are labels and splits; without them, all labels are -1.
        field: what names the path in messages.

    Raises:
        UserError: the files cannot be read, or an array has another form.
    """
    found = arrays(path, field)
    matrix = found.read("features", _FLOATS, "rows", "features")
    with np.errstate(over="ignore"):  # What is too large becomes infinite, which is refused.
        features = np.ascontiguousarray(matrix, f"=f{min(matrix.dtype.itemsize, 4)}")
    number = len(features)
    labels, class_names, truths = np.full(number, -1), tuple[str, ...](), None
    if labelled and kind == ONE:
        labels, class_names = _one(found, number)
    elif labelled:
        truths, class_names = _many(found, number, kind, rule)
        labels = truths.labels
    words = found.texts("split", number) if labelled else None
    if group is not None and group not in found.names:
        must_be = f"an array of {found.where}, which are {', '.join(found.names)}"
        raise UserError(field="config.dataset.group", must_be=must_be, got=group)
    groups = found.texts(group or "group", number)
    return Examples.of_source(
        features,
        labels,
        class_names,
        found.where,
        splits=given_splits(np.full(number, "") if words is None else words, found.where),
        names=found.texts("names", number),
        groups=None if groups is None else given_groups(groups),
        grammar=(embedded_by(found) or {}).get("group"),
        truths=truths,
    )


def embedded_by(found: Arrays) -> Mapping[str, Any] | None:
    """What `train.embed` knows of the network that made the features; None if it is not there.

    Raises:
        UserError: the array is not what `train.embed` writes.
    """
    texts = found.texts(EMBEDDED_BY)
    if texts is None:
        return None
    try:
        known: dict[str, Any] = msgspec.json.decode("".join(texts))
        msgspec.convert(known, _Network)
    except ValueError as error:
        where, must_be = f"{found.where}: {EMBEDDED_BY}", "what train.embed writes"
        raise UserError(field=where, must_be=must_be, but=first_line(error)) from error
    return known


def summarize(
    features: np.ndarray, is_training: np.ndarray, where: str
) -> tuple[np.ndarray, np.ndarray, str]:
    """The mean and the deviation of each feature [d], and a hash of all: one pass over the rows.

    The mean and the deviation are of the rows for training. A feature that is the same in all of
    them, or nearly so, has the deviation 1.

    Raises:
        UserError: a number is not finite.
    """
    # It takes a second to import.
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    scaler = StandardScaler()
    digest = hashlib.sha256(f"{features.dtype.str} {features.shape}".encode())
    for start, block in _finite_blocks(features, where):
        digest.update(block.data)
        rows = block[is_training[start : start + len(block)]]
        if len(rows):
            scaler.partial_fit(rows.astype(np.float64))
    std = np.where(scaler.scale_ < _LEAST_DEVIATION, 1, scaler.scale_)
    return scaler.mean_, std, digest.hexdigest()


def check_finite(features: np.ndarray, where: str) -> None:
    """Refuses NaN and infinity, as `summarize` does."""
    for _ in _finite_blocks(features, where):
        pass


def _finite_blocks(features: np.ndarray, where: str) -> Iterator[tuple[int, np.ndarray]]:
    """All rows in blocks, with the number of the first row of each."""
    size = max(1, _BLOCK // features.shape[1])
    for start in range(0, len(features), size):
        block = features[start : start + size]
        _check_rows(where, "features", "finite", np.isfinite(block), block, start)
        yield start, block


def _class_names(found: Arrays) -> tuple[str, ...]:
    """The array `class_names`; empty if there is none."""
    texts = found.texts("class_names")
    given = () if texts is None else tuple(map(same_form, texts))
    ((name, times),) = Counter(["", *given]).most_common(1)
    if times > 1:
        raise UserError(f"{found.where}: class_names must be different texts; {name!r} is not")
    return given


def _one(found: Arrays, number: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each row, [n], and the names of the classes."""
    given, rows = _class_names(found), found.read("labels", _TEXTS, number).tolist()
    labels: list[Any] = [same_form(one) if isinstance(one, str) else one for one in rows]
    known: Sequence[Any] = sorted({*labels} - {""})
    must_be = "integers from 0, or texts that are not empty"
    if given:
        known = given if isinstance(labels[0], str) else range(len(given))
        must_be = f"among class_names, or from 0 to {len(given) - 1}"
    elif not isinstance(labels[0], str):
        known = [one for one in known if one >= 0]
    label_of = {one: label for label, one in enumerate(known)}
    numbers = np.array([label_of.get(one, -1) for one in labels])
    _check_rows(found.where, "labels", must_be, numbers >= 0, np.array(rows, object))
    return numbers, given or tuple(map(str, known))


def _many(found: Arrays, number: int, kind: str, rule: str) -> tuple[Truths, tuple[str, ...]]:
    """The votes or the labels, and the names of the classes."""
    if rule not in ("shares", "majority"):
        must_be = "shares or majority for features, which have no annotators"
        raise UserError(field="config.dataset.votes", must_be=must_be, got=rule)
    found.read("class_names", _TEXTS, "classes")  # A column of the labels is for each.
    given = _class_names(found)
    weights = found.read("labels", _NUMBERS, number, len(given))
    if kind == SEVERAL:
        must_be, are_right = "0 or 1", np.isin(weights, (0, 1))
    else:
        must_be, are_right = "at least 0", np.isfinite(weights) & (weights >= 0)
    are_right &= weights.any(axis=1, keepdims=True)
    must_be = f"{must_be}, and not 0 in a whole row"
    _check_rows(found.where, "labels", must_be, are_right, weights)
    if kind != SEVERAL and rule == "majority":
        weights = weights == weights.max(axis=1, keepdims=True)
    rows, columns = np.nonzero(weights)
    shares = weights[rows, columns].astype(np.float64)
    return Truths.of_entries(rows, columns, shares, kind), given


def _check_rows(
    where: str, name: str, must_be: str, are_right: np.ndarray, values: np.ndarray, start: int = 0
) -> None:
    """Refuses an array if some of its values are not right, and names the first of these."""
    if not are_right.all():
        place = tuple(np.argwhere(~are_right)[0].tolist())
        value = repr(values[place]) if isinstance(values[place], str) else values[place]
        but = f"row {start + place[0]}, counted from 0, has {value}"
        raise UserError(field=f"{where}: {name}", must_be=must_be, but=but)


def _names(file: Path, field: str) -> list[str]:
    """The names of the arrays of an .npz file."""
    with errors_told(f"{field} {file} cannot be read"), ZipFile(file) as opened:
        return [name.removesuffix(".npy") for name in opened.namelist()]
