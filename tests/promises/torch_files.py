"""Files like those of `torch.save`, written opcode by opcode without PyTorch, and hostile ones."""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

_DTYPES = ("f8", "f4", "f2", jnp.bfloat16, "i8", "i4", "i2", "i1", "u1", "?")
_NAMES = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
TYPES = dict(zip(map(np.dtype, _DTYPES), _NAMES, strict=True))


class Opcodes(NamedTuple):
    """What a pickle can contain and Python objects cannot: values, and what is done with them."""

    opcodes: bytes
    values: tuple[Any, ...] = ()


class Tensor(NamedTuple):
    """A view of a one-dimensional array, with strides in numbers."""

    storage: np.ndarray
    offset: Any
    shape: Any
    strides: Any


class Makes:
    """A pickle of it makes a folder, if its reader calls what it names."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def name(module, name):
    return Opcodes(f"c{module}\n{name}\n".encode())


def call(function, *arguments):
    return Opcodes(b"R", (function, arguments))


def build(made, state):
    """An object, and the state that it is to be given."""
    return Opcodes(b"b", (made, state))


def ordered(items):
    return call(name("collections", "OrderedDict"), [list(item) for item in items.items()])


def parameter(data):
    return call(name("torch._utils", "_rebuild_parameter"), data, True, ordered({}))


def tensor(array):
    """The tensor of an array; its storage has the order of the array in memory."""
    array = np.asarray(array)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Tensor(array.ravel("K"), 0, array.shape, strides)


def checkpoint(arrays):
    """A state dict among other things."""
    state_dict = ordered({name: tensor(array) for name, array in arrays.items()})
    return {"epoch": 3, "state_dict": state_dict, "optimizer": {}}


def write(value, storages, tail=()):
    """The opcodes of a value; arrays that are new are added to the storages."""

    def inner(values):
        return b"".join(write(one, storages, tail) for one in values)

    match value:
        case Opcodes(opcodes, values):
            return inner(values) + opcodes
        case Tensor(array, offset, shape, strides):
            if not any(one is array for one in storages):
                storages.append(array)
            key = [one is array for one in storages].index(True)
            kind = name("torch", f"{TYPES[array.dtype]}Storage")
            place = Opcodes(b"Q", (("storage", kind, str(key), "cpu", array.size, *tail),))
            rebuild = name("torch._utils", "_rebuild_tensor_v2")
            written = call(rebuild, place, offset, shape, strides, False, ordered({}))
            return inner([written])
        case Mapping():
            return b"}(" + inner(one for item in value.items() for one in item) + b"u"
        case tuple() | list():
            start, end = (b"(", b"t") if isinstance(value, tuple) else (b"](", b"e")
            return start + inner(value) + end
    return pickle.dumps(value, protocol=2)[2:-1]


def zip_file(value, byteorder="little"):
    """As PyTorch writes a value since version 1.6."""
    storages, file = [], io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("archive/data.pkl", b"\x80\x02" + write(value, storages) + b".")
        members.writestr("archive/byteorder", byteorder)
        for key, array in enumerate(storages):
            members.writestr(f"archive/data/{key}", array.tobytes())
    return file.getvalue()


def legacy_file(value, tail=(None,)):
    """As earlier versions wrote it: storages behind the pickle."""
    storages = []
    pickled = b"\x80\x02" + write(value, storages, tail) + b"."
    keys = [str(key) for key in range(len(storages))]
    heads = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True})
    content = b"".join(pickle.dumps(head, protocol=2) for head in heads)
    content += pickled + pickle.dumps(keys, protocol=2)
    for array in storages:
        content += struct.pack("<q", array.size) + array.tobytes()
    return content


FORMATS = {"zip": zip_file, "legacy": legacy_file}
