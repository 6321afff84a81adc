"""`train.prepare` as a command: kills, a full disk, damage, and resuming afterwards."""

import shutil
import tarfile

import pytest

from tests.parts.program.data import archives, small
from tests.parts.program.forked import start
from train import prepare
from train.data.plantnet300k import Plantnet300k
from train.data.preparing import dataset_writer, imagenet, shards
from train.foundation.errors import InterruptedRunError, UserError
from train.sharing.shard import Shard
from train.sharing.share_flags import ChosenShare


@pytest.fixture
def shrunk(monkeypatch):
    small.shrink(monkeypatch.setattr)


def prepare_until(moment, folder):
    """A preparation of the folder's archive, in a process that ends at the moment."""
    return start(
        "tests.parts.program.data.interrupted",
        "--dataset=plantnet300k",
        f"--manual_dir={folder / 'manual'}",
        f"--data_dir={folder / 'data'}",
        environment={"MOMENT": moment},
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


@pytest.mark.parametrize("moment", FINISHED)
def test_after_a_kill_nothing_is_prepared_and_a_second_start_goes_on(
    tmp_path, moment, shrunk, capsys
):
    small.plantnet(tmp_path / "manual")
    killed = prepare_until(moment, tmp_path)
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
    assert f"continuing: {images} of 48 images" in capsys.readouterr().out
    run(tmp_path / "manual", tmp_path / "uninterrupted")
    expected = contents_of(tmp_path / "uninterrupted/plantnet300k/1.1.0")
    assert contents_of(data / "1.1.0") == expected
    assert {path.name for path in data.iterdir()} == {"1.1.0"}


def test_a_full_disk_is_one_line_and_nothing_is_prepared(tmp_path, shrunk):
    small.plantnet(tmp_path / "manual")
    done = prepare_until("full disk", tmp_path)
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
    message = "stopped by SIGINT: the same command continues from here"
    with pytest.raises(InterruptedRunError, match=message):
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
    assert "continuing: 15 of 48 images" in capsys.readouterr().out
    # The journal is intact again: new lines are not appended to the torn line.
    assert len((unfinished / "journal.jsonl").read_bytes().splitlines()) == 1 + 3
    run(tmp_path / "manual", tmp_path / "data")
    assert "continuing: 22 of 48 images" in capsys.readouterr().out


def test_with_other_contents_everything_is_written_anew(tmp_path, shrunk, monkeypatch, capsys):
    files = small.plantnet(tmp_path / "manual")
    interrupted(monkeypatch, tmp_path, 3)
    changed = next(path for path in files if "images/train" in path)
    files[changed] = archives.jpeg(99)
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", files)
    run(tmp_path / "manual", tmp_path / "data")
    assert "continuing" not in capsys.readouterr().out
    run(tmp_path / "manual", tmp_path / "uninterrupted")
    final = tmp_path / "data/plantnet300k/1.1.0"
    assert contents_of(final) == contents_of(tmp_path / "uninterrupted/plantnet300k/1.1.0")


def test_images_skipped_in_an_earlier_start_are_not_skipped_unasked(tmp_path, shrunk, monkeypatch):
    files = small.plantnet(tmp_path / "manual")
    bad = f"plantnet_300K/images/train/{small.SPECIES[0]}/0.jpg"
    archives.write_zip(tmp_path / "manual/plantnet_300K.zip", {**files, bad: b"text"})
    with monkeypatch.context() as patch:
        patch.setattr(dataset_writer, "_describe", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "manual", tmp_path / "data", skip_unreadable=True)
    with pytest.raises(UserError, match=r"0\.jpg in .* is neither a JPEG nor a PNG"):
        run(tmp_path / "manual", tmp_path / "data")


def test_shares_of_processes_become_the_files_of_one(tmp_path, shrunk, monkeypatch, capsys):
    small.plantnet(tmp_path / "manual")

    def share(index=None):
        shard = None if index is None else Shard(index, 3)
        shared = ChosenShare(shard, merges=shard is None, tasks=None)
        run(tmp_path / "manual", tmp_path / "data", shared=shared)

    share(0)
    # The second of seven files of shards is the first of this share.
    patched = interrupt_after(monkeypatch, 1)
    next(patched)
    with pytest.raises(InterruptedRunError):
        share(1)
    next(patched, None)
    with pytest.raises(UserError, match=r"1\.1\.0\.parts lacks the part 2/3"):
        share()
    share(2)
    with pytest.raises(UserError, match=r"files\.1-of-3 is not complete: it has 1 of 2 batches"):
        share()
    share(1)
    data = tmp_path / "data/plantnet300k"
    assert not (data / "1.1.0").exists()
    file = min((data / "incomplete.1.1.0").glob("*array_record*"))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(UserError, match="does not match its part; delete the parts"):
        share()
    file.write_bytes(content)
    capsys.readouterr()
    share()
    assert "1.1.0" in capsys.readouterr().out
    run(tmp_path / "manual", tmp_path / "alone")
    expected = contents_of(tmp_path / "alone/plantnet300k/1.1.0")
    assert contents_of(data / "1.1.0") == expected
    assert {path.name for path in data.iterdir()} == {"1.1.0"}


def test_two_preparations_of_one_data_set_do_not_mix(tmp_path, shrunk):
    small.plantnet(tmp_path / "manual")
    unfinished = tmp_path / "data/plantnet300k/incomplete.1.1.0"
    unfinished.mkdir(parents=True)
    with (
        dataset_writer.locked(unfinished),
        pytest.raises(UserError, match=f"another preparation is using {unfinished}"),
    ):
        run(tmp_path / "manual", tmp_path / "data")


def test_a_folder_with_something_else_in_it_is_not_written_to(tmp_path, shrunk):
    small.plantnet(tmp_path / "manual")
    other = tmp_path / "data/plantnet300k/1.1.0/notes.txt"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    with pytest.raises(
        UserError, match="exists and is not a complete prepared data set; delete it"
    ):
        run(tmp_path / "manual", tmp_path / "data")
    assert other.read_text() == "mine"
    # A link too: no folder gets its name.
    link = other.parent
    shutil.rmtree(link)
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(
        UserError, match="exists and is not a complete prepared data set; delete it"
    ):
        run(tmp_path / "manual", tmp_path / "data")
    assert list(link.parent.iterdir()) == [link]
    with pytest.raises(UserError, match=r"^--data_dir must not be in /proc, a folder"):
        run(tmp_path / "manual", "/proc/self/data")


# A part of ImageNet's archive of archives, which tfds takes for all of it without a warning.
BROKEN_OFF = {
    "a page instead": lambda content, _member: b"<html>404</html>",
    "broken off in a member": lambda content, member: content[: member + 700],
    "broken off between members": lambda content, member: content[:member],
}


@pytest.mark.parametrize("case", BROKEN_OFF)
def test_an_imagenet_archive_that_is_not_whole_is_refused(tmp_path, case):
    archives.imagenet_tars(tmp_path, num_classes=3, num_validation=1)
    archive = tmp_path / "ILSVRC2012_img_train.tar"
    with tarfile.open(archive) as members:
        last = members.getmembers()[-1].offset
    archive.write_bytes(BROKEN_OFF[case](archive.read_bytes(), last))
    message = r"img_train\.tar is not a complete tar archive; .* MD5 checksum is 1d675b47"
    with pytest.raises(UserError, match=message):
        imagenet.check_whole(archive, "1d675b47")


def test_a_whole_archive_is_accepted(tmp_path):
    archives.imagenet_tars(tmp_path, num_classes=3, num_validation=1)
    for part in ("train", "val"):
        imagenet.check_whole(tmp_path / f"ILSVRC2012_img_{part}.tar", "")


def test_the_command_prepares_with_the_true_number_of_classes(tmp_path):
    archives.plantnet_v2(tmp_path / "manual")
    flags = [f"--data_dir={tmp_path / 'data'}", f"--manual_dir={tmp_path / 'manual'}"]
    done = start("train.prepare", "--dataset=plantnet300k_v2", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    *_, counted, found, place = done.stdout.splitlines()
    assert counted == "checking and writing: 3,000 of 3,000 images"
    assert found.startswith("plantnet300k_v2: 1,000 classes; images: ")
    assert place.startswith(f"prepared in {tmp_path / 'data' / 'plantnet300k_v2'}/")
