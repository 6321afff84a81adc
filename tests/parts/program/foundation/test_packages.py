"""Messages name packages that pip finds: topk_jax itself is on no index."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from train.foundation import packages

ROOT = Path(__file__).parents[4]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
    *(
        path
        for folder in ("benchmarks", "configs", "examples", "topk_jax", "train")
        for path in (ROOT / folder).rglob("*.py")
    ),
]


@pytest.mark.parametrize("extra", packages.EXTRAS)
def test_an_extra_has_the_packages_of_the_project(extra):
    wanted = tuple(requirement.partition(">=")[0] for requirement in EXTRAS[extra])
    assert packages.EXTRAS[extra] == wanted
    assert shlex.split(packages.install(extra)) == ["pip", "install", *wanted]


def test_a_message_names_what_pip_finds():
    assert packages.missing("--decoding='fast'", "simplejpeg", "fast-images") == (
        "--decoding='fast' needs the package simplejpeg, which is not installed: "
        "pip install cykooz-resizer simplejpeg"
    )


def test_no_text_installs_the_project_from_an_index():
    named = re.compile(r"pip install ['\"]?topk[-_]jax\b(?!-[\d.]+-py3-none-any\.whl)")
    assert not [str(path) for path in TEXTS if named.search(path.read_text())]


def test_no_message_needs_the_folder_of_a_checkout():
    messages = [path for path in TEXTS if path.is_relative_to(ROOT / "train")]
    assert messages
    named = re.compile(r"\.\[[a-z]")
    assert not [str(path) for path in messages if named.search(path.read_text())]
