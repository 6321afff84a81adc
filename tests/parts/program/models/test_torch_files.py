"""Files of torch.save are read as they were written, and those that ask for more are refused."""

import pickle
import re

import numpy as np
import pytest

from tests.promises import torch_files as writer
from train.foundation.errors import UserError
from train.models.weights import files

NUMBERS = np.arange(24, dtype=np.float32)
WEIGHT = writer.tensor(NUMBERS)
STATE_DICT = writer.build(
    writer.ordered({"weight": WEIGHT}), {"_metadata": writer.ordered({"": {"version": 1}})}
)
# As PyTorch before 0.4 wrote it, with flags that were set afterwards.
OLD_PARAMETER = writer.build(
    writer.call(writer.name("torch.nn.parameter", "Parameter"), WEIGHT), (True, False)
)
REBUILD = writer.name("torch._utils", "_rebuild_tensor_v2")
each_format = pytest.mark.parametrize("to_bytes", writer.FORMATS.values(), ids=writer.FORMATS)


def read(content, folder):
    path = folder / "weights.pth"
    path.write_bytes(content)
    return files.read(path)


def refused(content, folder, match):
    """Reads a file, which is refused in one line that names it."""
    with pytest.raises(UserError, match=match) as caught:
        read(content, folder)
    assert str(caught.value).startswith(f"config.model.pretrained: {folder}/weights.pth ")
    assert "\n" not in str(caught.value)


@each_format
@pytest.mark.parametrize("dtype", writer.TYPES, ids=str)
def test_types(to_bytes, dtype, tmp_path):
    array = np.array([[0, 1, 2], [3, 100, 1]]).astype(dtype)
    (found,) = read(to_bytes({"weight": writer.tensor(array)}), tmp_path).values()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)


# Views, and the same in NumPy.
VIEWS = {
    "transposed": (writer.Tensor(NUMBERS, 0, (6, 4), (1, 6)), NUMBERS.reshape(4, 6).T),
    "inside": (writer.Tensor(NUMBERS, 7, (2, 3), (6, 2)), [[7, 9, 11], [13, 15, 17]]),
    "last": (writer.Tensor(NUMBERS, 23, (), ()), 23),
    "of one": (writer.Tensor(NUMBERS, 5, (1, 2), (99, 1)), [[5, 6]]),
    "expanded": (writer.Tensor(NUMBERS, 3, (2, 5), (1, 0)), [[3] * 5, [4] * 5]),
    "empty": (writer.Tensor(NUMBERS, 24, (0, 3), (3, 1)), np.zeros((0, 3))),
    "none": (writer.tensor(np.zeros((2, 0))), np.zeros((2, 0))),
    "other": (writer.tensor(np.float64(3)), 3),
}


@each_format
def test_views(to_bytes, tmp_path):
    found = read(to_bytes({name: tensor for name, (tensor, _) in VIEWS.items()}), tmp_path)
    assert found.keys() == VIEWS.keys()
    for name, (_, expected) in VIEWS.items():
        np.testing.assert_array_equal(found[name], expected, strict=False)
        assert found[name].shape == np.shape(expected)
        assert not found[name].flags.writeable


@each_format
@pytest.mark.parametrize(
    "saved",
    [
        {"weight": WEIGHT},
        {"epoch": 29, "model": STATE_DICT, "optimizer": {"state": {0: {"momentum": WEIGHT}}}},
        {"model": {"state_dict": STATE_DICT}},
        {"module.weight": WEIGHT, "version": 2},
        {"state_dict": writer.ordered({"module._orig_mod.weight": WEIGHT})},
        {"weight": writer.parameter(WEIGHT)},
        {"weight": OLD_PARAMETER},
    ],
)
def test_finds_the_state_dict(to_bytes, saved, tmp_path):
    found = read(to_bytes(saved), tmp_path)
    assert list(found) == ["weight"]
    np.testing.assert_array_equal(found["weight"], NUMBERS)


def test_no_state_dict(tmp_path):
    # A dictionary that holds itself: memo[0] = {}; memo[0]["model"] = memo[0].
    circle = writer.Opcodes(b"}q\x00X\x05\x00\x00\x00modelh\x00s")
    for saved in ({"weight": 3}, [WEIGHT], {"model": {}}, {3: WEIGHT}, WEIGHT, circle):
        refused(writer.zip_file(saved), tmp_path, r"has no state dict, neither by itself nor ")


