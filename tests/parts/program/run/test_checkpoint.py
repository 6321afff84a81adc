"""Checkpoints: bit for bit, which are kept, and what is said of damaged ones."""

import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train.foundation.errors import UserError
from train.run.checkpoints import Checkpoints, Progress, read_selected
from train.training.state import TrainState


@pytest.fixture
def state(rng):
    params = {
        "Dense_0": {
            "kernel": rng.normal(size=(3, 4)).astype(np.float32),
            "bias": np.array([np.nan, np.inf, -0.0, 1e-45], np.float32),
        },
        "scale": rng.normal(size=5).astype(jnp.bfloat16),
    }
    optimizer = optax.sgd(optax.piecewise_constant_schedule(0.1, {2: 0.1}), momentum=0.9)
    return TrainState(
        step=np.array(7, np.int32),
        params=params,
        batch_stats={"BatchNorm_0": {"mean": rng.normal(size=4).astype(np.float32)}, "none": {}},
        opt_state=jax.device_get(optimizer.init(jax.tree.map(jnp.asarray, params))),
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def zeros_like(state):
    return jax.tree.map(np.zeros_like, state)


def assert_same_bits(restored, expected):
    assert jax.tree.structure(restored) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(expected), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def fill(folder, state, scores):
    """Saves step 1, 2, ... with these scores."""
    with Checkpoints(folder) as checkpoints:
        for step, score in enumerate(scores, start=1):
            saved = state.replace(step=np.array(step, np.int32))
            ranked = None if score is None else (score, -step)
            checkpoints.save(saved, Progress(step=step), ranked)


def test_a_state_comes_back_bit_for_bit(folder, state):
    averages = {"params": state.params, "batch_stats": state.batch_stats}
    for step, kept in ((7, state), (8, state.replace(averages=averages))):
        expected = jax.tree.map(np.copy, kept)
        pending = ({"loss": float("nan"), "accuracy": 1 / 3},)
        progress = Progress(step=step, epoch_seconds=(0.1, 1 / 3), pending=pending)
        with Checkpoints(folder) as checkpoints:
            checkpoints.save(kept, progress, None)
            # The caller continues to use its arrays while the save is in flight.
            kept.params["Dense_0"]["kernel"][:] += 1
        with Checkpoints(folder) as checkpoints:
            restored, found = checkpoints.restore(zeros_like(kept), checkpoints.latest)
        assert_same_bits(restored, expected)
        assert repr(found) == repr(progress)
        params, batch_stats = expected.evaluated
        assert_same_bits(
            read_selected(folder, step), {"params": params, "batch_stats": batch_stats}
        )


@pytest.mark.parametrize(
    ("scores", "kept", "best"),
    [
        ([0.5], [1], 1),
        ([None, None, None], [2, 3], 0),
        ([0.5, 0.4, 0.3, 0.2], [1, 2, 3, 4], 1),
        ([0.5, 0.5, None, 0.6, None, 0.1, None, 0.2], [1, 4, 7, 8], 4),
    ],
)
def test_the_two_latest_and_the_two_best_are_kept(folder, state, scores, kept, best):
    fill(folder, state, scores)
    with Checkpoints(folder) as checkpoints:
        assert (checkpoints.latest, checkpoints.best) == (len(scores), best)
        assert sorted(int(path.name) for path in folder.iterdir()) == kept
        for step in kept:
            assert checkpoints.restore(state, step)[0].step == step


def test_a_flipped_byte_in_any_file_is_found(folder, state):
    fill(folder, state, [0.5, 0.6])
    files = sorted(path for path in (folder / "2").rglob("*") if path.is_file())
    found = 0
    for file in files:
        content = file.read_bytes()
        if not content or file.name in ("_CHECKPOINT_METADATA", "commit_success.txt"):
            continue  # Times of orbax; nothing is restored from them.
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 4])
        file.write_bytes(content[:middle] + flipped + content[middle + 1 :])
        damaged = pytest.raises(UserError, match=f"the checkpoint {folder / '2'} is damaged")
        with damaged as caught, Checkpoints(folder) as checkpoints:
            checkpoints.restore(state, 2)
        assert str(caught.value).endswith("delete it, and the run continues from the one before it")
        file.write_bytes(content)
        found += 1
    assert found > 10
    with pytest.raises(UserError, match=r"checkpoints/3 is damaged \(.*No such file"):
        read_selected(folder, 3)
    shutil.rmtree(folder / "2")
    with Checkpoints(folder) as checkpoints:
        assert (checkpoints.latest, checkpoints.best) == (1, 1)


def test_a_save_that_was_killed_is_cleared_away(folder, state):
    fill(folder, state, [0.5])
    shutil.copytree(folder / "1", folder / "2.orbax-checkpoint-tmp")
    # They are written last.
    (folder / "2.orbax-checkpoint-tmp" / "metrics" / "checksums.json").unlink()
    with Checkpoints(folder) as checkpoints:
        assert checkpoints.latest == 1
        checkpoints.save(state, Progress(step=2), None)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_a_full_disk_is_one_line_and_keeps_the_checkpoint_before(folder, state, rng, capfd):
    fill(folder, state, [0.5])
    # Many arrays: those that are being written when one fails have nothing to add.
    large = state.replace(batch_stats=[rng.normal(size=10_000 + i) for i in range(20)])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
    try:
        full = pytest.raises(OSError, match=r"cannot save a checkpoint in \S+/checkpoints: .*large")
        with full, Checkpoints(folder) as checkpoints:
            checkpoints.save(large, Progress(step=2), None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert capfd.readouterr().err == ""
    with Checkpoints(folder) as checkpoints:
        assert checkpoints.restore(state, checkpoints.latest)[0].step == 1
