"""Files of torch.save are read as they were written, and those that ask for more are refused."""

import pickle
import re

import numpy as np
import pytest

from tests.parts.program.models import torch_writer as writer
from train.foundation.errors import UserError
from train.models.weights import torch_files

NUMBERS = np.arange(24, dtype=np.float32)
each_format = pytest.mark.parametrize("to_bytes", writer.FORMATS.values(), ids=writer.FORMATS)


def read(content, tmp_path):
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    with path.open("rb") as file:
        return torch_files.read_state_dict(file)


@each_format
@pytest.mark.parametrize("dtype", writer.TYPES, ids=str)
def test_types(to_bytes, dtype, tmp_path):
    array = np.array([[0, 1, 2], [3, 100, 1]]).astype(dtype)
    (found,) = read(to_bytes({"weight": writer.tensor(array)}), tmp_path).values()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)


@each_format
def test_views(to_bytes, tmp_path):
    tensors = {
        "transposed": writer.Tensor(NUMBERS, 0, (6, 4), (1, 6)),
        "inside": writer.Tensor(NUMBERS, 7, (2, 3), (6, 2)),
        "last": writer.Tensor(NUMBERS, 23, (), ()),
        "of one": writer.Tensor(NUMBERS, 5, (1, 2), (2**62, 1)),
        "expanded": writer.Tensor(NUMBERS, 3, (2, 5), (1, 0)),
        "empty": writer.Tensor(NUMBERS, 24, (0, 3), (3, 1)),
        "none": writer.tensor(np.zeros((2, 0))),
        "other": writer.tensor(np.float64(3)),
    }
    found = read(to_bytes(tensors), tmp_path)
    expected = {
        "transposed": NUMBERS.reshape(4, 6).T,
        "inside": [[7, 9, 11], [13, 15, 17]],
        "last": 23,
        "of one": [[5, 6]],
        "expanded": [[3] * 5, [4] * 5],
        "empty": np.zeros((0, 3)),
        "none": np.zeros((2, 0)),
        "other": 3,
    }
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], strict=False)
        assert array.shape == np.shape(expected[name])
        assert not array.flags.writeable


@each_format
@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        # A file of a kilobyte, and a tensor of 2^40 numbers.
        ((2**20, 2**20), (0, 0)),
        ((2**62,) * 64, (0,) * 64),
        # Windows of 12 numbers; each starts one number after the one before.
        ((13, 12), (1, 1)),
        ((5, 1, 5), (0, 9, 1)),
    ],
)
def test_a_tensor_of_more_numbers_than_it_is_stored_in(to_bytes, shape, strides, tmp_path):
    tensor = writer.Tensor(NUMBERS, 0, shape, strides)
    with pytest.raises(UserError, match=r"^has 'weight' of shape .*, and 24 numbers for it; in P"):
        read(to_bytes({"weight": tensor}), tmp_path)


@each_format
def test_names_for_the_same_numbers(to_bytes, tmp_path):
    shared = {str(name): writer.Tensor(NUMBERS, 0, (4, 6), (6, 1)) for name in range(8)}
    assert len(read(to_bytes(shared), tmp_path)) == 8
    message = r"^has 9 tensors of 772 bytes, which are views of 96 bytes$"
    with pytest.raises(UserError, match=message):
        read(to_bytes(shared | {"more": writer.Tensor(NUMBERS, 23, (), ())}), tmp_path)


