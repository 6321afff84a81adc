"""Parts of a work: written, stopped, gone on with, and merged; what does not fit is refused."""

import os
import shutil
from functools import partial

import numpy as np
import pytest

from train.foundation.errors import UserError
from train.sharing import part_files
from train.sharing.part_files import Head
from train.sharing.shard import Shard
from train.sharing.sharing import Merges, WritesPart, taking_part
from train.sharing.work import (
    ALONE,
    Work,
    arrays_from_bytes,
    arrays_to_bytes,
    counting,
)

KIND = {"command": "test", "network": "n", "flags": '{"top_k": 3}', "inputs": "i"}


def squares(number, computed=None, name="squares", stop_at=None):
    """The squares of some numbers; it notes what is computed."""

    def compute(units):
        for unit in units:
            if unit == stop_at:
                raise KeyboardInterrupt
            if computed is not None:
                computed.append(unit)
            yield unit**2

    return Work(
        name,
        "squaring",
        "numbers",
        number,
        counting(number, 1),
        compute,
        lambda result: str(result).encode(),
        int,
    )


def write(out, index, number, work=None, kind=KIND):
    share = WritesPart(out, Shard(index, number), kind)
    with taking_part(share) as part:
        share.results(squares(10) if work is None else work)
    assert part.is_written


def merge(out, work=None, kind=KIND):
    share = Merges(out, kind)
    with taking_part(share) as part:
        found = list(share.results(squares(10) if work is None else work))
    assert not part.is_written
    return found


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.txt"


@pytest.mark.parametrize("number", [1, 3, 25])
def test_merged_parts_are_what_one_process_computes(out, number):
    for index in reversed(range(number)):
        write(out, index, number)
    assert merge(out) == list(ALONE.results(squares(10))) == [n**2 for n in range(10)]
    # The parts are in the output now.
    assert list(out.parent.iterdir()) == []


def test_a_work_without_units_has_empty_parts(out):
    for index in range(2):
        write(out, index, 2, squares(0))
    assert merge(out, squares(0)) == []


def test_several_works_have_parts_of_their_own(out):
    works = [squares(10), squares(4, name="others")]
    for index in range(2):
        share = WritesPart(out, Shard(index, 2), KIND)
        for work in works:
            share.only(partial(share.results, work))
    share = Merges(out, KIND)
    assert [len([*share.results(work)]) for work in works] == [10, 4]


def test_a_part_that_was_stopped_goes_on(out, capsys):
    with pytest.raises(KeyboardInterrupt):
        write(out, 1, 2, squares(10, stop_at=8))
    computed = []
    write(out, 1, 2, squares(10, computed))
    assert computed == [8, 9]
    assert "continuing after 3 of 5 numbers" in capsys.readouterr().out
    computed.clear()
    write(out, 1, 2, squares(10, computed))
    assert computed == []


