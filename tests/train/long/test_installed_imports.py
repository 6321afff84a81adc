"""No command of an installed program runs a file of the current folder that the user has not named.

The folder has a file for each module that a command looks for, at the moment in which it does.
"""

import os
import shutil
import subprocess
import sys

import pytest

from tests.compilation import QUICK_FLAGS
from tests.train import installation
from tests.train.data.own.pictures import write_classes
from tests.train.forked import ROOT, TIME_LIMIT
from train.__main__ import COMMANDS
from train.foundation.invocation import command_of

pytestmark = pytest.mark.long

OWN = ("mine", "helper", "late")
FILES = {
    "mine": (
        "import dataclasses\n"
        "import helper\n"
        "from train.data import DatasetFamily\n"
        "from train.data.own.families import FOLDER\n\n\n"
        "def spec(fields):\n"
        "    return dataclasses.replace(FOLDER.spec(fields), kind=helper.Picture)\n\n\n"
        "FAMILY = DatasetFamily(spec, fields=FOLDER.fields)\n"
    ),
    "helper": (
        "from train.data.pictures import PillowPicture\n\n\n"
        "class Picture(PillowPicture):\n"
        "    def cut(self, *arguments):\n"
        "        import late\n\n"
        "        late.note()\n"
        "        return super().cut(*arguments)\n"
    ),
    "late": (
        "import os\n\n\n"
        "def note():\n"
        "    with open('noted', 'a') as file:\n"
        "        file.write(f'{os.getpid()} ')\n"
    ),
    "recipe": installation.RECIPE,
}
CALLS = {
    # The processes that decode find the user's own modules, and nothing else.
    "train": ("--config=recipe.py", *installation.TINY_RUN, "--config.dataset.name=mine:FAMILY"),
    "prepare": ("--dataset=digits",),
    "evaluate": ("--workdir=run",),
    "predict": ("--workdir=run", "--images=photos/oak/0.png", "--top_k=1", "--html=sets.html"),
    "embed": ("--workdir=run", "--images=photos", "--out=features.npz"),
    "audit": ("--config=features", "--config.dataset.path=features.npz", "--out=audit.csv"),
    "export": ("--workdir=run", "--top_k=1", "--out=exported.stablehlo"),
    "monitor": ("--workdir=run", "--outcomes=outcomes.csv", "--state=state.json", "--coverage=0.5"),
    "plan": ("--config=digits", "--device=v5e"),
    "serve": ("--program=exported.stablehlo", "--port=0"),
    "compare": ("--runs=run",),
    "figures": ("--figure=learning_curves", "--workdirs=run", "--out=figure.png"),
    # It starts the command train.
    "tables": (
        *("--table=4.9", "--on=digits", "--rows=cross_entropy", "--columns=K=1", "--seeds=0"),
        *("--override=num_epochs=1", "--override=model.name=mlp", "--run"),
    ),
}


def test_no_command_runs_what_it_looks_for_in_the_current_folder(tmp_path):
    commands = installation.install(installation.build(tmp_path, "wheel"), tmp_path / "venv")
    folder = tmp_path / "current"
    write_classes(folder / "photos", ["beech", "oak"], 12, size=(40, 30))
    for name, content in FILES.items():
        (folder / f"{name}.py").write_text(content)
    environment = installation.planting(tmp_path, *OWN)
    assert {command_of(name) for name in COMMANDS} == CALLS.keys()
    (folder / "outcomes.csv").write_text("label,set,rule\noak,oak,top_k=1\n")
    for command, arguments in CALLS.items():
        if command == "serve":
            done = installation.serve(commands, folder, *arguments, environment=environment)
        else:
            done = installation.run(commands, folder, command, *arguments, environment=environment)
        # The compilers of other machines are not installed.
        assert done.returncode == (2 if command == "plan" else 0), (command, done.stderr)
        assert not (folder / installation.RAN).exists(), command
    # One that is not installed, and a namespace.
    assert (folder / "libtpu.py").exists()
    assert (folder / "orbax.py").exists()
    assert (folder / "noted").exists()


def test_a_checkout_runs_nothing_of_its_folder_but_what_python_itself_looks_for(tmp_path):
    folder = tmp_path / "checkout"
    for package in ("configs", "topk_jax", "train"):
        shutil.copytree(ROOT / package, folder / package)
    write_classes(folder / "photos", ["beech", "oak"], 12, size=(40, 30))
    for name, content in FILES.items():
        (folder / f"{name}.py").write_text(content)
    # `python -m` looks into the current folder first, before it has found the program.
    left_out = (*OWN, "configs", "topk_jax", "train", *sys.stdlib_module_names)
    environment = installation.planting(tmp_path, *left_out)
    done = subprocess.run(
        [sys.executable, "-m", "train.main", *CALLS["train"]],
        cwd=folder,
        env={**os.environ, "XLA_FLAGS": QUICK_FLAGS, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / installation.RAN).exists()
    assert (folder / "libtpu.py").exists()
    assert (folder / "orbax.py").exists()
    assert (folder / "noted").exists()