WEIGHT = writer.tensor(NUMBERS)
OTHER = writer.tensor(np.ones(3, np.float32))
OPTIMIZER = {"state": {0: {"momentum_buffer": OTHER}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
STATE_DICT = writer.Build(
    writer.ordered({"weight": WEIGHT}), {"_metadata": writer.ordered({"": {"version": 1}})}
)


@each_format
@pytest.mark.parametrize(
    "saved",
    [
        {"weight": WEIGHT},
        STATE_DICT,
        {"epoch": 29, "model": STATE_DICT, "optimizer": OPTIMIZER},
        {"state_dict": STATE_DICT, "best": 0.7, "arch": "resnet18"},
        {"epoch": 3, "model_state_dict": STATE_DICT, "done": True, "scheduler": None},
        {"model": {"state_dict": STATE_DICT}},
        {"module.weight": WEIGHT, "version": 2},
        {"state_dict": writer.ordered({"module._orig_mod.weight": WEIGHT})},
        {"weight": writer.parameter(WEIGHT)},
        # As PyTorch before 0.4 wrote parameters, with flags that were set afterwards.
        {
            "weight": writer.Build(
                writer.Call(writer.Global("torch.nn.parameter", "Parameter"), (WEIGHT,)),
                (True, False, writer.ordered({})),
            )
        },
    ],
)
def test_finds_the_state_dict(to_bytes, saved, tmp_path):
    found = read(to_bytes(saved), tmp_path)
    assert list(found) == ["weight"]
    np.testing.assert_array_equal(found["weight"], NUMBERS)


@pytest.mark.parametrize(
    "saved", [{"weight": 3}, [WEIGHT], 5, {}, {"model": {}}, {3: WEIGHT}, WEIGHT], ids=repr
)
def test_no_state_dict(saved, tmp_path):
    with pytest.raises(
        UserError, match=r"^has no state dict, neither by itself nor under .* model$"
    ):
        read(writer.zip_bytes(saved), tmp_path)


def test_a_dictionary_that_holds_itself(tmp_path):
    # memo[0] = {}; memo[0]["model"] = memo[0]
    circle = writer.Raw(b"}q\x00X\x05\x00\x00\x00modelh\x00s")
    with pytest.raises(UserError, match="has no state dict"):
        read(writer.zip_bytes(circle), tmp_path)


# A tuple that holds one tuple twice, which holds one twice, and so on: its hash takes 2^16 steps,
# and each further level doubles them.
BOMB = writer.Raw(b")" + 16 * b"2\x86")
# Keys of dictionaries, in all ways to make one, members of sets, and the name of a storage.
HASHED = {
    "SETITEM": writer.Raw(b"}" + BOMB.opcodes + b"K\x01s"),
    "SETITEMS": writer.Raw(b"}(K\x01K\x02" + BOMB.opcodes + b"K\x01u"),
    "DICT": writer.Raw(b"(" + BOMB.opcodes + b"K\x01d"),
    "ADDITEMS": writer.Raw(b"\x8f(" + BOMB.opcodes + b"\x90"),
    "FROZENSET": writer.Raw(b"(" + BOMB.opcodes + b"\x91"),
    "OrderedDict": writer.Call(writer.Global("collections", "OrderedDict"), ([[BOMB, 1]],)),
    "storage": writer.Raw(
        writer.opcodes(
            ("storage", writer.Global("torch", "FloatStorage"), BOMB, "cpu", 3), writer.Storages()
        )
        + b"Q"
    ),
}


@pytest.mark.parametrize("place", HASHED)
def test_nothing_but_texts_and_numbers_is_hashed(place, tmp_path):
    with pytest.raises(TypeError, match=r"^a key is neither a text nor a number, but a tuple$"):
        read(writer.zip_bytes({"weight": WEIGHT, "extra": HASHED[place]}), tmp_path)


# A reader that followed it would make a file, or reach a function that could.
def attacks(target):
    command = (f"touch {target}",)
    code = f"open({str(target)!r}, 'w')"
    text = pickle.dumps(code, protocol=2)[2:-1]
    return {
        "posix.system": writer.Call(writer.Global("posix", "system"), command),
        "os.system": writer.Call(writer.Global("os", "system"), command),
        "__builtin__.eval": writer.Call(writer.Global("__builtin__", "eval"), (code,)),
        "builtins.exec": writer.Call(writer.Global("builtins", "exec"), (code,)),
        "builtins.open": writer.Call(writer.Global("builtins", "open"), (str(target), "w")),
        "builtins.getattr": writer.Call(writer.Global("builtins", "getattr"), (1, "real")),
        "torch.load": writer.Call(writer.Global("torch", "load"), (str(target),)),
        "torch.FloatStorage.__class__": writer.Global("torch", "FloatStorage.__class__"),
        "train.foundation.files.write_whole": writer.Call(
            writer.Global("train.foundation.files", "write_whole"), (str(target), b"")
        ),
        # The other opcodes that call something: by names on the stack, INST, OBJ and NEWOBJ.
        "io.open": writer.Raw(b"\x8c\x02io\x8c\x04open\x93(" + text + b"tR"),
        "builtins.compile": writer.Raw(b"(" + text + b"ibuiltins\ncompile\n"),
        "subprocess.Popen": writer.Raw(b"(csubprocess\nPopen\n" + text + b"o"),
        "pathlib.Path": writer.Raw(b"cpathlib\nPath\n)\x81"),
        # Names that would break a message, or a terminal.
        r"a\nb\x1b[31m.c": writer.Raw(b"\x8c\x08a\nb\x1b[31m\x8c\x01c\x93"),
        "torchvision.models.resnet.ResNet": writer.Raw(
            b"ctorchvision.models.resnet\nResNet\n)\x81"
        ),
    }


@each_format
@pytest.mark.parametrize("name", attacks(""))
def test_refuses_to_call(to_bytes, name, tmp_path):
    target = tmp_path / "run"
    for saved in (attacks(target)[name], {"weight": WEIGHT, "extra": attacks(target)[name]}):
        with pytest.raises(UserError, match=f"^asks for '{re.escape(name)}', which is") as caught:
            read(to_bytes(saved), tmp_path)
        assert "\n" not in str(caught.value)
        assert not target.exists()


def test_every_pickle_of_a_file_is_guarded(tmp_path):
    target = tmp_path / "run"
    attack = writer.Call(writer.Global("posix", "system"), (f"touch {target}",))
    attack_bytes = writer.dumps(attack, writer.Storages())
    heads = [pickle.dumps(head, 2) for head in (0x1950A86A20F9469CFC6C, 1001, {}, {})]
    for count in range(5):  # In the place of each head, of the state dict, of the keys.
        with pytest.raises(UserError, match=r"^asks for 'posix\.system'"):
            read(b"".join(heads[:count]) + attack_bytes, tmp_path)
    assert not target.exists()


@pytest.mark.parametrize(
    "state", [{"function": 1, "dtype": 1}, ({}, {"function": 1}), ({"x": 1}, {"dtype": 1})]
)
@pytest.mark.parametrize(
    "stand_in",
    [
        writer.Global("torch._utils", "_rebuild_tensor_v2"),
        writer.Global("torch", "FloatStorage"),
        writer.Global("collections", "OrderedDict"),
    ],
)
def test_a_pickle_cannot_change_what_reads_it(stand_in, state, tmp_path):
    with pytest.raises((AttributeError, TypeError)):
        read(writer.zip_bytes({"extra": writer.Build(stand_in, state)}), tmp_path)
    np.testing.assert_array_equal(
        read(writer.zip_bytes({"weight": WEIGHT}), tmp_path)["weight"], NUMBERS
    )


@each_format
@pytest.mark.parametrize(
    "tensor",
    [
        writer.Tensor(NUMBERS, 0, (25,), (1,)),
        writer.Tensor(NUMBERS, 1, (24,), (1,)),
        writer.Tensor(NUMBERS, 24, (), ()),
        writer.Tensor(NUMBERS, 0, (4, 6), (7, 1)),
        writer.Tensor(NUMBERS, -1, (2,), (1,)),
        writer.Tensor(NUMBERS, 4, (2,), (-1,)),
        writer.Tensor(NUMBERS, 0, (-1,), (1,)),
        writer.Tensor(NUMBERS, 0, (2, 3), (1,)),
        writer.Tensor(NUMBERS, 0, (2.0,), (1,)),
        writer.Tensor(NUMBERS, True, (2,), (1,)),
        writer.Tensor(NUMBERS, 0, 2, 1),
        writer.Tensor(NUMBERS, 0, (2**62,), (2**62,)),
        # No array is so long, and the product of two such numbers would take long.
        writer.Tensor(NUMBERS, 0, (2**999,), (0,)),
        writer.Tensor(NUMBERS, 0, (1,) * 65, (1,) * 65),
        writer.Call(writer.Global("torch._utils", "_rebuild_tensor_v2"), (3, 0, (1,), (1,))),
    ],
)
def test_a_tensor_outside_of_its_storage(to_bytes, tensor, tmp_path):
    with pytest.raises(ValueError, match=r"values that describe none|reaches beyond"):
        read(to_bytes({"weight": tensor}), tmp_path)


def test_what_would_be_read_as_other_numbers_is_refused(tmp_path):
    for content in (
        writer.zip_bytes({"weight": WEIGHT}, byteorder=b"big"),
        # Views of storages, as of PyTorch before 0.4.
        writer.legacy_bytes({"weight": WEIGHT}, storage_tail=(("1", 0, 3),)),
    ):
        with pytest.raises(UserError):
            read(content, tmp_path)