DAMAGES = {
    "all lost": (lambda content: b"", [0, 1, 2, 3, 4]),
    "torn result": (lambda content: content[:-1], [4]),
    "zeros, as of a power cut": (lambda content: content[:-27] + bytes(27), [3, 4]),
    "a length that no file has": (lambda content: content[:-14] + b"\xff" * 14, [4]),
    "a bit": (lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:], [4]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_computed_again(out, damage):
    write(out, 0, 2)
    write(out, 1, 2)
    path = out.with_name("out.txt.parts") / "squares.0-of-2"
    change, again = DAMAGES[damage]
    path.write_bytes(change(path.read_bytes()))
    if again:
        with pytest.raises(UserError, match=r"squares\.0-of-2 is "):
            merge(out)
    computed = []
    write(out, 0, 2, squares(10, computed))
    assert computed == again
    assert merge(out) == [n**2 for n in range(10)]


def parts_of(out, number=3):
    for index in range(number):
        write(out, index, number)
    return out.with_name("out.txt.parts")


def test_missing_parts_are_named(out):
    folder = parts_of(out)
    (folder / "squares.1-of-3").unlink()
    with pytest.raises(UserError, match=r"lacks the part 1/3; the command with --shard=1/3 in"):
        merge(out)
    # The others are still there.
    write(out, 1, 3)
    assert len(merge(out)) == 10
    with pytest.raises(UserError, match=r"there are no parts in .*out\.txt\.parts; the command w"):
        merge(out)


def test_a_part_that_is_there_twice_is_refused(out):
    folder = parts_of(out)
    shutil.copy(folder / "squares.1-of-3", folder / "copy")
    with pytest.raises(
        UserError, match=r"part 1/3 is there twice, as .*copy and .*squares\.1-of-3"
    ):
        merge(out)
    # Under the name of a missing one, too.
    (folder / "copy").rename(folder / "squares.2-of-3")
    with pytest.raises(UserError, match=r"part 1/3 is there twice"):
        merge(out)


def test_parts_of_other_numbers_of_shares_are_refused(out):
    folder = parts_of(out)
    with pytest.raises(
        UserError, match=r"squares\.0-of-3 has results of 3 shares, not 4; delete it"
    ):
        write(out, 1, 4)
    assert not (folder / "squares.1-of-4").exists()
    other = out.with_name("other")
    write(other, 1, 4)
    shutil.copy(other.with_name("other.parts") / "squares.1-of-4", folder)
    with pytest.raises(
        UserError, match=r"has parts of 3 shares and of 4, such as squares\.0-of-3 and sq"
    ):
        merge(out)


def test_a_part_cut_short_is_refused(out):
    path = parts_of(out) / "squares.2-of-3"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(UserError, match=r"2-of-3 is not complete: it has 3 of 4 batches; the comm"):
        merge(out)


OTHERS = {
    "inputs": ("other", "other inputs: files were added, removed or changed since"),
    "flags": ('{"top_k": 5, "nested": true}', r"other flags \(--nested, --top_k\)"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_parts_of_another_kind_are_refused(out, name):
    value, words = OTHERS[name]
    other = KIND | {name: value}
    folder = parts_of(out)
    # Before it computes anything.
    computed = []
    with pytest.raises(UserError, match=rf"squares\.0-of-3 has results of {words}"):
        write(out, 1, 3, squares(10, computed), other)
    with pytest.raises(UserError, match=rf"squares\.0-of-3 has results of {words}"):
        merge(out, kind=other)
    # Its own part, begun otherwise.
    (folder / "squares.0-of-3").rename(folder.parent / "kept")
    (folder / "squares.2-of-3").unlink()
    with pytest.raises(UserError, match=rf"squares\.1-of-3 has results of {words}.*give another"):
        write(out, 1, 3, squares(10, computed), other)
    assert computed == []
    assert (folder / "squares.1-of-3").exists()


def test_inputs_of_another_number_are_refused(out):
    parts_of(out)
    with pytest.raises(UserError, match="results of other inputs"):
        merge(out, squares(11))


def test_two_processes_do_not_write_one_part(tmp_path):
    head = Head("work", 0, 1, 3, KIND)
    path = tmp_path / "work.0-of-1"
    with part_files.opened(path, head) as part:
        again = part_files.opened(path, head)
        with pytest.raises(UserError, match=r"another process is using .*0-of-1; wait"), again:
            pass
        part.add(b"abc")
        # As soon as it is added.
        assert path.stat().st_size == len(head.to_line()) + 8 + 3 + 4
    assert part_files.read_head(path) == head


def test_arrays_are_the_same_as_bytes_and_back():
    arrays = {
        "scores": np.array([[np.nan, -np.inf], [0.1, 5e-324]]),
        "labels": np.array([3, -1], np.int32),
        "none": np.zeros((0, 4), bool),
    }
    found, fields = arrays_from_bytes(arrays_to_bytes(arrays, [{"image": "a\udce4.png"}]))
    assert fields == [{"image": "a\udce4.png"}]
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
