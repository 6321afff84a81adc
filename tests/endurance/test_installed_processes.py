"""The processes that an installed program starts are its own, whatever the current folder has."""

import json

import pytest

from tests.parts.program import installation
from tests.parts.program.data.pictures import write_classes


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installation")
    return installation.install(installation.build(folder, "wheel"), folder / "venv")


@pytest.fixture
def folder(tmp_path):
    installation.write_hostile(tmp_path)
    return tmp_path


def test_processes_decode_the_photographs_of_an_own_recipe(commands, folder):
    write_classes(folder / "photos", ["beech", "oak"], 12, size=(40, 30))
    # A user's recipe finds the recipes of the program.
    (folder / "mine.py").write_text(installation.RECIPE)
    done = installation.run(commands, folder, "train", "--config=mine.py", *installation.TINY_RUN)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "run" / "results.json").read_text())["num_classes"] == 2


def test_the_runs_of_a_table_are_started_in_the_same_way(commands, folder):
    table = ("--table=4.9", "--on=digits", "--rows=cross_entropy", "--columns=K=1", "--seeds=0")
    few = ("--override=num_epochs=1", "--override=model.name=mlp")
    planned = installation.run(commands, folder, "compare", *table, *few, "--plan")
    assert planned.stdout.startswith("python -m train.main --config=digits:cross_entropy "), planned
    done = installation.run(commands, folder, "compare", *table, *few)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Mean over the seeds 0 " in done.stdout
