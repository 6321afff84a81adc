"""`train.prepare` as a command: mistakes, kills, a full disk, and going on afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.data import archives, small
from tests.train.data.interrupted import MOMENTS
from train import prepare
from train.data import preparation, shards, tfds_preparation
from train.data.plantnet300k import Plantnet300k
from train.errors import UserError

ROOT = Path(__file__).parents[3]
# A limit for a hang; a preparation takes some four seconds.
TIMEOUT = 120


@pytest.fixture
def shrunk(monkeypatch):
    small.shrink(monkeypatch.setattr)


def command(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def run(manual_dir, data_dir, **keywords):
    prepare.prepare(
        "plantnet300k",
        data_dir=str(data_dir),
        manual_dir=str(manual_dir),
        **{"skip_unreadable": False, **keywords},
    )


def contents_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def shards_of(folder):
    """The finished shards, with what a rewritten file has another of."""
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.glob("plantnet300k-*array_record*")
    }


# The shards that are finished at each moment: training 30 images in four shards, of 7 or 8 images,
# then validation in one and testing in two.
FINISHED = {
    "in a shard": 3,
    "before the journal": 3,
    "before the description": 7,
    "before the renaming": 7,
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", FINISHED)
def test_after_a_kill_nothing_is_prepared_and_a_second_start_goes_on(
    tmp_path, moment, shrunk, capsys
):
    small.plantnet(tmp_path / "manual")
    killed = command(
        "tests.train.data.interrupted", moment, str(tmp_path / "manual"), str(tmp_path / "data")
    )
    assert killed.returncode == -9, killed.stderr
    data = tmp_path / "data/plantnet300k"
    assert not (data / "1.1.0").exists()
    assert not Plantnet300k(
        data_dir=str(tmp_path / "data"), file_format="array_record"
    ).is_prepared()
    before = shards_of(data / "incomplete.1.1.0")
    assert len(before) == FINISHED[moment]
    run(tmp_path / "manual", tmp_path / "data")
    after = shards_of(data / "1.1.0")
    # A shard that was killed before the journal noted it is the one that is written again.
    rewritten = {name for name, stamp in before.items() if after[name] != stamp}
    assert len(rewritten) == (moment == "before the journal")
    images = {7: 48}.get(len(before), 22 if len(before) - len(rewritten) == 3 else 15)
    assert f"going on: {images} of 48 images" in capsys.readouterr().out
    run(tmp_path / "manual", tmp_path / "uninterrupted")
    expected = contents_of(tmp_path / "uninterrupted/plantnet300k/1.1.0")
    assert contents_of(data / "1.1.0") == expected
    assert {path.name for path in data.iterdir()} == {"1.1.0"}


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_nothing_is_prepared(tmp_path, shrunk):
    small.plantnet(tmp_path / "manual")
    done = command(
        "tests.train.data.interrupted",
        "full disk",
        str(tmp_path / "manual"),
        str(tmp_path / "data"),
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    unfinished = tmp_path / "data/plantnet300k/incomplete.1.1.0"
    assert line.startswith(
        f"error: cannot write {unfinished}/plantnet300k-train.array_record-00000"
    )
    assert "File too large" in line
    assert shards_of(unfinished) == {}
    assert list(unfinished.glob(".*.tmp")) == []
    run(tmp_path / "manual", tmp_path / "data")


def test_a_disk_that_is_too_small_is_noticed_before_the_work(tmp_path, shrunk, monkeypatch):
    small.plantnet(tmp_path / "manual")
    usage = preparation.shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(preparation.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        OSError, match=r"too small: .* GB are needed and 0\.0 GB are free"
    ) as caught:
        run(tmp_path / "manual", tmp_path / "data")
    assert caught.value.filename == str(tmp_path / "data/plantnet300k/incomplete.1.1.0")


def interrupt_after(monkeypatch, count):
    """Has the preparation fail after some shards."""
    original, calls = shards.write, []

    def write(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) > count:
            raise KeyboardInterrupt
        return original(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "write", write)
        yield


def interrupted(monkeypatch, tmp_path, count):
    patched = interrupt_after(monkeypatch, count)
    next(patched)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "manual", tmp_path / "data")
    next(patched, None)
    return tmp_path / "data/plantnet300k/incomplete.1.1.0"


@pytest.mark.parametrize("damage", ["shorter", "gone", "another content"])
def test_a_shard_that_is_not_as_noted_is_written_again(tmp_path, shrunk, monkeypatch, damage):
    small.plantnet(tmp_path / "manual")
    unfinished = interrupted(monkeypatch, tmp_path, 3)
    victim = sorted(unfinished.glob("*array_record*"))[1]
    size = victim.stat().st_size
    if damage == "gone":
        victim.unlink()
    else:
        victim.write_bytes(b"x" * (size if damage == "another content" else size // 2))
    run(tmp_path / "manual", tmp_path / "data")
    run(tmp_path / "manual", tmp_path / "uninterrupted")
    final = tmp_path / "data/plantnet300k/1.1.0"
    assert contents_of(final) == contents_of(tmp_path / "uninterrupted/plantnet300k/1.1.0")


def test_a_torn_line_of_the_journal_is_dropped(tmp_path, shrunk, monkeypatch, capsys):
    small.plantnet(tmp_path / "manual")
    journal = interrupted(monkeypatch, tmp_path, 3) / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    unfinished = interrupted(monkeypatch, tmp_path, 1)
    assert "going on: 15 of 48 images" in capsys.readouterr().out
    # The journal is whole again: what is added to it is not glued to the torn line.
    assert len((unfinished / "journal.jsonl").read_bytes().splitlines()) == 1 + 3
    run(tmp_path / "manual", tmp_path / "data")
    assert "going on: 22 of 48 images" in capsys.readouterr().out


def test_with_other_contents_everything_is_written_anew(tmp_path, shrunk, monkeypatch, capsys):
    files = small.plantnet(tmp_path / "manual")
    interrupted(monkeypatch, tmp_path, 3)
    changed = next(path for path in files if "images/train" in path)
    files[changed] = archives.jpeg(99)
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    run(tmp_path / "manual", tmp_path / "data")
    assert "going on" not in capsys.readouterr().out
    run(tmp_path / "manual", tmp_path / "uninterrupted")
    final = tmp_path / "data/plantnet300k/1.1.0"
    assert contents_of(final) == contents_of(tmp_path / "uninterrupted/plantnet300k/1.1.0")


def test_images_skipped_in_an_earlier_start_are_not_skipped_unasked(tmp_path, shrunk, monkeypatch):
    files = small.plantnet(tmp_path / "manual")
    bad = f"plantnet_300K/images/train/{small.SPECIES[0]}/0.jpg"
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", {**files, bad: b"text"})
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "_describe", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "manual", tmp_path / "data", skip_unreadable=True)
    with pytest.raises(UserError, match=r"0\.jpg in .* is neither a JPEG nor a PNG"):
        run(tmp_path / "manual", tmp_path / "data")


def test_two_preparations_of_one_data_set_do_not_mix(tmp_path, shrunk):
    small.plantnet(tmp_path / "manual")
    unfinished = tmp_path / "data/plantnet300k/incomplete.1.1.0"
    unfinished.mkdir(parents=True)
    with (
        preparation.locked(unfinished),
        pytest.raises(UserError, match=f"another preparation is writing to {unfinished}"),
    ):
        run(tmp_path / "manual", tmp_path / "data")


def test_what_is_prepared_is_not_prepared_again(tmp_path, shrunk, capsys):
    small.plantnet(tmp_path / "manual")
    run(tmp_path / "manual", tmp_path / "data")
    before = shards_of(tmp_path / "data/plantnet300k/1.1.0")
    (tmp_path / "manual/plantnet_300K.zip").unlink()
    run(tmp_path / "manual", tmp_path / "data")
    assert "plantnet300k is prepared already" in capsys.readouterr().out
    assert shards_of(tmp_path / "data/plantnet300k/1.1.0") == before


def test_a_folder_with_something_else_in_it_is_not_written_to(tmp_path, shrunk):
    small.plantnet(tmp_path / "manual")
    other = tmp_path / "data/plantnet300k/1.1.0/notes.txt"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    with pytest.raises(UserError, match="exists and is not a whole prepared data set; delete it"):
        run(tmp_path / "manual", tmp_path / "data")
    assert other.read_text() == "mine"


@pytest.mark.parametrize(
    ("archives_there", "named"),
    [((), "ILSVRC2012_img_train.tar"), (("train",), "ILSVRC2012_img_val.tar")],
)
def test_missing_imagenet_archives_are_named_with_where_to_get_them(
    tmp_path, archives_there, named
):
    for part in archives_there:
        (tmp_path / f"ILSVRC2012_img_{part}.tar").write_bytes(b"")
    with pytest.raises(UserError, match=rf"{named} .* is not in .*image-net.org/download-images"):
        prepare.prepare(
            "imagenet",
            data_dir=str(tmp_path / "data"),
            manual_dir=str(tmp_path),
            skip_unreadable=False,
        )


def test_without_tensorflow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_preparation.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs TensorFlow, .* pip install '\.\[train,prep"):
        prepare.prepare(
            "cifar100",
            data_dir=str(tmp_path),
            manual_dir=str(tmp_path),
            skip_unreadable=False,
        )


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["digits", "plantnet300k", "plantnet300k_v2"])
def test_the_command_prepares_with_the_true_number_of_classes(tmp_path, dataset):
    if dataset == "plantnet300k":
        archives.plantnet_zip(tmp_path / "manual")
    elif dataset == "plantnet300k_v2":
        archives.plantnet_v2(tmp_path / "manual")
    flags = [f"--data_dir={tmp_path / 'data'}", f"--manual_dir={tmp_path / 'manual'}"]
    done = command("train.prepare", f"--dataset={dataset}", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    classes = {"digits": "10", "plantnet300k": "1,081", "plantnet300k_v2": "1,000"}[dataset]
    lines = done.stdout.splitlines()
    assert lines[-2].startswith(f"{dataset}: {classes} classes; images: ")
    assert lines[-1].startswith(f"prepared in {tmp_path / 'data' / dataset}/")
    if dataset != "digits":
        total = int(classes.replace(",", "")) * 3
        assert lines[-3] == f"checking and writing: {total:,} of {total:,} images"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--dataset is needed: it must be one of cifar100, digits,"),
        (["--dataset=plantnet300"], "did you mean 'plantnet300k'?"),
        (["--dataset=plantnet300k", "--manual_dir=/nowhere"], "download plantnet_300K.zip"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(tmp_path, arguments, message):
    done = command("train.prepare", f"--data_dir={tmp_path}", *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_every_moment_of_interruption_is_tested():
    assert {*FINISHED, "full disk"} == set(MOMENTS)
