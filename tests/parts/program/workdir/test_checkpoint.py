"""Checkpoints: bit for bit, which are kept, and what is done about incomplete ones."""

import logging
import resource
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct

from train.foundation import checksums
from train.foundation.errors import UserError
from train.workdir.checkpoint import Checkpointer


@struct.dataclass
class State:
    step: Any
    params: Any
    batch_stats: Any
    opt_state: Any


@pytest.fixture
def state(rng):
    params = {
        "Dense_0": {
            "kernel": rng.normal(size=(3, 4)).astype(np.float32),
            "bias": np.array([np.nan, np.inf, -0.0, 1e-45], np.float32),
        },
        "scale": rng.normal(size=5).astype(jnp.bfloat16),
    }
    schedule = optax.piecewise_constant_schedule(0.1, {2: 0.1})
    optimizer = optax.chain(
        optax.add_decayed_weights(1e-4), optax.sgd(schedule, momentum=0.9, nesterov=True)
    )
    # `device_get` gives 0-dimensional arrays and NumPy scalars both.
    return State(
        step=np.int32(7),
        params=params,
        batch_stats={"BatchNorm_0": {"mean": rng.normal(size=(4,)).astype(np.float32)}, "none": {}},
        opt_state=jax.device_get(optimizer.init(jax.tree.map(jnp.asarray, params))),
    )


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "checkpoints"


def zeros_like(state):
    return jax.tree.map(np.zeros_like, state)


def at(state, step):
    return state.replace(step=np.int32(step))


def assert_same_bits(restored, expected):
    assert jax.tree.structure(restored) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def steps(directory):
    return sorted(int(path.name) for path in directory.iterdir())


def fill(directory, state, best_steps):
    """Saves step 1, 2, ... with these best steps so far."""
    with Checkpointer(directory) as checkpointer:
        for step, best_step in enumerate(best_steps, start=1):
            checkpointer.save(step, at(state, step), {"best_step": best_step})


def test_a_state_comes_back_bit_for_bit_after_reopening(directory, state):
    progress = {"best_step": 7, "epoch_seconds": [0.1, 1 / 3], "best_value": float("-inf")}
    expected = jax.tree.map(np.copy, state)
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(7, state, progress)
        # The caller continues to use its arrays while the save is in flight.
        state.params["Dense_0"]["kernel"][:] = 0
        restored, restored_progress = checkpointer.restore_latest(zeros_like(state))
    assert_same_bits(restored, expected)
    assert restored_progress == progress
    with Checkpointer(directory) as checkpointer:
        restored, restored_progress = checkpointer.restore_latest(zeros_like(state))
        assert_same_bits(restored, expected)
        assert restored_progress == progress
        assert_same_bits(checkpointer.restore(7, zeros_like(state)), expected)


@pytest.mark.parametrize(
    ("best_steps", "kept"),
    [
        ([1], [1]),
        ([0, 0, 0], [2, 3]),
        ([1, 1, 1, 1], [1, 3, 4]),
        ([1, 2, 3], [2, 3]),
        # A run that resumes from step 4 needs step 2; from step 5 it does not.
        ([1, 2, 2, 2, 5], [2, 4, 5]),
        ([1, 2, 2, 2, 5, 5], [5, 6]),
    ],
)
def test_the_two_latest_and_their_best_are_kept(directory, state, best_steps, kept):
    fill(directory, state, best_steps)
    assert steps(directory) == kept
    with Checkpointer(directory) as checkpointer:
        for step in kept:
            assert checkpointer.restore(step, state).step == step
        # A reopened one continues in the same way.
        last, best = len(best_steps), best_steps[-1]
        checkpointer.save(last + 1, at(state, last + 1), {"best_step": best})
    assert steps(directory) == sorted({best, last, last + 1} - {0})


def test_a_step_saved_again_is_left_alone_and_an_earlier_one_refused(directory, state):
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(2, state, {"best_step": 2, "seconds": (0.5,)})
        checkpointer.save(2, zeros_like(state), {"best_step": 2, "seconds": (0.5,)})
        with pytest.raises(ValueError, match=r"the same progress; got 2$"):
            checkpointer.save(2, state, {"best_step": 0, "seconds": (0.5,)})
        # In silence it would be skipped.
        with pytest.raises(ValueError, match=r"after the latest checkpoint's, 2 in .*; got 1$"):
            checkpointer.save(1, state, {"best_step": 1})
        assert_same_bits(checkpointer.restore(2, state), jax.tree.map(np.asarray, state))


