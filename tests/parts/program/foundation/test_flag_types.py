"""The configuration file: what is wrong with one is an error of its own, in one line."""

import pytest
from absl import flags
from ml_collections import ConfigDict, config_flags

from tests.parts.program.forked import ROOT, check_mistakes
from train.foundation.flag_types import ConfigurationFileError, _ConfigurationFile

WRONG = {
    "def get_config(:\n    pass": "config.py, line 1: ",
    "import nothing_of_that_name": "cannot be run: ModuleNotFoundError: No module named 'nothing",
    "get_configuration = dict": "has no function get_config()",
    "def get_config(word=1): raise ValueError('no such word')": "--config: no such word",
    "def get_config(): raise SystemExit('a\\nb')": "cannot be run: SystemExit: a\nb",
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
