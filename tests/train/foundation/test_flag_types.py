"""The configuration file: what is wrong with one is an error of its own, in one line."""

import pytest

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
    with pytest.raises(ConfigurationFileError, match=r"name a file; there is no .*config\.py$"):
        _ConfigurationFile().parse(f"{tmp_path}/config.py:word")


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
