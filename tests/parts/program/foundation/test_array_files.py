"""Arrays in files of others: read as they were written, or refused before they take memory."""

import io
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from train.foundation import array_files
from train.foundation.errors import UserError
from train.foundation.stored_rows import StoredRows

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "big_endian": np.arange(3, dtype=">i2"),
    "texts": np.array(["ash", "bîrch", ""]),
    "bytes": np.array([b"ab", b"c"]),
    "booleans": np.array([[True], [False]]),
    "number": np.array(7),
    "none": np.zeros((0, 3), np.int8),
    # More than is read at a time.
    "long": np.arange(300_001, dtype=np.float64),
}


def npz(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def npy(header, content):
    """An .npy file with a given header."""
    text = f"{header!r}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def described(descr, *shape):
    return {"descr": descr, "fortran_order": False, "shape": shape}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_archive_are_what_was_written(save, tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(npz(save, **ARRAYS))
    for file in (path, io.BytesIO(path.read_bytes())):
        found = array_files.in_npz(file)
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            read = found[name]().read()
            assert (read.dtype, read.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(read, array)
            assert read.flags.c_contiguous


@pytest.mark.parametrize("name", ARRAYS)
def test_the_array_of_a_file_is_what_was_written(name, tmp_path):
    np.save(tmp_path / "a.npy", ARRAYS[name])
    read = array_files.in_npy(tmp_path / "a.npy").read()
    assert (read.dtype, read.shape) == (ARRAYS[name].dtype, ARRAYS[name].shape)
    np.testing.assert_array_equal(read, ARRAYS[name])


# The header of a file with 24 bytes of numbers, and why it is refused.
HEADERS = {
    "many rows": (
        described("<f4", 2**60, 1),
        r"it is cut short: float32 \[1152921504606846976,",
    ),
    "no bytes": (described("<U0", 2**60), r"its header says that it is <U0 \[1152921504606846976"),
    "void": (described("|V0", 2**60), "its header says that it is"),
    "negative": (described("<f4", -2, -3), r"its header says that it is float32 \[-2, -3\]"),
    "objects": (described("|O", 3), "it has Python objects"),
    "objects inside": (described([("a", "|O")], 3), "it has Python objects"),
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_asks_for_no_more_than_there_is(header, tmp_path):
    said, message = HEADERS[header]
    path = tmp_path / "a.npy"
    path.write_bytes(npy(said, bytes(24)))
    with pytest.raises(ValueError, match=message):
        array_files.in_npy(path)
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
            archive.writestr("a.npy", path.read_bytes())
        with pytest.raises(ValueError, match=message):
            array_files.in_npz(tmp_path / "a.npz")["a"]()


def test_what_does_not_fit_into_memory_is_not_begun(tmp_path):
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, described("<f8", 2**40))
        # 8 TB without a byte on the disk.
        file.truncate(file.tell() + 2**43)
    with pytest.raises(UserError, match="its numbers need 8,796 GB of memory; this machine has"):
        array_files.in_npy(path).read()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_changed_bit_of_the_numbers_is_found(save, rng, tmp_path):
    array = rng.normal(size=(20, 5)).astype(np.float32)
    whole = npz(save, a=array)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        member = archive.getinfo("a.npy")
    first = whole.index(array.tobytes()[:8]) if save is np.savez else len(whole) - 400
    assert member.compress_size > 200
    for place in rng.integers(first, first + 200, 20):
        content = bytearray(whole)
        content[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises((zipfile.BadZipFile, zlib.error, ValueError)):
            array_files.in_npz(tmp_path / "a.npz")["a"]().read()


def test_a_member_has_an_array_and_nothing_behind_it(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", npy(described("<f4", 6), bytes(25)))
    with pytest.raises(ValueError, match="it has more bytes than its header says"):
        array_files.in_npz(tmp_path / "a.npz")["a"]()


# Rows


def stored(path, array, *, checksum=True):
    """The rows of an array in a file."""
    if checksum:
        path.write_bytes(npz(a=array))
        found = array_files.in_npz(path)["a"]().rows()
    else:
        np.save(path, array)
        found = array_files.in_npy(path).rows()
    assert isinstance(found, StoredRows)
    return found


@pytest.mark.parametrize(
    ("checksum", "dtype"), [(True, np.float16), (False, np.float32), (True, np.float64)]
)
def test_rows_are_read_where_they_are(checksum, dtype, rng, tmp_path):
    array = rng.normal(size=(20, 3)).astype(dtype)
    rows = stored(tmp_path / "a.npy", array, checksum=checksum)
    assert (len(rows), rows.shape, rows.dtype) == (20, (20, 3), dtype)
    slices = ((None,), (3, 9), (9, 3), (19, 30), (2, 20, 5), (-2, None))
    places = ([4, 5, 6], [19, 0, 7, 7], [3], [], [0], [2, 1, 0])
    for one in (
        *(slice(*ends) for ends in slices),
        *(np.array(place, np.int64) for place in places),
    ):
        np.testing.assert_array_equal(rows[one], array[one])
        assert rows[one].dtype == dtype
    for place in ([20], [-1]):
        with pytest.raises(IndexError, match="rows must be from 0 to 19"):
            rows[np.array(place)]


def cut_short(path):
    with path.open("r+b") as file:
        file.truncate(200)


def written_anew(path):
    np.save(path, np.zeros((20, 3)))


@pytest.mark.parametrize("change", [cut_short, written_anew])
def test_a_file_that_changes_while_rows_are_read_is_an_error(change, tmp_path):
    rows = stored(tmp_path / "a.npy", np.ones((20, 3)), checksum=False)
    assert (rows[5:7] == 1).all()
    change(tmp_path / "a.npy")
    for chosen in (slice(0, 2), slice(15, 20), np.array([17, 3])):
        with pytest.raises(UserError, match=r"a\.npy was changed while its rows were read$"):
            rows[chosen]


def test_some_rows_take_no_more_memory_than_they_need(tmp_path):
    rows = 5000
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, described("<f4", rows, 2**18))
        # 5 GB without a byte on the disk.
        file.truncate(file.tell() + rows * 2**20)
    tracemalloc.start()
    found = array_files.in_npy(tmp_path / "a.npy").rows()
    assert found[np.array([4999, 0])].shape == (2, 2**18)
    assert found[4998:].shape == (2, 2**18)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Two rows of 1 MiB each, and their parts once more.
    assert peak < 8 * 2**20