def data_files(folder):
    return [file for file in (folder / "state").rglob("*") if file.is_file()]


def truncate(folder):
    for file in data_files(folder):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lose_the_checksums(folder):
    (folder / "checksums.json").unlink()


def lose_the_progress(folder):
    shutil.rmtree(folder / "progress")


@pytest.mark.parametrize("damage", [truncate, lose_the_checksums, lose_the_progress])
def test_a_torn_checkpoint_is_passed_over_with_one_line(directory, state, caplog, capfd, damage):
    fill(directory, state, [1, 1, 1, 4])
    damage(directory / "4")
    with Checkpointer(directory) as checkpointer:
        restored, progress = checkpointer.restore_latest(zeros_like(state))
        assert_same_bits(restored, jax.tree.map(np.asarray, at(state, 3)))
        assert progress == {"best_step": 1}
        assert checkpointer.latest() == directory / "3"
        (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert f"skipped the checkpoint {directory / '4'}: " in record.message
        assert "\n" not in record.message
        # It is not in the way when the run comes to its step again, however often it was found.
        assert checkpointer.restore_latest(state)[0].step == 3
        checkpointer.save(4, at(state, 4), {"best_step": 4})
        assert checkpointer.restore_latest(state)[0].step == 4
    assert steps(directory) == [1, 3, 4]
    assert "Traceback" not in capfd.readouterr().err


def test_a_damaged_description_of_a_checkpoint_is_an_error_of_the_system(directory, state):
    fill(directory, state, [1])
    (directory / "1" / "_CHECKPOINT_METADATA").write_bytes(b"[]")
    with pytest.raises(OSError, match=str(directory)):
        Checkpointer(directory)


@pytest.mark.parametrize("damage", [truncate, shutil.rmtree])
def test_a_checkpoint_whose_best_is_not_whole_is_passed_over(directory, state, caplog, damage):
    fill(directory, state, [0, 0, 2, 4])
    assert steps(directory) == [2, 3, 4]
    damage(directory / "2")
    with Checkpointer(directory) as checkpointer:
        assert checkpointer.restore_latest(state)[0].step == 4
        damage(directory / "4")
        # The run would end without the parameters of step 2, which may be the selected ones.
        assert checkpointer.restore_latest(state) is None
        assert checkpointer.latest() is None
        messages = [record.message for record in caplog.records]
        assert any(f"checkpoint {directory / '3'}: the checkpoint of its best step, 2, is" in
                   message for message in messages)  # fmt: skip
        checkpointer.save(1, at(state, 1), {"best_step": 0})
    assert steps(directory) == [1]


def test_a_checkpoint_of_another_step_is_passed_over_and_deleted(directory, state, caplog):
    with Checkpointer(directory) as checkpointer:
        for step in (1, 2):
            progress = {"best_step": 1, "step": step}
            checkpointer.save(step, at(state, step), progress)
    shutil.copytree(directory / "1", directory / "9")
    with Checkpointer(directory) as checkpointer:
        with pytest.raises(OSError, match=r"checkpoints/9 has the checkpoint of step 1$"):
            checkpointer.read_selected()
        restored, progress = checkpointer.restore_latest(zeros_like(state))
        assert_same_bits(restored, at(state, 2))
        assert progress["step"] == 2
        checkpointer.save(3, at(state, 3), {"best_step": 1, "step": 3})
    (record,) = caplog.records
    message = f"skipped the checkpoint {directory}/9: {directory}/9 has the checkpoint of step 1"
    assert record.getMessage() == message
    assert steps(directory) == [1, 2, 3]


def test_a_best_checkpoint_of_another_step_is_not_taken(directory, state):
    with Checkpointer(directory) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, at(state, step), {"best_step": 1, "step": step})
    shutil.rmtree(directory / "1")
    shutil.copytree(directory / "2", directory / "1")
    with Checkpointer(directory) as checkpointer:
        with pytest.raises(OSError, match=r"checkpoints/1 has the checkpoint of step 2$"):
            checkpointer.read_selected()
        with pytest.raises(OSError, match=r"checkpoints/1 has the checkpoint of step 2$"):
            checkpointer.restore(1, zeros_like(state))
        assert checkpointer.restore_latest(zeros_like(state)) is None


