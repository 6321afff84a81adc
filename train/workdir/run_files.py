"""The names of the files that a run writes, and functions that read them."""

import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from train.data.classes import Classes
from train.foundation import files, folder_lock, json_files
from train.foundation.errors import UserError
from train.foundation.fields import Field
from train.workdir import metrics_file, run_shapes
from train.workdir.facts import Facts, digest_from_plain

if TYPE_CHECKING:
    from train.data.look import Seen

CONFIG = "config.json"
CLASSES = "classes.json"
# For a user's own files: what is only known from them. For a run that does not normalize with the
# numbers of its data set: its numbers.
DATA = "data.json"
# For a user's own images: what a look at each of them has found.
SEEN = "seen_images.json"
METRICS = "metrics.jsonl"
# Images that look like images of other splits; missing if there are none.
NEAR_DUPLICATES = "near_duplicates.csv"
RESULTS = "results.json"
CURVES = "learning_curves.png"
EVENTS = "tensorboard"
CHECKPOINTS = "checkpoints"
# Rules of sets with the limits that were fitted for the finished run.
SETS = "sets.json"
# Features of training examples, which outlier scores are distances to.
KNOWN_FEATURES = "known_features.npz"

# All files that a run keeps for itself, except the files that `outcomes` names.
_OWN = frozenset(
    {
        *(CONFIG, CLASSES, DATA, SEEN, METRICS, RESULTS, CURVES, EVENTS, CHECKPOINTS),
        *(SETS, KNOWN_FEATURES, NEAR_DUPLICATES, folder_lock.LOCK),
    }
)

# In the file of the results, beside them: the SHA-256 of files that do not contain a checksum, or
# that only some runs have.
_DIGESTS = "digests"

_Content = TypeVar("_Content")


def present(workdir: Path) -> dict[str, Path]:
    """The files of a run that exist, by their descriptions."""
    names = {
        "results": RESULTS,
        "learning curves": CURVES,
        "metrics": METRICS,
        "configuration": CONFIG,
        "classes": CLASSES,
        "TensorBoard": EVENTS,
        "checkpoints": CHECKPOINTS,
        "test outcomes": outcomes(workdir, "test").name,
        "balanced test outcomes": outcomes(workdir, "balanced_test").name,
    }
    return {what: workdir / name for what, name in names.items() if (workdir / name).exists()}


def is_run(folder: Path) -> bool:
    """Whether a folder has the files of a run, by their names."""
    begun = (CLASSES, METRICS, RESULTS)
    return (folder / CONFIG).exists() and any((folder / name).exists() for name in begun)


def is_of_a_run(name: str) -> bool:
    """Whether a file or folder of that name in the folder of a run is the run's own."""
    return name in _OWN or (name.startswith("outcomes_") and name.endswith(".npz"))


def check_places(workdir: Path) -> None:
    """Refuses a folder at the path of a file that a run writes, and a file at the path of a folder.

    The run would otherwise fail after hours, when it writes its last files, such as the curves.

    Raises:
        UserError: there is such a file or folder.
    """
    tested = (outcomes(workdir, split).name for split in ("test", "balanced_test"))
    own = (CLASSES, DATA, SEEN, METRICS, NEAR_DUPLICATES, RESULTS, CURVES)
    for name in (*own, *tested):
        path = workdir / name
        # A link to a folder is replaced, or refused when it is opened.
        if path.is_dir() and not path.is_symlink():
            raise UserError(f"{path} must be a file, to be written to; it is a folder")
    for name, what in ((CHECKPOINTS, "checkpoints"), (EVENTS, "TensorBoard")):
        path = workdir / name
        if os.path.lexists(path) and not path.is_dir():
            raise UserError(f"{path} must be a folder, for {what}; it is not")


def has_checkpoints(workdir: Path) -> bool:
    """Whether the folder of the checkpoints has anything in it."""
    folder = workdir / CHECKPOINTS
    return folder.is_dir() and any(folder.iterdir())


def latest_step(workdir: Path) -> int:
    """The steps of the newest checkpoint; 0 if there is none."""
    steps = (folder.name for folder in (workdir / CHECKPOINTS).glob("*"))
    numbers = (int(step) for step in steps if step.isascii() and step.isdecimal())
    return max(numbers, default=0)


def list_selected_files(workdir: Path) -> list[Path]:
    """The files that are valid only for the selected parameters; the results come first."""
    candidates = [
        workdir / RESULTS,
        *workdir.glob("evaluation_*.json"),
        *workdir.glob("outcomes_*.npz"),
        workdir / SETS,
        workdir / KNOWN_FEATURES,
    ]
    return [file for file in candidates if file.exists()]


def evaluation(workdir: Path, name: str) -> Path:
    """The file in a workdir with the evaluation of a split, or of new data as "of_NAME"."""
    return workdir / f"evaluation_{name}.json"


def outcomes(workdir: Path, split: str) -> Path:
    """The file in a workdir with the outcomes of a test split."""
    return workdir / f"outcomes_{split}.npz"


