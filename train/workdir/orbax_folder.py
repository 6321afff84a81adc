"""A folder of checkpoints in orbax's layout, without behaviour of orbax that harms a run.

Orbax logs what it raises, waits for folders that cannot be made, continues writing after a failure,
takes some paths for cloud paths, reads files without an end, and raises errors of any type.
Only this module and `checkpoint` import it.
"""

import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from absl import logging as absl_logging
from orbax.checkpoint import checkpoint_managers

from train.devices import processes
from train.foundation import files, full_disks, interruption, json_files
from train.foundation.errors import UserError, first_line, let_through

# The folders of a checkpoint.
STATE = "state"
PROGRESS = "progress"
_ORBAX = Path(ocp.__file__).parent
# The storage treats these as the schemes of clouds.
_CLOUDS = ("gs", "s3", "az", "hf")
# The largest file that describes the numbers of a checkpoint, in bytes.
_LARGEST = json_files.LARGEST


def open_manager(
    directory: Path,
    policy: checkpoint_managers.PreservationPolicy,
    write_checksums: Callable[[], None],
) -> ocp.CheckpointManager:
    """Orbax's manager of the checkpoints in a folder, which is made if it does not exist.

    Args:
        directory: the folder, an absolute path.
        policy: which checkpoints are kept.
        write_checksums: called on one process before the temporary folder of a save is renamed.

    Raises:
        UserError: the folder is a file, or has a name that the storage takes for another.
        OSError: what is in the folder cannot be read.
    """
    _silence_log()
    check_path(directory)
    _check_content(directory)
    # Orbax asks for the devices. An error about devices is not about the checkpoints.
    jax.devices()
    try:
        manager = ocp.CheckpointManager(
            directory,
            item_handlers={
                STATE: ocp.StandardCheckpointHandler(),
                PROGRESS: ocp.JsonCheckpointHandler(),
            },
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policy,
                async_options=ocp.AsyncOptions(
                    post_finalization_callback=write_checksums,
                    # Orbax's threads wait for a folder that another one makes, and wait for
                    # five minutes if it cannot be made. The process does not end before them.
                    create_directories_asynchronously=False,
                ),
            ),
        )
    except OSError:
        raise
    except Exception as error:  # A damaged description can make orbax raise any error.
        pass_on(error)
        raise OSError(
            f"the checkpoints in {directory} cannot be read: {first_line(error)}"
        ) from error
    _ignore_closed_event_loops()
    return manager


def pass_on(error: Exception) -> None:
    """Raises errors that no checkpoint is to blame for: limits of the system, and lost peers."""
    let_through(error)
    if processes.is_of_lost_peer(error):
        raise error


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raises the errors of a damaged checkpoint as OSError: orbax's can be any."""
    try:
        yield
    except Exception as error:
        _drop_coroutines(error)
        pass_on(error)
        if isinstance(error, OSError | UserError):
            raise
        _check_can_be_listed(folder)
        raise OSError(f"{folder} cannot be read: {first_line(error)}") from error


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Raises orbax's errors as OSError: a full disk, for example, is a ValueError of orbax."""
    try:
        with interruption.allow_time():
            yield
    except (OSError, ValueError, RuntimeError) as error:
        if processes.is_of_lost_peer(error):
            raise
        reason = full_disks.reason(error, directory) or error
        raise OSError(f"cannot save a checkpoint in {directory}: {reason}") from error


def check_path(directory: Path) -> None:
    """Refuses a folder that cannot hold checkpoints; the background thread would fail later.

    Raises:
        UserError: it is a file, or has a name that the storage takes for another.
    """
    directory = directory.absolute()
    # The functions of os.path do not raise for any name. Other code reports where a folder cannot
    # be.
    if os.path.exists(directory) and not os.path.isdir(directory):  # noqa: PTH110, PTH112
        raise UserError(f"{directory} must be a folder, for checkpoints; it is not")
    # Tensorstore takes a backslash for a slash, and only names in UTF-8.
    if "\\" in str(directory) or any("\ud800" <= letter <= "\udfff" for letter in str(directory)):
        raise UserError(
            f"{directory} cannot hold checkpoints: its path must be in UTF-8, without a backslash"
        )
    # The storage takes /gs/name and gs:/name for a bucket.
    within = {f"{cloud}:" for cloud in _CLOUDS}
    if directory.parts[1] in _CLOUDS or within.intersection(directory.parts):
        raise UserError(
            f"{directory} cannot hold checkpoints: it must be a folder of this machine, or one "
            "that is mounted. Its path must not have gs:, s3:, az: or hf: in it, nor start with "
            "/gs, /s3, /az or /hf"
        )


def _drop_coroutines(error: BaseException | None) -> None:
    """Deletes what the frames of an error hold: coroutines that orbax never awaits.

    Python would warn of each of them later, on standard error and in two lines.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__


def _check_can_be_listed(folder: Path) -> None:
    """Raises `PermissionError` if a folder in a checkpoint cannot be listed.

    Orbax treats such a folder as empty. A good checkpoint would then seem damaged.
    """

    def refuse(error: OSError) -> None:
        if isinstance(error, PermissionError):
            raise error

    for _ in os.walk(folder, onerror=refuse):
        pass


def _check_content(directory: Path) -> None:
    """Refuses what the storage would wait for or read for ever: pipes, devices, huge JSON."""
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            if path.exists() and not path.is_file():
                raise OSError(f"{path} {files.why_no_file(path)}")
            # Numbers are in folders of this name, and are read as far as they are needed.
            if path.exists() and path.parent.name != "d" and path.stat().st_size > _LARGEST:
                raise OSError(f"{path} has more than {_LARGEST:,} bytes, and is not read")


@functools.cache
def _silence_log() -> None:
    """Leaves orbax's messages out of the log, once in a process: its errors are raised as well."""
    absl_logging.get_absl_logger().addFilter(
        lambda record: not Path(record.pathname).is_relative_to(_ORBAX)
    )


@functools.cache
def _ignore_closed_event_loops() -> None:
    """Leaves out the tracebacks of writes that continue after another write of the save failed.

    Orbax writes the arrays of a save concurrently. When one write fails, on a full disk for
    example, orbax raises its error and closes the event loop; each of the others then fails in a
    thread of tensorstore, in which no caller can catch it, and Python prints its traceback. That
    can be after the checkpointer is closed, so this lasts as long as the process.
    """
    hook = sys.unraisablehook

    def filtered(unraisable: "sys.UnraisableHookArgs") -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = filtered
