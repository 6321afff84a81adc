"""The configuration file: what is wrong with one is an error of its own, in one line."""

import importlib
import re

import pytest

from tests.train.forked import ROOT
from train.foundation.flag_types import ConfigurationFileError, _ConfigurationFile, _WholeNumber

WRONG = {
    "def get_config(:\n    pass": "config.py, line 1: ",
    "import nothing_of_that_name": "cannot be run: ModuleNotFoundError: No module named 'nothing",
    "get_configuration = dict": "has no function get_config()",
    "def get_config(word=1): raise ValueError('no such word')": "--config: no such word",
    "def get_config(): raise KeyError('a')": "cannot be run: KeyError: 'a'",
    "def get_config(): return open('/nothing')": "cannot be run: FileNotFoundError: ",
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


def test_a_whole_number_is_one():
    assert _WholeNumber().parse("7") == 7
    for wrong in ("seven", "7.0", ""):
        with pytest.raises(ValueError, match=r"^must be a whole number$"):
            _WholeNumber().parse(wrong)
