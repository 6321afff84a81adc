r"""The group of each image, such as the plant that several photographs show, by a grammar.

- A regular expression with one capture, `(obs\d+)_`: what it finds in the path of the image.
- `parent`: the folder of the image.
- `exif:FIELD`: a field of its EXIF data, such as `exif:ImageUniqueID`.
- `burst:SECONDS`: photographs of one folder and one camera, each taken at most SECONDS after the
  one before it.
- `near_duplicates`: images that look alike; see `near_duplicates`.
"""

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TypeVar

import numpy as np
from absl import logging

from train.configuration.datasets import HOW_GROUPS_ARE_FOUND
from train.data.own import exif, near_duplicates, thumbnails
from train.data.own.listing import name_groups
from train.foundation import names, reading
from train.foundation.console import make_console
from train.foundation.errors import UserError
from train.foundation.fields import did_you_mean
from train.foundation.progress_bar import make_bar
from train.foundation.spelling import spell

# A regular expression may take longer than the age of the universe for one path.
_MOST_SECONDS = 30.0
_PARENT, _NEAR_DUPLICATES, _EXIF, _BURST = "parent", "near_duplicates", "exif:", "burst:"
# The images that are read before they are wanted.
_AHEAD = 256

_Found = TypeVar("_Found")
# An image as a file, by its index.
Open = Callable[[int], BinaryIO]


def find(
    grammar: str,
    paths: Sequence[str],
    *,
    field: str,
    open_image: Open | None = None,
    may_be_one: bool = False,
) -> tuple[str, ...]:
    """The name of the group of each image: "group X", or "path P" for an image without one.

    Images without a group are counted in a warning; each of them is a group of its own. Names that
    look the same are one; see `names.same_form`.

    Args:
        grammar: how the group is found; see above.
        paths: the paths of the images, with "/" between folders; there are some.
        field: what has the grammar in messages, such as "config.dataset.group" or "--group".
        open_image: opens an image by its index in `paths`, for the grammars that read images; an
            `OSError` leaves the image without a group. None for examples that are not images.
        may_be_one: whether all images may be of one group.

    Raises:
        UserError: the grammar is wrong, no image has a group, all are one group but may not be, or
            the search takes too long.
    """
    found = [names.same_form(name) for name in _find(grammar, paths, field, open_image)]
    number = len(found)
    without = [path for path, name in zip(paths, found, strict=True) if not name]
    if len(without) == number:
        raise UserError(
            field=field,
            must_be="found in the images",
            but=f"'{grammar}' finds a group in none of the {number:,}, such as {paths[0]}",
        )
    if not may_be_one and number > 1 and not without and len(set(found)) == 1:
        raise UserError(
            field=field,
            must_be="different between images",
            but=f"'{grammar}' makes all {number:,} images one group, {found[0]!r}",
        )
    if without:
        logging.warning(
            "%s: %r finds no group in %s of %s images, such as %s; each is a group of its own",
            spell(field),
            grammar,
            f"{len(without):,}",
            f"{number:,}",
            without[0],
        )
    return name_groups(found, (f"path {path}" for path in paths))


def check(grammar: str, field: str) -> None:
    """Refuses what is not a grammar.

    Raises:
        UserError: it is not one.
    """
    if grammar in (_PARENT, _NEAR_DUPLICATES):
        return
    if grammar.startswith(_EXIF):
        name = grammar.removeprefix(_EXIF)
        if name not in exif.FIELDS:
            hint = did_you_mean(name, exif.FIELDS)
            raise UserError(
                field=field,
                must_be="exif:FIELD with a field of EXIF data, such as exif:ImageUniqueID",
                but=f"there is no field {name!r}{hint}",
            )
        return
    if grammar.startswith(_BURST):
        _seconds(grammar, field)
        return
    _compiled(grammar, field)