def write_results(
    workdir: Path, results: Mapping[str, Any], digests: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Writes the results, with which the run in a workdir is finished.

    Args:
        workdir: the folder of the run, which has its classes.
        results: what is written.
        digests: the SHA-256 of other files of the run, which do not contain a checksum.
    """
    kept = [workdir / CLASSES, *filter(Path.exists, [workdir / DATA])]
    known = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
    content = json_files.sealed({**results, _DIGESTS: {**known, **digests}}, indent=2)
    files.write_whole(workdir / RESULTS, content)


def read_config(workdir: Path) -> dict[str, Any] | None:
    """The configuration of the run in a workdir; None if there is none.

    Raises:
        UserError: the file is not a configuration.
    """
    path = workdir / CONFIG
    if not path.exists():
        return None
    config: dict[str, Any] = json_files.read(path, run_shapes.CONFIG, "the configuration of a run")
    return config


def read_classes(workdir: Path) -> Classes:
    """The classes of the run in a workdir.

    Raises:
        UserError: there is no such file, or it is not what a run writes.
    """
    path, what = workdir / CLASSES, "the classes of a run"
    try:
        plain = json_files.read(path, run_shapes.CLASSES, what)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: it has the classes of the run") from error
    _check_digest(path)
    try:
        return Classes.from_plain(plain)
    except ValueError as error:
        raise UserError(f"{path} is not {what}: {error}") from error


def read_facts(workdir: Path, classes: Classes, image_shape: tuple[int, ...] | None) -> Facts:
    """What the run in a workdir stored about its data set.

    Args:
        workdir: the folder of the run.
        classes: its classes.
        image_shape: the shape of its images or features, if the configuration determines it.

    Raises:
        UserError: the file is missing, or is not what a run writes.
    """
    path = workdir / DATA
    # Without the file, a run that has its own normalization would be read with another one.
    if not path.exists() and image_shape is not None and _digest_in_results(path) is None:
        return Facts(classes, image_shape)
    try:
        return _read_data(workdir, functools.partial(Facts.from_plain, classes))
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing: it describes the data that the run was trained on"
        ) from error


def read_digest(workdir: Path) -> str | None:
    """The digest of the files that the run in a workdir was trained on; None if it kept none.

    Raises:
        UserError: the file is not what a run writes.
    """
    try:
        return _read_data(workdir, digest_from_plain)
    except FileNotFoundError:
        return None


def read_seen(workdir: Path) -> "Seen | None":
    """What the run in a workdir has seen of its images; None if it did not keep it.

    Raises:
        UserError: the file is not what a run writes.
    """
    # Commands import this module before they need to read images.
    from train.data.look import Seen  # noqa: PLC0415

    path = workdir / SEEN
    try:
        return Seen.from_plain(json_files.read(path, run_shapes.SEEN, "what a run has seen"))
    except FileNotFoundError:
        return None
    except (UserError, ValueError) as error:
        raise UserError(
            f"{path} is damaged ({error}): delete it, and the images are looked at again"
        ) from error


def read_results(workdir: Path) -> dict[str, Any] | None:
    """The results of the finished run in a workdir; None if none can be read."""
    try:
        return _results(workdir, run_shapes.RESULTS)
    except (OSError, UserError):
        return None


def read_whole_results(workdir: Path) -> dict[str, Any] | None:
    """The same, but None if they lack something that is shown of a finished run."""
    found = read_results(workdir)
    return None if found is None or run_shapes.WHOLE_RESULTS(found) is not None else found


def why_no_results(workdir: Path, *, whole: bool = False) -> str | None:
    """Why there are no results in a workdir, as a message; None if there is no file of them.

    Args:
        workdir: the folder of the run.
        whole: whether results that lack something that is shown of a finished run do not count.
    """
    try:
        _results(workdir, run_shapes.RESULTS)
        if whole:
            _results(workdir, run_shapes.WHOLE_RESULTS)
    except FileNotFoundError:
        return None
    except (OSError, UserError) as error:
        return str(error)
    return None


def _results(workdir: Path, shape: Field) -> dict[str, Any]:
    found: dict[str, Any] = json_files.read(workdir / RESULTS, shape, "the results of a run")
    found.pop(_DIGESTS, None)
    return found


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """The lines of the metrics of the run in a workdir.

    Raises:
        UserError: there is no such file, or the file of a finished run is not what it wrote.
    """
    path = workdir / METRICS
    if not path.is_file():
        raise UserError(f"there is no {path}")
    _check_digest(path)
    return metrics_file.read(path)


def _check_digest(path: Path) -> None:
    """Refuses a file that has changed since the results of its run were written."""
    known = _digest_in_results(path)
    if known not in (None, hashlib.sha256(json_files.read_bytes(path)).hexdigest()):
        raise UserError(
            f"{path} is not what the run wrote: it was changed or damaged since, for {RESULTS} has "
            "another digest of it"
        )


def _digest_in_results(path: Path) -> str | None:
    """The digest that a file had when the results of its run were written, if they have one."""
    try:
        results = json_files.read(path.with_name(RESULTS), run_shapes.RESULTS, "")
    except (OSError, UserError):
        return None  # The run is not finished. Damaged results are reported when they are read.
    digest: str | None = results.get(_DIGESTS, {}).get(path.name)
    return digest


def _read_data(workdir: Path, from_plain: Callable[[Any], _Content]) -> _Content:
    path, what = workdir / DATA, "what a run keeps of its data"
    plain = json_files.read(path, run_shapes.DATA, what)
    try:
        return from_plain(plain)
    except ValueError as error:
        raise UserError(f"{path} is not {what}: {error}") from error