# A reader that followed it would make a file, or reach a function that could.
CODE = pickle.dumps("open('ran', 'w')", protocol=2)[2:-1]
ATTACKS = {
    "posix.system": writer.call(writer.name("posix", "system"), "touch ran"),
    "builtins.getattr": writer.call(writer.name("builtins", "getattr"), 1, "real"),
    "torch.FloatStorage.__class__": writer.name("torch", "FloatStorage.__class__"),
    # The other opcodes that call something: by names on the stack, INST, OBJ and NEWOBJ.
    "builtins.eval": writer.Opcodes(b"\x8c\x08builtins\x8c\x04eval\x93(" + CODE + b"tR"),
    "builtins.exec": writer.Opcodes(b"(" + CODE + b"ibuiltins\nexec\n"),
    "subprocess.Popen": writer.Opcodes(b"(csubprocess\nPopen\n" + CODE + b"o"),
    "pathlib.Path": writer.Opcodes(b"cpathlib\nPath\n)\x81"),
    # Names that would break a message, or a terminal.
    r"a\nb\x1b[31m.c": writer.Opcodes(b"\x8c\x08a\nb\x1b[31m\x8c\x01c\x93"),
}


@each_format
@pytest.mark.parametrize("name", ATTACKS)
def test_refuses_to_call(to_bytes, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for saved in (ATTACKS[name], {"weight": WEIGHT, "extra": ATTACKS[name]}):
        refused(to_bytes(saved), tmp_path, f"asks for '{re.escape(name)}', which is refused")
    assert not (tmp_path / "ran").exists()


def test_every_pickle_of_a_file_is_guarded(tmp_path):
    attack = b"\x80\x02" + writer.write(ATTACKS["posix.system"], []) + b"."
    heads = [pickle.dumps(head, 2) for head in (0x1950A86A20F9469CFC6C, 1001, {}, {})]
    for count in range(5):  # In the place of each head, of the state dict, of the keys.
        refused(b"".join(heads[:count]) + attack, tmp_path, r"asks for 'posix\.system'")


@pytest.mark.parametrize("state", [{"function": 1, "dtype": 1}, ({}, {"function": 1, "dtype": 1})])
@pytest.mark.parametrize("name", ["torch._utils _rebuild_tensor_v2", "torch FloatStorage"])
def test_a_pickle_cannot_change_what_reads_it(name, state, tmp_path):
    changed = writer.build(writer.name(*name.split()), state)
    refused(writer.zip_file({"weight": WEIGHT, "extra": changed}), tmp_path, "cannot be read as")
    assert read(writer.zip_file({"weight": WEIGHT}), tmp_path)["weight"].tolist() == [*range(24)]


# What a pickle can make with the attributes of a storage of 2^40 numbers.
FORGED = writer.build(writer.ordered({}), {"key": "0", "size": 2**40, "dtype": "f4"})


@each_format
@pytest.mark.parametrize(
    "tensor",
    [
        writer.Tensor(NUMBERS, 1, (24,), (1,)),
        writer.Tensor(NUMBERS, 24, (), ()),
        writer.Tensor(NUMBERS, 0, (4, 6), (7, 1)),
        writer.Tensor(NUMBERS, -1, (2,), (1,)),
        writer.Tensor(NUMBERS, 4, (2,), (-1,)),
        writer.Tensor(NUMBERS, 0, (2, 3), (1,)),
        writer.Tensor(NUMBERS, 0, (2.0,), (1,)),
        writer.Tensor(NUMBERS, True, (2,), (1,)),
        # NumPy's own check of this one overflows: in bytes, the last number is at 2^64.
        writer.Tensor(NUMBERS, 0, (9,), (2**59,)),
        writer.Tensor(NUMBERS, 0, (1,) * 65, (1,) * 65),
        writer.call(REBUILD, 3, 0, (1,), (1,)),
        writer.call(REBUILD, FORGED, 2**30, (1,), (1,)),
    ],
)
def test_a_tensor_outside_of_its_storage(to_bytes, tensor, tmp_path):
    refused(to_bytes({"first": WEIGHT, "weight": tensor}), tmp_path, "cannot be read as")


def test_what_would_be_read_as_other_numbers_is_refused(tmp_path):
    refused(writer.zip_file({"weight": WEIGHT}, byteorder="big"), tmp_path, "big-endian")
    old = writer.legacy_file({"weight": WEIGHT}, tail=(("1", 0, 3),))
    refused(old, tmp_path, "has views of storages, as only PyTorch before")
