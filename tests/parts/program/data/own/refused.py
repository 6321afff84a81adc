"""How a start of training ends that cannot use the images it is given."""

import pytest

from tests.parts.program.forked import error_lines
from train import experiment
from train.foundation import command_line


def line_of(config, tmp_path, capfd):
    """The line that `train.main` writes about a mistake, after which there is no workdir."""
    workdir = tmp_path / "run"
    with pytest.raises(SystemExit) as ended:
        command_line._guarded(lambda: experiment.run(config, workdir))
    assert ended.value.code == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    *warnings, line = error_lines(shown.err)
    assert all(warning.startswith("warning: ") for warning in warnings)
    assert line.startswith("error: ")
    assert not workdir.exists()
    return line.removeprefix("error: ")
