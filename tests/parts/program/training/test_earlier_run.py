"""The run that another run starts from."""

import pytest

from train.foundation.errors import UserError
from train.training import earlier_run


def test_the_run_may_be_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match=f"finished run; {tmp_path}/run does not exist"):
        earlier_run.inputs("~/run")