def test_a_save_that_was_killed_is_ignored_and_cleared_away(directory, state):
    fill(directory, state, [1])
    half = directory / "2.orbax-checkpoint-tmp"
    shutil.copytree(directory / "1", half)
    with Checkpointer(directory) as checkpointer:
        assert checkpointer.restore_latest(state)[0].step == 1
        # Someone who only reads must not take away what a run is just writing.
        assert half.exists()
        checkpointer.save(2, at(state, 2), {"best_step": 1})
    assert steps(directory) == [1, 2]


def test_a_checkpoint_of_another_shape_dtype_or_structure_is_refused_by_name(directory, state):
    fill(directory, state, [1, 1])
    wider = zeros_like(state)
    wider.params["Dense_0"]["kernel"] = np.zeros((3, 9), np.float32)
    half = zeros_like(state)
    half.params["Dense_0"]["bias"] = np.zeros(4, np.float16)
    deeper = zeros_like(state)
    deeper.params["Dense_1"] = {"kernel": np.zeros((2, 2), np.float32)}
    no_momentum = zeros_like(state).replace(opt_state=())
    with Checkpointer(directory) as checkpointer:
        for like, message in [
            (wider, r"params.Dense_0.kernel is float32\[3, 4\] there and float32\[3, 9\] here$"),
            (half, r"params.Dense_0.bias is float32\[4\] there and float16\[4\] here$"),
            (deeper, r"params.Dense_1.kernel is not there and float32\[2, 2\] here$"),
            (no_momentum, r"opt_state.1.0.trace.scale is bfloat16\[5\] there and not here"),
        ]:  # fmt: skip
            with pytest.raises(UserError, match=message):
                checkpointer.restore_latest(like)
            with pytest.raises(UserError, match=message):
                checkpointer.restore(2, like)
    # It was not taken for a torn one.
    assert steps(directory) == [1, 2]


def test_a_full_disk_is_one_error_that_names_the_directory(directory, state, caplog, rng):
    fill(directory, state, [1])
    # Many arrays: those that are being written when one fails have nothing to add.
    large = state.replace(batch_stats=[rng.normal(size=10_000 + i) for i in range(20)])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpointer = Checkpointer(directory)
    # A file may not grow beyond this; the state of a moment ago fits, the large one does not.
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
    try:
        checkpointer.save(2, large, {"best_step": 2})
        with pytest.raises(
            OSError, match=r"cannot save a checkpoint in \S+/checkpoints: File t\S+ large$"
        ):
            checkpointer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not caplog.records
    with Checkpointer(directory) as checkpointer:
        assert checkpointer.restore_latest(state)[0].step == 1


@pytest.mark.parametrize("path", ["gs:/bucket", "/gs/bucket"])
def test_a_path_that_the_storage_takes_for_a_cloud_is_refused(tmp_path, path):
    with pytest.raises(UserError, match="it must be a folder of this machine"):
        Checkpointer(tmp_path / path / "checkpoints")
    assert list(tmp_path.iterdir()) == []
    assert not Path(path).exists()


def forge(folder, name, content):
    """Replaces a file of a checkpoint, with its checksum."""
    (folder / name).write_bytes(content)
    parts = [folder / "state", folder / "progress"]
    checksums.write(folder, [path for part in parts for path in part.rglob("*") if path.is_file()])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state/_METADATA", b"{}"),
        ("state/_METADATA", b"[" * 100_000),
        ("progress/metadata", b"{}"),
        ("progress/metadata", b'{"best_step": "../1"}'),
    ],
)
def test_a_forged_checkpoint_is_one_line(directory, state, name, content):
    fill(directory, state, [1])
    forge(directory / "1", name, content)
    with Checkpointer(directory) as checkpointer:
        for read in (
            lambda: checkpointer.restore(1, state),
            checkpointer.read_selected,
            lambda: checkpointer.restore_selected({"params": {}, "batch_stats": {}}),
        ):
            with pytest.raises(OSError, match=f"^{directory}/1 cannot be read: ") as caught:
                read()
            assert "\n" not in str(caught.value)
        assert checkpointer.restore_latest(state) is None


def test_a_checkpoint_without_a_checksum_of_each_file_is_not_whole(directory, state):
    fill(directory, state, [1])
    (directory / "1" / checksums.FILE).write_text("{}")
    with Checkpointer(directory) as checkpointer:
        with pytest.raises(OSError, match="1 is damaged: "):
            checkpointer.read_selected()
        assert checkpointer.restore_latest(state) is None
