"""Which runs a sweep has, and which files are not sweeps."""

import pytest

from train.comparison import sweep
from train.foundation.errors import UserError
from train.series.planner import Planner
from train.series.runs_folder import RunsFolder

DIGITS = 'config = "configs/digits.py:focal"\n'


def read(tmp_path, text):
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return sweep.read(path)


def planned(tmp_path, text):
    found = read(tmp_path, text)
    return Planner(RunsFolder(tmp_path), found.arms, found.seeds).runs


def test_every_combination_has_every_seed(tmp_path):
    runs = planned(
        tmp_path,
        DIGITS + "seeds = [0, 3]\n"
        "[fields]\n"
        "num_epochs = 2\n"
        "loss.gamma = [0, 2.0]\n"
        '"optimizer.decay_epochs" = [[15, 25], [9]]\n',
    )
    configs = [run.config for run in runs]
    assert [
        (config["seed"], config["loss"]["gamma"], config["optimizer"]["decay_epochs"])
        for config in configs
    ] == [
        (seed, gamma, epochs)
        for seed in (0, 3)
        for gamma in (0.0, 2.0)
        for epochs in ([15, 25], [9])
    ]
    assert all(config["num_epochs"] == 2 for config in configs)
    assert all(isinstance(config["loss"]["gamma"], float) for config in configs)


def test_a_sweep_can_have_several_recipes_and_one_seed(tmp_path):
    config = 'config = ["digits", "configs/synthetic_species.py:focal"]\n'
    runs = planned(tmp_path, config + "seeds = 1")
    assert [run.name for run in runs] == ["digits-seed=1", "synthetic_species-focal-seed=1"]
    assert [run.training(tmp_path)[2] for run in runs] == [
        "--config=digits",
        "--config=configs/synthetic_species.py:focal",
    ]


def test_a_recipe_can_lie_anywhere_and_a_run_is_made_once(tmp_path):
    (tmp_path / "mine.py").write_text("from configs.digits import get_config\n")
    text = f'config = "{tmp_path}/mine.py:focal"\nseeds = [0]\n'
    runs = planned(tmp_path, text + 'fields.model.name = ["mlp", "small_cnn"]')
    assert [run.name for run in runs] == ["mine-focal-model=mlp-seed=0", "mine-focal-seed=0"]


def test_a_file_system_takes_the_names_of_the_runs(tmp_path):
    folder = "写真" * 60
    text = f'config = "images"\nseeds = [0, 1]\nfields.dataset.path = "/{folder}/植物"\n'
    for run in planned(tmp_path, text):
        (tmp_path / f"{run.name}.log").touch()
    assert len([*tmp_path.glob("*写真*.log")]) == 2


def test_two_runs_do_not_have_one_folder(tmp_path):
    for folder, epochs in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            "from configs import digits\n"
            "def get_config():\n"
            "    config = digits.get_config()\n"
            f"    config.num_epochs = {epochs}\n"
            "    return config\n"
        )
    text = f'config = ["{tmp_path}/a/mine.py", "{tmp_path}/b/mine.py"]\nseeds = 0\n'
    with pytest.raises(UserError, match=r"mine-seed=0 would be the folder .* num_epochs: 1 -> 2; "):
        planned(tmp_path, text)


MISTAKES = {
    "many combinations": (
        DIGITS
        + "seeds = 0\n[fields]\n"
        + "".join(
            f"optimizer.{name} = {[rate / 100 for rate in range(100)]}\n"
            for name in ("learning_rate", "momentum", "weight_decay", "beta2")
        ),
        "sweep.toml: a sweep must have at most 2,000 runs; got 100,000,000",
    ),
    "not toml": ("config =", "sweep.toml is not TOML: "),
    "unknown key": (DIGITS + "seed = [0]", "'seed' is not one of config, seeds, fields; did you"),
    "seed twice": (DIGITS + "seeds = [0, 1, 0]", "seeds has 0 twice"),
    "no such config": ('config = "configs/x.py"\nseeds = 0', "there is no file configs/x.py"),
    "unknown field": (
        DIGITS + "seeds = 0\nfields.loss.gama = 1",
        "configs/digits.py:focal has no field 'loss.gama'; did you mean 'loss.gamma'?",
    ),
    "field twice": (
        DIGITS + 'seeds = 0\n[fields]\nloss.gamma = 1\n"loss.gamma" = 2',
        "fields has loss.gamma twice",
    ),
    "the seed as a field": (
        DIGITS + "seeds = 0\nfields.seed = [1, 2]",
        "fields cannot have the seed: list the seeds in seeds",
    ),
    "out of range": (
        DIGITS + "seeds = 0\nfields.num_epochs = [1, 0]",
        "config.num_epochs must be an integer of at least 1; got 0",
    ),
    "a tuple as values": (
        DIGITS + "seeds = 0\nfields.optimizer.decay_epochs = [15, 25]",
        "the values of fields.optimizer.decay_epochs must be lists, as [[15, 25], [10, 20]]",
    ),
    "a date": (DIGITS + "seeds = 0\nfields.num_epochs = 2026-11-22", "fields.num_epochs cannot be"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_file_that_is_no_sweep_is_refused(tmp_path, mistake):
    text, message = MISTAKES[mistake]
    with pytest.raises(UserError) as raised:
        read(tmp_path, text)
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "sweep.toml"))
