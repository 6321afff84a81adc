"""The home folder in place of ~ in the values of flags, which no shell puts there."""

import pytest

from train.foundation import home_folders


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--workdir=~/run", "--workdir=/home/me/run"),
        ("-workdir=~/run", "-workdir=/home/me/run"),
        ("--workdir=~", "--workdir=/home/me"),
        ("--config=~/recipe.py:focal", "--config=/home/me/recipe.py:focal"),
        ("--workdir=~nobody_of_this_name/run", "--workdir=~nobody_of_this_name/run"),
        ("--out=~backup.npz", "--out=~backup.npz"),
        ("--out=runs/~/a.npz", "--out=runs/~/a.npz"),
        # Saved with the run.
        ("--config.dataset.path=~/photos", "--config.dataset.path=~/photos"),
    ],
)
def test_the_home_folder_is_put_in_flags_alone(monkeypatch, typed, meant):
    monkeypatch.setenv("HOME", "/home/me")
    assert home_folders.put_in(["train.main", typed, "left"]) == ["train.main", meant, "left"]
