"""`kill -9` of `train.prepare`: what is there is never taken for a prepared data set."""

import pytest

from tests.parts.program.data import small
from tests.parts.program.forked import start
from train.data.plantnet300k import Plantnet300k

MOMENTS = (
    "at an image",
    "between splits",
    "before the check",
    "at a check",
    "before the labels",
    "after the labels",
)


def prepare(folder, *, moment="never"):
    return start(
        "tests.parts.program.data.interrupted",
        "--dataset=plantnet300k",
        f"--manual_dir={folder / 'manual'}",
        f"--data_dir={folder / 'data'}",
        environment={"MOMENT": moment},
    )


def is_prepared(folder):
    builder = Plantnet300k(data_dir=str(folder / "data"), file_format="array_record")
    return builder.is_prepared()


def contents_of(folder):
    folder = folder / "data" / "plantnet300k"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The files of a preparation that nothing stopped."""
    folder = tmp_path_factory.mktemp("complete")
    small.plantnet(folder / "manual")
    assert prepare(folder).returncode == 0
    return contents_of(folder)


@pytest.mark.parametrize("moment", MOMENTS)
def test_after_a_kill_nothing_is_prepared_and_the_next_start_is_as_the_first(
    tmp_path, moment, expected
):
    small.plantnet(tmp_path / "manual")
    killed = prepare(tmp_path, moment=moment)
    assert killed.returncode == -9, killed.stderr
    assert not is_prepared(tmp_path)
    again = prepare(tmp_path)
    assert again.returncode == 0, again.stderr
    assert contents_of(tmp_path) == expected


def test_after_a_kill_behind_the_last_step_all_is_prepared(tmp_path, expected):
    small.plantnet(tmp_path / "manual")
    killed = prepare(tmp_path, moment="after the renaming")
    assert killed.returncode == -9, killed.stderr
    again = prepare(tmp_path)
    assert again.returncode == 0, again.stderr
    assert "is prepared already" in again.stdout
    found = contents_of(tmp_path)
    assert expected.items() <= found.items()
