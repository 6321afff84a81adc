"""Saves and restores the checkpoints of a run with orbax."""

import json
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging as absl_logging
from orbax.checkpoint import checkpoint_managers

from train.foundation import checksums, fields
from train.foundation.errors import UserError
from train.workdir import array_types, orbax_folder
from train.workdir.orbax_folder import PROGRESS, STATE

PyTree = Any

_BEST_STEP = fields.integer(0)


class Checkpointer:
    """The checkpoints of one run: the two latest, and the best checkpoint that each of them names.

    A run continues from the older of the two if the newer one is damaged. It then needs the best
    checkpoint of that moment until it finds a better one. Both often name the same best one.

    A save is written in the background to a temporary folder, which is renamed when it is complete.
    Checkpoints that are no longer needed are deleted after that. Each checkpoint has the checksums
    of its files, because the storage format restores flipped or zeroed bytes without an error.

    Only one run at a time may save to a directory. Others may restore from it.

    Args:
        directory: the folder of the checkpoints; it is made if it does not exist.

    Raises:
        UserError: the path is a file, or has a name that the storage takes for another.
        OSError: its content cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._policy = _TwoLatestAndTheirBest()
        self._damaged: set[int] = set()
        self._is_clean = False
        self._step_in_flight = 0
        self._manager = orbax_folder.open_manager(
            self._directory, self._policy, self._write_checksums
        )

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def save(self, step: int, state: PyTree, progress: dict[str, Any]) -> None:
        """Starts to save a step; once it is saved, checkpoints that are not kept are deleted.

        Saving the latest step again does nothing if its progress is the same.

        Args:
            step: the number of steps that the run has made.
            state: a pytree of NumPy arrays; they may be changed after the call.
            progress: values that JSON can hold. `progress["best_step"]` is the best step, which is
                kept as long as this one: an earlier step, this step, or 0 for none.

        Raises:
            ValueError: the step is before the latest one, or is the latest with other progress.
            OSError: this or the previous checkpoint could not be written.
        """
        with orbax_folder.writing(self._directory):
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
        with orbax_folder.writing(self._directory):
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    **{
                        STATE: ocp.args.StandardSave(jax.tree.map(np.asarray, state)),
                        PROGRESS: ocp.args.JsonSave(progress),
                    }
                ),
            )

    def restore_latest(self, like: PyTree) -> tuple[PyTree, dict[str, Any]] | None:
        """The state and progress of the newest complete checkpoint; None if there is none.

        A checkpoint is skipped with a warning if it or its best checkpoint is damaged; the next
        save deletes it.

        Args:
            like: a state with the structure, shapes and dtypes to restore.

        Raises:
            UserError: the checkpoint has another structure, other shapes or other dtypes.
        """
        with orbax_folder.writing(self._directory):
            self._manager.wait_until_finished()
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                self._check_files(step)
                progress = self._read_progress(step)
                self._check_best(step, progress["best_step"])
                state = self._restore(step, like)
            except (PermissionError, UserError):
                raise
            except Exception as error:  # Orbax can raise anything for a damaged file.
                orbax_folder.pass_on(error)
                self._damaged.add(step)
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
            like: a state with the structure, shapes and dtypes to restore.

        Raises:
            UserError: the checkpoint has another structure, other shapes or other dtypes.
            OSError: there is no such checkpoint, or it is damaged.
        """
        with orbax_folder.writing(self._directory):
            self._manager.wait_until_finished()
        if step not in self._manager.all_steps():
            raise FileNotFoundError(f"there is no checkpoint of step {step} in {self._directory}")
        self._check_files(step)
        return self._restore(step, like)

    def restore_selected(self, like: PyTree) -> PyTree:
        """The parameters and statistics of the best step that the newest checkpoint names.

        They are the moving averages if the run keeps any.

        Args:
            like: `{"params", "batch_stats"}` with the structure, shapes and dtypes to restore.

        Raises:
            UserError: they have another structure, other shapes or other dtypes.
            OSError: there is no checkpoint, or one of the two is damaged.
        """
        step, found = self._read_selected(like)
        self._check_same(step, array_types.describe(found), like)
        return found

    def read_selected(self) -> dict[str, PyTree]:
        """Like `restore_selected`, for any structure, shapes and dtypes.

        Raises:
            OSError: there is no checkpoint, or one of the two is damaged.
        """
        return self._read_selected(("params", "batch_stats"))[1]

    def check_selected(self, epoch: int | None) -> None:
        """Refuses checkpoints whose selected epoch is not the one that the results of the run have.

        A copy of a run may have some files from before its end.

        Args:
            epoch: the epoch that the results have; None if they do not have it.

        Raises:
            OSError: the newest checkpoint has another one, or is damaged.
        """
        latest = self._manager.latest_step()
        found = None if latest is None else self._read_progress(latest).get("best_epoch")
        if None not in (found, epoch) and found != epoch:
            raise OSError(
                f"they are of a run that selected epoch {found}, and its results are of epoch "
                f"{epoch}: copy them together"
            )

    def latest(self) -> Path | None:
        """Waits for the save in flight; the path of the newest checkpoint, or None."""
        with orbax_folder.writing(self._directory):
            self._manager.wait_until_finished()
        steps = set(self._manager.all_steps()) - self._damaged
        return self._directory / str(max(steps)) if steps else None

    def close(self) -> None:
        """Waits for the save in flight.

        Raises:
            OSError: it could not be written.
        """
        with orbax_folder.writing(self._directory):
            try:
                self._manager.wait_until_finished()
            finally:
                # Each failure is raised once, so that this closes even after one.
                self._manager.close()

    def _read_selected(self, names: Collection[str]) -> tuple[int, dict[str, PyTree]]:
        """The selected step, and some of its content."""
        latest = self._manager.latest_step()
        if latest is None:
            raise FileNotFoundError(f"there is no checkpoint in {self._directory}")
        self._check_files(latest)
        step = self._read_progress(latest)["best_step"]
        self._check_files(step)
        # As saved: the state has more than is restored here, such as the optimiser's state.
        args = ocp.args.Composite(**{STATE: ocp.args.StandardRestore()})
        with orbax_folder.reading(self._directory / str(step)):
            state = self._manager.restore(step, args=args)[STATE]
            averages = state.get("averages")
            return step, {name: (averages or state).get(name, {}) for name in names}

    def _restore(self, step: int, like: PyTree) -> PyTree:
        like = jax.tree.map(np.asarray, like)
        with orbax_folder.reading(self._directory / str(step)):
            saved = array_types.describe(self._manager.item_metadata(step)[STATE].tree)
            self._check_same(step, saved, like)
            args = ocp.args.Composite(**{STATE: ocp.args.StandardRestore(like)})
            return self._manager.restore(step, args=args)[STATE]

    def _read_progress(self, step: int) -> dict[str, Any]:
        """The progress of a checkpoint.

        Raises:
            OSError: the file is not a progress, or belongs to another step: the folder was renamed
                or copied.
        """
        args = ocp.args.Composite(**{PROGRESS: ocp.args.JsonRestore()})
        with orbax_folder.reading(self._directory / str(step)):
            progress: dict[str, Any] = self._manager.restore(step, args=args)[PROGRESS]
            if (wrong := _BEST_STEP(progress["best_step"])) is not None:
                raise ValueError(f"its best step must be {wrong}")
        if (saved := progress.get("step", step)) != step:
            raise OSError(f"{self._directory / str(step)} has the checkpoint of step {saved}")
        return progress

    def _check_same(self, step: int, saved: dict[str, str], like: PyTree) -> None:
        """Refuses a checkpoint that is not like `like`; orbax would not name the parameter."""
        differences = array_types.differences(saved, array_types.describe(like))
        if differences:
            folder = self._directory / str(step)
            raise UserError(f"the checkpoint {folder} does not fit this run: {differences}")

    def _write_checksums(self) -> None:
        """Called by orbax on one process, when the files are written and not yet renamed."""
        (folder,) = self._directory.glob(f"{self._step_in_flight}{ocp.utils.TMP_DIR_SUFFIX}*")
        # Without the metadata beside the two, which orbax writes again later.
        found = (file for part in (STATE, PROGRESS) for file in (folder / part).rglob("*"))
        checksums.write(folder, filter(Path.is_file, found))

    def _check_files(self, step: int) -> None:
        """Raises an error unless the files of a checkpoint are the ones written for it."""
        checksums.check(self._directory / str(step), (STATE, PROGRESS))
        self._read_progress(step)

    def _check_best(self, step: int, best_step: int) -> None:
        """Raises `OSError` if the best step that a checkpoint names is damaged."""
        if best_step in (0, step):
            return
        try:
            self._check_files(best_step)
        except Exception as error:
            orbax_folder.pass_on(error)
            raise OSError(
                f"the checkpoint of its best step, {best_step}, is damaged: {error}"
            ) from error

    def _remove_leftovers(self) -> None:
        """Deletes damaged checkpoints, and the temporary folders of saves that were killed."""
        while self._damaged:
            self._manager.delete(self._damaged.pop())
        if not self._is_clean and jax.process_index() == 0:
            for folder in self._directory.glob(f"*{ocp.utils.TMP_DIR_SUFFIX}*"):
                shutil.rmtree(folder)
        self._is_clean = True


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


_to_json: Callable[[Any], str] = json.JSONEncoder(sort_keys=True).encode
