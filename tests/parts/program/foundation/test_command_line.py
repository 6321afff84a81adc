"""Commands print their help without waiting for the libraries that do the work."""

import os
import subprocess
import sys

import pytest

from tests.parts.program.forked import ROOT, TIME_LIMIT, check_mistakes
from tests.rows import rows
from train.foundation import command_line
from train.foundation.errors import UserError

# Their flags need only these. The others name losses or data sets in their help.
LIGHT = ("audit", "embed", "evaluate", "monitor", "predict", "export", "figures", "serve")


@pytest.mark.parametrize("command", rows(["main"], LIGHT))
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


@pytest.mark.parametrize("written", ["-flagfile={}", "--flagfile {}"])
def test_a_file_of_flags_is_refused_and_not_read(tmp_path, written):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = subprocess.run(
        [sys.executable, "-m", "train.main", *written.format(pipe).split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--flagfile" in done.stderr


@pytest.mark.parametrize("flag", ["run_with_pdb", "profile_file=profile"])
def test_flags_for_developers_are_refused(flag):
    name = flag.partition("=")[0]
    check_mistakes(
        "train.main", [(["--config=digits", f"--{flag}"], f"error: there is no --{name}")]
    )
