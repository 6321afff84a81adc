"""Strict settings for every test: eight devices, no silent promotion, warnings as errors."""

import gc
import json
import os
import signal
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

# For the processes that tests start, too; what is set already wins.
os.environ.update(
    {
        "JAX_COMPILATION_CACHE_DIR": str(Path.home() / ".cache" / "topk_jax" / "tests"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONWARNINGS": "ignore:Error reading persistent compilation cache entry",
    }
    | os.environ
)
# benchmarks/accelerator.sh has another value of this, to try formulas on an accelerator.
os.environ["JAX_PLATFORMS"] = os.environ.get("TOPK_JAX_TEST_PLATFORMS", "cpu")

import jax
import numpy as np
import pytest

from tests.compilation import QUICK_FLAGS, drop_contexts, share_contexts
from train.devices import processes

# Set before JAX has a device: the tests of pmap and of several devices need real (virtual) devices.
# By default XLA (JAX 0.10.2) runs independent collectives of a program at the same time. On two
# busy cores a program with a hundred of them then waits for itself, one time in a hundred, until
# XLA aborts the process. In 1,500 executions in the other order none did.
os.environ["XLA_FLAGS"] = " ".join(
    (
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=8",
        "--xla_cpu_enable_concurrency_optimized_scheduler=false",
        QUICK_FLAGS,
    )
)

# What is started here is interrupted as from a terminal; a shell has what it starts in the
# background ignore that, and so all that is started by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
share_contexts()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--run-seed",
        type=int,
        default=0,
        help="config.seed of the runs whose numbers tests look at; they hold with any.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Does what is done once, and not in every worker of pytest-xdist."""
    if not hasattr(config, "workerinput"):
        # Bounds what earlier runs have left.
        processes.bound(Path.home() / ".cache" / "topk_jax" / "tests")


def pytest_collection_finish() -> None:
    """Lets the garbage collector look only at what tests make, and seldom: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True, scope="session")
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Has temporary files among those that pytest deletes, of the processes that tests start too.

    tensorflow-datasets leaves an empty folder behind for each data set that is not prepared.
    """
    with pytest.MonkeyPatch.context() as patch:
        # A short name: the path of a socket has at most about a hundred letters.
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        # It is then asked for again.
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(autouse=True, scope="module")
def compiled_programs() -> Iterator[None]:
    """Drops what a file's tests compiled: gigabytes, in which garbage would be looked for."""
    yield
    jax.clear_caches()
    drop_contexts()


@pytest.fixture(scope="session")
def run_seed(pytestconfig: pytest.Config) -> int:
    """The seed of the runs whose numbers tests look at."""
    seed: int = pytestconfig.getoption("--run-seed")
    return seed


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed that depends only on the test's name."""
    return zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def key(seed: int) -> jax.Array:
    """A random key that depends only on the test's name."""
    return jax.random.key(seed)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A NumPy generator that depends only on the test's name."""
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def standard_promotion() -> Iterator[None]:
    """For tests of code that calls optax, whose step schedule compares floats with integers."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, run_seed: int) -> Path:
    """The workdir of a short, finished run; copy it to write into it."""
    from configs import digits  # noqa: PLC0415
    from train.run import experiment  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("finished")
    config = digits.get_config("noised_top_k_hinge")
    config.seed = run_seed
    config.num_epochs = 2
    plain = json.loads(config.to_json())
    with jax.numpy_dtype_promotion("standard"):
        experiment.run(plain, folder / "run")
    return folder / "run"
