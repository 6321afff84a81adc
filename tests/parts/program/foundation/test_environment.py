"""Odd variables of the environment are mended before libraries read them."""

import io
import os
import pwd
import sys
import types
from pathlib import Path

import pytest

from tests.parts.program import forked
from train.foundation import command_line, environment, standard_output

MENDED = (
    *("MPLBACKEND", "TFDS_DATA_DIR", "HOME", "COLUMNS", "JAX_COMPILATION_CACHE_DIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
)


@pytest.fixture
def variables(monkeypatch):
    """The environment, without the variables that are mended; it is restored."""
    for name in MENDED:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("backend", ["bogus", "TkAgg", ""])
def test_figures_need_no_screen(variables, backend):
    variables.setenv("MPLBACKEND", backend)
    environment.mend()
    assert os.environ["MPLBACKEND"] == "agg"


def test_what_names_no_folder_is_no_folder(variables):
    variables.setenv("TFDS_DATA_DIR", "")
    variables.setenv("XDG_CACHE_HOME", "relative")
    variables.setenv("XDG_CONFIG_HOME", "/folder")
    environment.mend()
    assert "TFDS_DATA_DIR" not in os.environ
    assert "XDG_CACHE_HOME" not in os.environ
    assert os.environ["XDG_CONFIG_HOME"] == "/folder"


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_there_is_a_home(variables, home):
    if home is not None:
        variables.setenv("HOME", home)
    environment.mend()
    assert Path.home() == Path(pwd.getpwuid(os.getuid()).pw_dir)


def test_a_user_who_is_in_no_list_has_a_home_that_is_not_there(variables):
    def getpwuid(_number):
        raise KeyError

    variables.setattr(pwd, "getpwuid", getpwuid)
    environment.mend()
    assert Path.home() == Path("/nonexistent")


@pytest.mark.parametrize(
    ("given", "used"),
    [("0", "80"), ("-1", "80"), ("1", "20"), ("bogus", "80"), ("100", "100"), ("9" * 9, "10000")],
)
def test_lines_have_a_width_that_text_fits_in(variables, given, used):
    # No terminal has another.
    variables.setattr(os, "get_terminal_size", lambda _file: os.terminal_size((0, 0)))
    variables.setenv("COLUMNS", given)
    environment.mend()
    assert os.environ["COLUMNS"] == used


def test_a_file_in_the_place_of_the_cache_turns_it_off_with_a_warning(variables, caplog):
    variables.setenv("JAX_COMPILATION_CACHE_DIR", "/dev/null")
    environment.check_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == ""
    (warning,) = caplog.messages
    assert warning.startswith("/dev/null cannot be written to (File exists): compiled programs are")


def test_a_cache_that_is_full_is_still_read(variables, caplog, tmp_path):
    def full(**_options):
        raise OSError(28, "No space left on device")

    variables.setattr(environment.tempfile, "TemporaryFile", full)
    variables.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    environment.check_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path)
    assert "(No space left on device)" in caplog.text


@pytest.mark.parametrize("place", ["", "gs://bucket/compiled"])
def test_what_is_no_folder_of_this_machine_is_left_to_jax(variables, caplog, place):
    variables.setenv("JAX_COMPILATION_CACHE_DIR", place)
    environment.check_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == place
    assert caplog.messages == []


def test_a_command_says_what_it_turns_off_in_one_line(tmp_path):
    odd = {"JAX_COMPILATION_CACHE_DIR": "/dev/null", "COLUMNS": "0"}
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('config = "digits"\nseeds = 0\n')
    arguments = (f"--sweep={sweep}", f"--runs={tmp_path / 'runs'}", "--plan")
    ended = forked.start("train.compare", *arguments, environment=odd)
    assert ended.returncode == 0
    assert ended.stdout.startswith("python -m train.main --config=digits --config.seed=0 ")
    assert ended.stderr.startswith("warning: /dev/null cannot be written to (File exists): ")
    assert ended.stderr.count("\n") == 1


def test_help_needs_no_docstring(variables, capsys):
    """As with PYTHONOPTIMIZE=2."""
    module = types.ModuleType("a_command")
    variables.setitem(sys.modules, module.__name__, module)

    def main():
        pass

    main.__module__ = module.__name__
    with pytest.raises(SystemExit):
        command_line._show_help(main)
    assert capsys.readouterr().out.startswith("flags:\n")


def test_letters_that_the_output_lacks_are_escaped(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    standard_output.keep_what_fails()
    print("é", flush=True)
    assert output.buffer.getvalue() == b"\\xe9\n"


def test_a_path_of_nobody_is_a_mistake(capsys):
    def looked_for():
        Path("~nobody_of_this_name/runs").expanduser()

    with pytest.raises(SystemExit) as ended:
        command_line._guarded(looked_for)
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err == "error: a path starts with ~ and the name of an unknown user\n"
    )


def test_a_message_has_an_end(capsys):
    with pytest.raises(SystemExit):
        command_line._fail(f"begun {'9' * 100_000}: ended", 2)
    line = capsys.readouterr().err
    assert len(line) < 10_000
    assert line.startswith("error: begun 999")
    assert line.endswith("999: ended\n")
