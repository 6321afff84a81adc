"""`train.predict` replaces no file that is read, or that is of the run."""

import pytest
from PIL import Image

from tests.parts.program.forked import start

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
# The folder of the images stands for @, the run's for %; and what is named.
MISTAKES = {
    "an image": ("--out=@/1.png", "--out"),
    "names": ("--class_names=@/names.txt --out=@/names.txt", "--out"),
    "of the run": ("--out=%/metrics.jsonl", "--out"),
    "one file": ("--out=@/z --html=@/z", "--html"),
    "few names": ("--class_names=@/names.txt", "--class_names"),
    "blank name": ("--class_names=@/blank.txt", "blank.txt"),
}


def contents(*folders):
    return [
        {file: file.read_bytes() for file in one.iterdir() if file.is_file()} for one in folders
    ]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_replaces_no_file(finished_run, tmp_path, mistake):
    Image.new("L", (8, 8)).save(tmp_path / "1.png")
    (tmp_path / "names.txt").write_text("one\ntwo\n")
    (tmp_path / "blank.txt").write_text("one\n\nthree\n")
    before = contents(tmp_path, finished_run)
    flags, named = MISTAKES[mistake]
    given = flags.replace("@", str(tmp_path)).replace("%", str(finished_run)).split()
    common = (f"--workdir={finished_run}", f"--images={tmp_path}/1.png", "--top_k=1")
    done = start("train.predict", *common, *given, environment=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert named in line
    assert contents(tmp_path, finished_run) == before
