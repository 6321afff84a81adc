"""The wheel has the program, and works if a user's files have the names of ours."""

import json
import re
import shutil
import tarfile
import zipfile

import pytest

from tests.parts.program import installation
from tests.parts.program.forked import ROOT
from train.__main__ import COMMANDS

SUFFIXES = {".py", ".typed", ".html", ".css", ".js", ".json", ".toml"}
OWN_RECIPE = """
import mine
from configs import digits

def get_config():
    raise ValueError(f"{mine.NAME}, with {digits.get_config().dataset.name}")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return installation.build(tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def commands(wheel, tmp_path_factory):
    return installation.install(wheel, tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The current folder of all commands."""
    folder = tmp_path_factory.mktemp("folder")
    installation.write_hostile(folder)
    (folder / "mine.py").write_text("NAME = 'mine'\n")
    (folder / "own.py").write_text(OWN_RECIPE)
    return folder


def contents(wheel):
    """The files of a wheel without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def sources(package):
    found = (path for path in (ROOT / package).rglob("*") if path.suffix in SUFFIXES)
    return {path.relative_to(ROOT).as_posix() for path in found}


def test_the_wheel_has_the_sources_of_the_three_packages_and_nothing_else(wheel):
    program = {f"topk_jax/_program/{name}" for name in sources("train") | sources("configs")}
    assert contents(wheel) == sources("topk_jax") | program


def test_the_archive_of_the_sources_makes_the_same_wheel(wheel, tmp_path):
    archive = installation.build(tmp_path, "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    source = tmp_path / archive.name.removesuffix(".tar.gz")
    assert not {"tests", "benchmarks", "docs"} & {path.name for path in source.iterdir()}
    assert contents(installation.build(tmp_path, "wheel", source)) == contents(wheel)


def test_the_files_that_a_container_gets_make_the_same_wheel(wheel, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    lines = (ROOT / "examples" / "Dockerfile").read_text().splitlines()
    for *names, target in (line.split()[1:] for line in lines if line.startswith("COPY ")):
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / target)
            else:
                shutil.copy(ROOT / name, source / target)
    assert contents(installation.build(tmp_path, "wheel", source)) == contents(wheel)


def test_the_help_lists_the_commands(commands, folder):
    listed = installation.run(commands, folder, "--help")
    assert listed.returncode == 0, listed.stderr
    names = re.findall(r"^  (\w+) ", listed.stdout, flags=re.MULTILINE)
    assert sorted(names) == sorted({*COMMANDS, "train"} - {"main"})
    assert installation.run(commands, folder).stdout == listed.stdout
    version = installation.run(commands, folder, "--version").stdout
    assert re.fullmatch(r"topk_jax \d+\.\d+\.\d+\n", version)


def test_a_run_is_trained_and_evaluated_beside_files_with_the_names_of_ours(commands, folder):
    few = ("--config.num_epochs=1", "--config.model.name=mlp")
    trained = installation.run(
        commands, folder, "train", "--config=digits", *few, "--workdir=runs/digits"
    )
    assert trained.returncode == 0, trained.stderr
    results = json.loads((folder / "runs" / "digits" / "results.json").read_text())
    assert results["config"]["model"]["name"] == "mlp"
    evaluated = installation.run(commands, folder, "evaluate", "--workdir=runs/digits")
    assert evaluated.returncode == 0, evaluated.stderr
    assert (folder / "runs" / "digits" / "evaluation_test.json").is_file()


MISTAKES = {
    "unknown command": (["trian"], "no command 'trian'; did you mean train?; there are audit"),
    "flags alone": (["--config=digits"], "there is no command '--config=digits'; there are audit"),
    "unknown recipe": (["train", "--config=digit"], "recipe, digits (did you mean this?), or"),
    "no recipe": (["train", "--config=own_data"], "the name of a recipe, one of cifar100, digits"),
    "missing file": (["train", "--config=configs/x.py"], "there is no file configs/x.py"),
    "loss": (["train", "--config=cifar100:adaboost"], "loss after the colon of --config must be"),
    # The recipe of the folder imports ours, and what is in the folder.
    "own recipe": (["train", "--config=own.py"], ": mine, with digits"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_two(commands, folder, mistake):
    arguments, message = MISTAKES[mistake]
    workdir = ["--workdir=mistaken"] if arguments[0] == "train" else []
    done = installation.run(commands, folder, *arguments, *workdir)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert done.stdout == ""
    assert not (folder / "mistaken").exists()


def test_the_library_alone_says_what_the_program_needs(wheel, folder, tmp_path):
    alone = installation.install(wheel, tmp_path / "venv", with_libraries=False)
    assert installation.run(alone, folder, "--help").returncode == 0
    done = installation.run(alone, folder, "train", "--config=digits")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the program needs the package absl: pip install")
