"""Saves and restores a run; the one file that knows orbax."""

import functools
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging as absl_logging
from orbax.checkpoint import checkpoint_managers

from train.foundation.errors import UserError

PyTree = Any

_ORBAX = Path(ocp.__file__).parent
_STATE = "state"
_PROGRESS = "progress"
_CHECKSUMS = "checksums.json"
# How many differing parameters a message names.
_MOST_NAMED = 5


class Checkpointer:
    """The checkpoints of one run: the two latest, and the best that each of them names.

    Of the two, the older is for the day that the newer is found damaged; a run that goes on from
    either needs the best of that moment until it finds a better one. They are often the same.

    A save is written in the background into a temporary folder and renamed when it is whole; the
    checkpoints that it makes superfluous are deleted after that. Each has the SHA-256 of its files
    beside them, because the storage format restores flipped or zeroed bytes without a word.

    One run at a time saves in a directory; others may restore from it.

    Args:
        directory: where the checkpoints are; made if it is not there.
    """

    def __init__(self, directory: Path) -> None:
        _keep_orbax_quiet()
        self._directory = directory.absolute()
        self._policy = _TwoLatestAndTheirBest()
        self._torn: set[int] = set()
        self._is_clean = False
        self._step_in_flight = 0
        self._manager = ocp.CheckpointManager(
            self._directory,
            item_handlers={
                _STATE: ocp.StandardCheckpointHandler(),
                _PROGRESS: ocp.JsonCheckpointHandler(),
            },
            options=ocp.CheckpointManagerOptions(
                preservation_policy=self._policy,
                async_options=ocp.AsyncOptions(
                    # Called on one process, when the files are written and not yet renamed.
                    post_finalization_callback=self._write_checksums
                ),
            ),
        )

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def save(self, step: int, state: PyTree, progress: dict[str, Any]) -> None:
        """Starts to save a step; what is not to be kept is deleted once it is whole.

        The latest step with the progress that it has is left as it is: a step has one state.

        Args:
            step: the steps that the run has made.
            state: a pytree of NumPy arrays; they may be changed after the call.
            progress: what JSON can hold; `progress["best_step"]` is the best step, to be kept as
                long as this one: an earlier one, this one, or 0 for none.

        Raises:
            ValueError: the step is before the latest, or the latest with other progress.
            OSError: this or the previous checkpoint could not be written.
        """
        with self._writing():
            self._manager.wait_until_finished()
            self._remove_leftovers()
        latest = self._manager.latest_step()
        if latest is not None and step <= latest:
            if step == latest and _to_json(self._read_progress(step)) == _to_json(progress):
                return
            raise ValueError(
                f"step must be after the latest checkpoint's, {latest} in {self._directory}, or "
                f"that one with the same progress; got {step}"
            )
        best_of = {step: progress["best_step"]}
        if latest is not None:
            known = self._policy.best_of.get(latest)
            best_of[latest] = self._read_progress(latest)["best_step"] if known is None else known
        self._policy.best_of = best_of
        self._step_in_flight = step
        with self._writing():
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    **{
                        _STATE: ocp.args.StandardSave(jax.tree.map(np.asarray, state)),
                        _PROGRESS: ocp.args.JsonSave(progress),
                    }
                ),
            )

    def restore_latest(self, like: PyTree) -> tuple[PyTree, dict[str, Any]] | None:
        """The newest checkpoint that is whole, as state and progress; None if there is none.

        A checkpoint that is not whole, or whose best is not, is passed over with a warning, and
        deleted by the next save.

        Args:
            like: a state of the structure, shapes and dtypes to restore.

        Raises:
            UserError: the checkpoint is of another structure, other shapes or other dtypes.
        """
        with self._writing():
            self._manager.wait_until_finished()
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                self._check_files(step)
                progress = self._read_progress(step)
                self._check_best(step, progress["best_step"])
                state = self._restore(step, like)
            except UserError:
                raise
            except Exception as error:  # Whatever a broken file makes orbax raise.
                self._torn.add(step)
                absl_logging.warning(
                    "skipped the checkpoint %s: %s",
                    self._directory / str(step),
                    " ".join(str(error).split())[:200],
                )
            else:
                return state, progress
        return None

    def restore(self, step: int, like: PyTree) -> PyTree:
        """The state of one step.

        Args:
            step: a step that has a checkpoint: one of the two latest, or their best.
            like: a state of the structure, shapes and dtypes to restore.

        Raises:
            UserError: the checkpoint is of another structure, other shapes or other dtypes.
            OSError: there is no such checkpoint, or it is not whole.
        """
        with self._writing():
            self._manager.wait_until_finished()
        if step not in self._manager.all_steps():
            raise FileNotFoundError(f"there is no checkpoint of step {step} in {self._directory}")
        self._check_files(step)
        return self._restore(step, like)

    def restore_selected(self, like: PyTree) -> PyTree:
        """The parameters and statistics of the best step that the newest checkpoint names.

        Args:
            like: `{"params", "batch_stats"}` of the structure, shapes and dtypes to restore; they
                are the moving averages where the run has any.

        Raises:
            UserError: they are of another structure, other shapes or other dtypes.
            OSError: there is no checkpoint, or one of the two is not whole.
        """
        latest = self._manager.latest_step()
        if latest is None:
            raise FileNotFoundError(f"there is no checkpoint in {self._directory}")
        self._check_files(latest)
        step = self._read_progress(latest)["best_step"]
        self._check_files(step)
        # As it was saved: the state has more than is asked for, the optimiser's for one.
        args = ocp.args.Composite(**{_STATE: ocp.args.StandardRestore()})
        state = self._manager.restore(step, args=args)[_STATE]
        averages = state.get("averages")
        found = {name: (averages or state).get(name, {}) for name in like}
        self._check_same(step, _descriptions(found), _descriptions(like))
        return found

    def latest(self) -> Path | None:
        """Where the newest checkpoint is, once it is whole; None if there is none."""
        with self._writing():
            self._manager.wait_until_finished()
        steps = set(self._manager.all_steps()) - self._torn
        return self._directory / str(max(steps)) if steps else None

    def close(self) -> None:
        """Waits for the save in flight.

        Raises:
            OSError: it could not be written.
        """
        with self._writing():
            try:
                self._manager.wait_until_finished()
            finally:
                # Each failure is raised once, so that this closes even after one.
                self._manager.close()

    def _restore(self, step: int, like: PyTree) -> PyTree:
        like = jax.tree.map(np.asarray, like)
        self._check_fits(step, like)
        args = ocp.args.Composite(**{_STATE: ocp.args.StandardRestore(like)})
        return self._manager.restore(step, args=args)[_STATE]

    def _read_progress(self, step: int) -> dict[str, Any]:
        args = ocp.args.Composite(**{_PROGRESS: ocp.args.JsonRestore()})
        progress: dict[str, Any] = self._manager.restore(step, args=args)[_PROGRESS]
        return progress

    def _check_fits(self, step: int, like: PyTree) -> None:
        """Refuses a checkpoint that is not like `like`: orbax would not name the parameter."""
        saved = _descriptions(self._manager.item_metadata(step)[_STATE].tree)
        self._check_same(step, saved, _descriptions(like))

    def _check_same(self, step: int, saved: dict[str, str], wanted: dict[str, str]) -> None:
        differences = [
            f"{name} is {saved.get(name, 'not')} there and {wanted.get(name, 'not')} here"
            for name in sorted(saved.keys() | wanted.keys())
            if saved.get(name) != wanted.get(name)
        ]
        if differences:
            more = len(differences) - _MOST_NAMED
            raise UserError(
                f"the checkpoint {self._directory / str(step)} does not fit this run: "
                + "; ".join(differences[:_MOST_NAMED])
                + (f"; and {more} more" if more > 0 else "")
            )

    def _write_checksums(self) -> None:
        (folder,) = self._directory.glob(f"{self._step_in_flight}{ocp.utils.TMP_DIR_SUFFIX}*")
        checksums = {
            str(file.relative_to(folder)): _sha256(file)
            # Not what lies beside the two: orbax writes its metadata there once more, later.
            for item in (_STATE, _PROGRESS)
            for file in sorted((folder / item).rglob("*"))
            if file.is_file()
        }
        with (folder / _CHECKSUMS).open("w") as stream:
            stream.write(_to_json(checksums))
            stream.flush()
            os.fsync(stream.fileno())

    def _check_files(self, step: int) -> None:
        """Refuses a checkpoint whose files are not those that were written."""
        folder = self._directory / str(step)
        checksums = json.loads((folder / _CHECKSUMS).read_text())
        for name, checksum in checksums.items():
            if _sha256(folder / name) != checksum:
                raise OSError(f"{folder / name} is not what was written")

    def _check_best(self, step: int, best_step: int) -> None:
        """Refuses a checkpoint that names a best step which the run could not return to."""
        if best_step in (0, step):
            return
        try:
            self._check_files(best_step)
        except Exception as error:
            raise OSError(f"that of its best step, {best_step}, is not whole: {error}") from error

    def _remove_leftovers(self) -> None:
        """Deletes torn checkpoints, and what saves that were killed have left, before a save."""
        while self._torn:
            self._manager.delete(self._torn.pop())
        if not self._is_clean and jax.process_index() == 0:
            for folder in self._directory.glob(f"*{ocp.utils.TMP_DIR_SUFFIX}*"):
                shutil.rmtree(folder)
        self._is_clean = True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Orbax raises what failed in the background, a full disk for one, as a ValueError."""
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            raise OSError(f"cannot save a checkpoint in {self._directory}: {error}") from error


class _TwoLatestAndTheirBest(checkpoint_managers.PreservationPolicy):
    """Keeps the two latest steps and the best steps that they name."""

    def __init__(self) -> None:
        self.best_of: dict[int, int] = {}

    def should_preserve(
        self,
        checkpoints: Sequence[checkpoint_managers.PolicyCheckpointInfo],
        *,
        context: checkpoint_managers.PreservationContext,
    ) -> Sequence[bool]:
        del context
        kept = {*self.best_of, *self.best_of.values()}
        return [checkpoint.step in kept for checkpoint in checkpoints]


@functools.cache
def _keep_orbax_quiet() -> None:
    """Once in a process: what matters of orbax's words it raises too; the rest is its diary.

    When one of the files that it reads or writes at once fails, the others find its event loop
    closed, and each would print a traceback of that beside the one error.
    """
    absl_logging.get_absl_logger().addFilter(
        lambda record: not Path(record.pathname).is_relative_to(_ORBAX)
    )
    hook = sys.unraisablehook

    def quieter_hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    sys.unraisablehook = quieter_hook


def _descriptions(tree: PyTree) -> dict[str, str]:
    """Each leaf's dtype and shape by its name: `{"params.Dense_0.bias": "float32[10]"}`."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (
            f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        )
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_to_json: Callable[[Any], str] = json.JSONEncoder(sort_keys=True).encode
