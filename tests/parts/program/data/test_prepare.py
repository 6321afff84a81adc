"""`train.prepare` as a command: what it prints, refuses and leaves."""

import sys
import tarfile

import numpy as np
import pytest

from tests.parts.program.data import archives, small
from tests.parts.program.data.specs import dataset_spec
from tests.parts.program.forked import start
from train import prepare
from train.data import photographs
from train.foundation import files as file_system
from train.foundation.errors import UserError


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files of an archive of few species."""
    small.shrink(monkeypatch.setattr)
    return small.plantnet(tmp_path / "manual")


def run(tmp_path, data_dir=None):
    given = {"data_dir": str(data_dir or tmp_path / "data"), "manual_dir": f"{tmp_path}/manual"}
    prepare.prepare("plantnet300k", **given)


def test_images_that_cannot_be_read_are_named_and_left_out(tmp_path, files, capsys, monkeypatch):
    # Of more than a gigabyte, tfds's shuffling writes files of TensorFlow.
    monkeypatch.setattr("tensorflow_datasets.core.shuffle.MAX_MEM_BUFFER_SIZE", 0)
    first = f"train/{small.SPECIES[0]}"
    bad = {f"{first}/a.jpg": archives.jpeg(0)[:-9], f"{first}/b.jpg": b"404 not found"}
    files |= {f"plantnet_300K/images/{path}": file for path, file in bad.items()}
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    run(tmp_path)
    printed = capsys.readouterr().out
    assert f"and are left out: {first}/a.jpg, {first}/b.jpg" in printed
    dataset = dataset_spec({"name": "plantnet300k"}).load(str(tmp_path / "data"))
    assert np.bincount(dataset.train.labels).tolist() == [5] * 6
    assert "tensorflow" not in sys.modules


@pytest.mark.usefixtures("files")
def test_a_folder_in_use_or_with_something_else_in_it_is_not_written_to(tmp_path):
    folder = tmp_path / "data/plantnet300k"
    in_use = pytest.raises(UserError, match=f"another preparation is using {folder}")
    with file_system.lock(folder, "a test"), in_use:
        run(tmp_path)
    (folder / "1.1.0").mkdir()
    (folder / "1.1.0" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not a complete prepared data set; delete it"):
        run(tmp_path)
    assert (folder / "1.1.0" / "notes.txt").read_text() == "mine"


def start_v2(module, tmp_path, **options):
    flags = [f"--data_dir={tmp_path / 'data'}", f"--manual_dir={tmp_path / 'manual'}"]
    return start(module, "--dataset=plantnet300k_v2", *flags, **options)


def test_a_full_disk_is_one_line_and_nothing_is_prepared(tmp_path):
    archives.plantnet_v2(tmp_path / "manual", num_species=small.NUM_CLASSES_V2)
    module = "tests.parts.program.data.interrupted"
    done = start_v2(module, tmp_path, environment={"MOMENT": "full disk"})
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: cannot write prepared files: write() failed: File too large")
    assert f"{tmp_path}/data/plantnet300k_v2/incomplete." in line
    assert list((tmp_path / "data/plantnet300k_v2").iterdir()) == []


def test_version_2_with_its_tables_beside_the_archive_is_prepared_and_read(tmp_path):
    archives.plantnet_v2(tmp_path / "manual")
    done = start_v2("train.prepare", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    place, found = done.stdout.splitlines()
    assert place.startswith(f"preparing plantnet300k_v2 in {tmp_path / 'data'}")
    assert found.startswith("plantnet300k_v2: 1,000 classes; images: 1,000 train")
    dataset = dataset_spec({"name": "plantnet300k_v2"}).load(str(tmp_path / "data"))
    assert dataset.class_names[3] == "Genus3 species3 (L.) Mill."
    assert dataset.train.credit(3) == 'Someone, "S." 3, cc-by-nc'


# A part of ImageNet's archive of archives, which tfds takes for all of it without a warning.
BROKEN_OFF = {
    "a page instead": lambda content, _member: b"<html>404</html>",
    "broken off in a member": lambda content, member: content[: member + 700],
    "broken off between members": lambda content, member: content[:member],
}


@pytest.mark.parametrize("case", BROKEN_OFF)
def test_an_imagenet_archive_that_is_not_complete_is_refused(tmp_path, case):
    archives.imagenet_tars(tmp_path, num_classes=3, num_validation=1)
    photographs.check_archives(tmp_path)
    archive = tmp_path / "ILSVRC2012_img_train.tar"
    with tarfile.open(archive) as members:
        last = members.getmembers()[-1].offset
    archive.write_bytes(BROKEN_OFF[case](archive.read_bytes(), last))
    message = r"no complete ILSVRC2012_img_train\.tar; .* MD5 checksum is 1d675b47"
    with pytest.raises(UserError, match=message):
        photographs.check_archives(tmp_path)


def test_a_builder_of_tfds_needs_tensorflow_before_it_downloads(tmp_path):
    message = r"preparing tfds:mnist needs the package tensorflow-cpu: pip install"
    with pytest.raises(UserError, match=message):
        prepare.prepare("tfds:mnist", data_dir=str(tmp_path / "a"), manual_dir=None)
