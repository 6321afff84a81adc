"""What is read back from an evaluation, and what is refused."""

import json
import re

import pytest

from train.foundation.errors import UserError
from train.workdir import run_files


def test_an_evaluation_is_read_back(tmp_path):
    written = {"split": "test", "metrics": {"top_1_accuracy": 0.5}}
    run_files.evaluation(tmp_path, "test").write_text(json.dumps(written))
    assert run_files.read_evaluation(tmp_path, "test") == written


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not an evaluation: Expecting property name"),
        ("[]", "is not an evaluation: it must be an object"),
        ("{}", "is not an evaluation: it must be an object with 'split'"),
        ('{"split": ["test"]}', "is not an evaluation: it must be an object whose 'split' is a t"),
        ('{"split": "validation"}', "is not an evaluation of the split test"),
    ],
)
def test_what_is_no_evaluation_is_named(tmp_path, text, reason):
    path = run_files.evaluation(tmp_path, "test")
    path.write_text(text)
    with pytest.raises(UserError, match=f"^{re.escape(f'{path} {reason}')}"):
        run_files.read_evaluation(tmp_path, "test")


def test_who_writes_a_missing_evaluation_is_said(tmp_path):
    with pytest.raises(UserError, match=r"no .*evaluation_validation\.json: python -m .* --split="):
        run_files.read_evaluation(tmp_path, "validation")
