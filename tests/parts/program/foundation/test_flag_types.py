"""The configuration file: what is wrong with one is an error of its own, in one line."""

import importlib
import re

import pytest
from absl import flags
from ml_collections import ConfigDict, config_flags

from tests.parts.program.forked import ROOT, check_mistakes
from train.foundation import interruption
from train.foundation.flag_types import ConfigurationFileError, _ConfigurationFile, _WholeNumber

WRONG = {
    "def get_config(:\n    pass": "config.py, line 1: ",
    "import nothing_of_that_name": "cannot be run: ModuleNotFoundError: No module named 'nothing",
    "get_configuration = dict": "has no function get_config()",
    "def get_config(word=1): raise ValueError('no such word')": "--config: no such word",
    "def get_config(): raise KeyError('a')": "cannot be run: KeyError: 'a'",
    "def get_config(): return open('/nothing')": "cannot be run: FileNotFoundError: ",
    "raise SystemExit(3)": "cannot be run: SystemExit: 3",
    "def get_config(): raise SystemExit('a\\nb')": "cannot be run: SystemExit: a\nb",
    "def get_config(): raise KeyboardInterrupt": "cannot be run: KeyboardInterrupt",
    """
class Own(BaseException):
    def __str__(self): return self.nothing
def get_config(): raise Own
""": "cannot be run: Own",
    """
from ml_collections import ConfigDict
def get_config():
    config = ConfigDict()
    for _ in range(3000):
        outer = ConfigDict()
        outer.inner = config
        config = outer
    return config
""": "cannot be run: RecursionError: ",
    "\0": "cannot be run: SyntaxError: source code string cannot contain null bytes",
    "def get_config(): pass": "must return a ConfigDict; it returned a NoneType",
    "def get_config(): return {}": "must return a ConfigDict; it returned a dict",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_file_that_gives_no_configuration_is_an_error_of_its_own(tmp_path, text):
    file = tmp_path / "config.py"
    file.write_text(text)
    with pytest.raises(ConfigurationFileError) as error:
        _ConfigurationFile().parse(str(file))
    assert WRONG[text] in str(error.value)


NO_JSON = {
    "config.set = {1: object()}": "TypeError: ",
    "config.itself = config": "ValueError: Circular reference detected",
}


def test_values_that_json_does_not_have_end_a_command_in_one_line(tmp_path):
    mistakes = []
    for index, (line, message) in enumerate(NO_JSON.items()):
        file = tmp_path / f"config{index}.py"
        file.write_text(
            "from ml_collections import ConfigDict\n"
            f"def get_config():\n    config = ConfigDict({{'k': 1}}); {line}\n    return config\n"
        )
        told = f"the values of the configuration must be values of JSON: {message}"
        mistakes.append(([f"--config={file}", f"--workdir={tmp_path / 'run'}"], told))
    check_mistakes("train.main", mistakes)


def test_ctrl_c_in_a_configuration_file_is_no_mistake_of_it(tmp_path, monkeypatch):
    file = tmp_path / "config.py"
    file.write_text("raise KeyboardInterrupt")
    monkeypatch.setattr(interruption._state, "raised", True)
    with pytest.raises(KeyboardInterrupt):
        _ConfigurationFile().parse(str(file))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        ConfigurationFileError, match=r"name a recipe or a file; there is no .*config\.py$"
    ):
        _ConfigurationFile().parse(f"{tmp_path}/config.py:word")


def test_a_name_is_that_of_a_recipe(tmp_path, monkeypatch):
    # Whatever is there.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("def get_config(): pass")
    by_name = _ConfigurationFile().parse("digits:cross_entropy")
    by_path = _ConfigurationFile().parse(f"{ROOT}/configs/digits.py:cross_entropy")
    assert by_name.to_json() == by_path.to_json()
    assert by_name.is_locked
    with pytest.raises(ConfigurationFileError, match="it returned a NoneType"):
        _ConfigurationFile().parse("./digits")


def test_every_recipe_and_nothing_else_has_a_name():
    with pytest.raises(ConfigurationFileError) as error:
        _ConfigurationFile().parse("recipe")
    assert str(error.value).endswith("; got 'recipe'")
    (listed,) = re.findall(r"the name of a recipe, one of ([\w, ]+);", str(error.value))
    assert listed.split(", ") == sorted(
        file.stem
        for file in (ROOT / "configs").glob("*.py")
        if hasattr(importlib.import_module(f"configs.{file.stem}"), "get_config")
    )


def test_what_follows_the_colon_is_given_to_get_config(tmp_path):
    file = tmp_path / "config.py"
    file.write_text(
        "from ml_collections import ConfigDict\n"
        "def get_config(word='none'): return ConfigDict({'word': word})\n"
    )
    config = _ConfigurationFile().parse(f"{file}:a:b")
    assert config.word == "a:b"
    assert config.is_locked
    assert _ConfigurationFile().parse(str(file)).word == "none"


def test_none_replaces_the_value_of_a_recipe():
    values, config = flags.FlagValues(), ConfigDict({"rate": 0.25, "depth": 3, "file": "a.csv"})
    arguments = ["", *(f"--config.{name}=None" for name in config)]
    config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=arguments)
    values(arguments)
    assert config.to_dict() == {"rate": None, "depth": None, "file": None}


def test_an_integer_is_one():
    assert _WholeNumber().parse("7") == 7
    for wrong in ("seven", "7.0", ""):
        with pytest.raises(ValueError, match=r"^must be an integer$"):
            _WholeNumber().parse(wrong)
