"""The program as people install it: the wheel in an environment without the checkout."""

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from tests.compilation import QUICK_FLAGS
from tests.parts.program.forked import ROOT, TIME_LIMIT

# In the folder that commands are started in. None of it may be imported.
HOSTILE = (
    "train.py",
    "train/__init__.py",
    "train/main.py",
    "configs/__init__.py",
    "configs/recipe.py",
    "configs/digits.py",
    "topk_jax/__init__.py",
    "absl/__init__.py",
    "jax.py",
    "queue.py",
    "struct.py",
)

# A recipe beside the photographs of two classes, and the flags of a run of seconds on them.
RECIPE = """
from configs.images import get_config as of_images


def get_config():
    config = of_images("cross_entropy")
    config.eval.ks = (1,)
    config.select_by = "loss"
    return config
"""
_TINY = {
    "dataset.path": "photos",
    "dataset.num_workers": 1,
    "dataset.image_size": 8,
    "dataset.batch_size": 4,
    "loss.k": 1,
    "model.name": "mlp",
    "num_epochs": 1,
    "optimizer.warmup_epochs": 0.0,
}
TINY_RUN = ("--workdir=run", *(f"--config.{name}={value}" for name, value in _TINY.items()))


def build(folder: Path, kind: str, source: Path = ROOT) -> Path:
    """Builds a "wheel" or an "sdist" by the backend of pyproject.toml, and returns its file."""
    code = f"import sys, hatchling.build; print(hatchling.build.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / done.stdout.split()[-1]


def install(wheel: Path, folder: Path, *, with_libraries: bool = True) -> Path:
    """Installs a wheel into a new environment, and returns the folder of its commands.

    Args:
        wheel: the file.
        folder: of the environment.
        with_libraries: whether it has the libraries of this environment. It never has the checkout.
    """
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages") and with_libraries]
    # A line adds a folder, whose own .pth files are not read: one of them has the checkout.
    (packages / "libraries.pth").write_text("\n".join(libraries))
    python = ("--python", str(folder / "bin" / "python"))
    offline = ("--no-index", "--no-deps", "--quiet", "--disable-pip-version-check")
    # It is there already, by the libraries.
    subprocess.run(
        [sys.executable, "-m", "pip", *python, "install", *offline, "--ignore-installed", wheel],
        check=True,
    )
    return folder / "bin"


def write_hostile(folder: Path) -> None:
    """Writes files with the names of ours and of libraries, which end what imports them."""
    for name in HOSTILE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"raise SystemExit('imported the hostile {name}')\n")


def run(
    commands: Path,
    folder: Path,
    *arguments: str,
    seconds: float = TIME_LIMIT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `topk-jax` in a folder, like a user without a checkout."""
    return subprocess.run(
        [commands / "topk-jax", *arguments],
        cwd=folder,
        env=_environment(folder, environment),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def _environment(folder: Path, more: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own = {"XLA_FLAGS": QUICK_FLAGS, "TFDS_DATA_DIR": str(folder / "data")}
    return inherited | own | dict(more or {})
