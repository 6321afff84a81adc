"""Rows of the same name in tests/parts that take long."""

import pytest

from tests.parts.program.test_experiment import config, of_two_epochs  # noqa: F401 (fixtures)
from train import experiment
from train.foundation.errors import UserError

pytestmark = pytest.mark.usefixtures("standard_promotion")


def test_the_second_of_two_extensions_is_told(of_two_epochs, monkeypatch):  # noqa: F811
    config, workdir = of_two_epochs  # noqa: F811
    shorter = (workdir / "results.json").read_text()
    assembled = experiment._assembled

    def after_another(*arguments):
        """The data set takes long to open: another command starts and ends meanwhile."""
        monkeypatch.undo()
        experiment.run(config, workdir, extend=True)
        return assembled(*arguments)

    monkeypatch.setattr(experiment, "_assembled", after_another)
    with pytest.raises(UserError, match="another command has extended the run in --workdir"):
        experiment.run(config, workdir, extend=True)
    # What the first one has made, and what it has put aside, is as it left it.
    assert (workdir / "until_epoch_2" / "results.json").read_text() == shorter
    assert experiment.run(config, workdir)["config"]["extensions"] == [[2, 38]]
