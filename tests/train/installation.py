"""The program as people install it: the wheel in an environment without the checkout."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.compilation import QUICK_FLAGS
from tests.train.forked import ROOT, TIME_LIMIT

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
    commands: Path, folder: Path, *arguments: str, seconds: float = TIME_LIMIT
) -> subprocess.CompletedProcess[str]:
    """Runs `topk-jax` in a folder, as somebody does who has no checkout."""
    environment = {
        **os.environ,
        "XLA_FLAGS": QUICK_FLAGS,
        "TFDS_DATA_DIR": str(folder / "data"),
    }
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [commands / "topk-jax", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
