"""Commands print their help without waiting for the libraries that do the work."""

import os
import subprocess
import sys

import jax
import pytest
from absl import flags

from tests.parts.program.forked import ROOT, TIME_LIMIT, check_mistakes
from train.foundation import command_line
from train.foundation.errors import UserError

# Their flags need only these. The others name losses or data sets in their help.
LIGHT = ("main", "audit", "embed", "evaluate", "monitor", "predict", "export", "figures", "serve")


@pytest.mark.parametrize("command", LIGHT)
def test_a_command_imports_what_is_slow_when_it_runs(command):
    slow = "{'jax', 'flax', 'matplotlib', 'orbax', 'PIL', 'scipy', 'tensorflow_datasets'}"
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, train.{command}; assert not {slow} & {{*sys.modules}}",
        ],
        cwd=ROOT,
        check=True,
    )


def test_a_mistake_is_told_in_the_words_of_the_console_command(monkeypatch, capsys):
    def mistaken():
        raise UserError("prepare it with python -m train.prepare")

    monkeypatch.setattr(sys, "argv", ["topk-jax train"])
    with pytest.raises(SystemExit) as ended:
        command_line._guarded(mistaken)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: prepare it with topk-jax prepare\n"


@pytest.fixture
def no_flags(monkeypatch):
    """The flags of a command that has none; other tests of this process import commands."""
    monkeypatch.setattr(flags, "FLAGS", flags.FlagValues())


@pytest.mark.usefixtures("no_flags")
@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError("Unable to allocate 9 TiB"), "not enough memory: Unable to allocate 9 TiB"),
        (MemoryError(), "not enough memory: MemoryError"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nall its blocks"),
            "not enough memory: RESOURCE_EXHAUSTED: Out of memory",
        ),
    ],
)
def test_too_little_memory_is_one_line(capsys, error, line):
    def too_large():
        raise error

    with pytest.raises(SystemExit) as ended:
        command_line._guarded(too_large)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {line}\n"


@pytest.mark.parametrize("usually", ["", "it was\nmoved"])
def test_the_usual_reason_is_a_second_line(capsys, usually):
    def mistaken():
        raise UserError("it is gone", usually=usually)

    with pytest.raises(SystemExit):
        command_line._guarded(mistaken)
    second = "usually because it was moved\n" if usually else ""
    assert capsys.readouterr().err == f"error: it is gone\n{second}"


@pytest.mark.usefixtures("no_flags")
def test_a_command_that_trains_tells_how_to_need_less_memory(capsys):
    def too_large():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    flags.DEFINE_string("config", None, "The configuration.", flag_values=flags.FLAGS)
    with pytest.raises(SystemExit):
        command_line._guarded(too_large)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: not enough memory: RESOURCE_EXHAUSTED: Out of memory"
    assert second.startswith("usually because config.dataset.batch_size is too large")


@pytest.mark.parametrize("written", ["--flagfile={}", "-flagfile={}", "--flagfile {}"])
@pytest.mark.parametrize("command", ["main", "figures"])
def test_a_file_of_flags_is_refused_and_not_read(tmp_path, command, written):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = subprocess.run(
        [sys.executable, "-m", f"train.{command}", *written.format(pipe).split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    message = "error: there is no --flagfile: write the flags on the command line\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    "flag", ["only_check_args", "run_with_pdb", "helpxml", "profile_file=profile"]
)
def test_flags_for_developers_are_refused(flag):
    name = flag.partition("=")[0]
    check_mistakes(
        "train.main", [(["--config=digits", f"--{flag}"], f"error: there is no --{name}")]
    )


def test_a_mistake_in_a_flag_of_absl_is_told_of_that_flag():
    mistake = ["--config=digits", "--stderrthreshold=loud"]
    check_mistakes("train.main", [(mistake, "error: --stderrthreshold must be one of")])