def _find(
    grammar: str,
    paths: Sequence[str],
    field: str,
    open_image: Open | None,
) -> Sequence[str]:
    """The group of each image; empty for one without a group."""
    check(grammar, field)
    if grammar == _PARENT:
        return [path.rpartition("/")[0] for path in paths]
    if grammar.startswith(_EXIF):
        name = grammar.removeprefix(_EXIF)
        read = _read_all(
            lambda file: exif.value(file, name), len(paths), grammar, field, open_image
        )
        return [found or "" for found in read]
    if grammar == _NEAR_DUPLICATES:
        copies = _read_all(thumbnails.make, len(paths), grammar, field, open_image)
        return _alike(paths, copies)
    if grammar.startswith(_BURST):
        taken = _read_all(exif.taken, len(paths), grammar, field, open_image)
        return bursts(paths, taken, _seconds(grammar, field))
    return _captured(_compiled(grammar, field), paths, field)


def bursts(paths: Sequence[str], taken: Sequence[exif.Taken | None], seconds: float) -> list[str]:
    """The burst of each photograph, named by its first one; empty if the time is not known.

    Args:
        paths: the paths of the photographs.
        taken: when and with which camera each was taken; None if that is not known.
        seconds: the longest time between a photograph of a burst and the next.
    """
    found = [""] * len(paths)
    known = sorted(
        (path.rpartition("/")[0], *one, path, index)
        for index, (path, one) in enumerate(zip(paths, taken, strict=True))
        if one is not None
    )
    before: tuple[Any, ...] | None = None
    name = ""
    for one in known:
        folder, camera, time, path, index = one
        is_next = before is not None and before[:2] == (folder, camera)
        if not is_next or before is None or time - before[2] > seconds:
            name = path
        found[index], before = name, one
    return found


def _alike(paths: Sequence[str], copies: Sequence[np.ndarray | None]) -> list[str]:
    """The cluster of near-duplicates of each image, named by its first one; empty if unreadable."""
    clusters = near_duplicates.find(thumbnails.stacked(copies)).clusters(len(paths))
    first: dict[int, str] = {}
    for cluster, path in zip(clusters.tolist(), paths, strict=True):
        first.setdefault(cluster, path)
    return [
        "" if copy is None else first[cluster]
        for cluster, copy in zip(clusters.tolist(), copies, strict=True)
    ]


def _seconds(grammar: str, field: str) -> float:
    given = grammar.removeprefix(_BURST)
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(given)) < float("inf"):
            return seconds
    raise UserError(
        field=field,
        must_be="burst:SECONDS with a number greater than 0, such as burst:5",
        got=given,
    )


def _compiled(grammar: str, field: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(grammar)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(
            field=field,
            must_be=HOW_GROUPS_ARE_FOUND,
            but=f"'{grammar}' is not a regular expression: {error}",
        ) from error
    if pattern.groups != 1:
        several = " ((?:…) groups without a capture)" if pattern.groups else ""
        raise UserError(
            field=field,
            must_be=HOW_GROUPS_ARE_FOUND,
            but=f"'{grammar}' has {pattern.groups or 'no'} captures{several}",
        )
    return pattern


def _captured(pattern: re.Pattern[str], paths: Sequence[str], field: str) -> list[str]:
    found = []
    searched = ""
    try:
        with _bounded():
            for path in paths:
                searched = path
                match = pattern.search(names.same_form(path))
                found.append((match and match[1]) or "")
    except TimeoutError as error:
        raise UserError(
            field=field,
            must_be="a regular expression that is quickly searched for",
            but=f"{pattern.pattern!r} takes more than {_MOST_SECONDS:g} s, at {searched} at last",
            usually="a repetition is repeated, as in (a+)+",
        ) from error
    return found


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Raises `TimeoutError` after `_MOST_SECONDS`, within a search too: `re` looks for signals.

    Only the main thread gets signals; a search in another thread is not bounded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _read_all(
    read: Callable[[BinaryIO], _Found],
    number: int,
    grammar: str,
    field: str,
    open_image: Open | None,
) -> list[_Found | None]:
    """What is read of each image, in several threads; None for one that cannot be opened."""
    if open_image is None:
        raise UserError(
            field=field, must_be="found in the paths, because the data are not images", got=grammar
        )

    def read_one(index: int) -> _Found | None:
        # A name can have a null byte.
        with contextlib.suppress(OSError, ValueError), open_image(index) as file:
            return read(file)
        return None

    read_in_order = reading.in_threads(read_one, range(number), ahead=_AHEAD)
    with make_bar(make_console(stderr=True), before="finding groups", transient=True) as bar:
        return list(bar.track(read_in_order, total=number))
