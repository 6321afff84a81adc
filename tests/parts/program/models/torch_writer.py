"""Writes files like torch.save, opcode by opcode, without PyTorch, and files it never writes.

What a pickle can contain and Python objects cannot (names of functions, calls, tensors) is a class.
"""

import io
import pickle
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

TYPES = {
    np.dtype(dtype): name
    for name, dtype in {
        "Double": "f8",
        "Float": "f4",
        "Half": "f2",
        "BFloat16": jnp.bfloat16,
        "Long": "i8",
        "Int": "i4",
        "Short": "i2",
        "Char": "i1",
        "Byte": "u1",
        "Bool": "?",
    }.items()
}


class Raw(NamedTuple):
    """Opcodes as they are."""

    opcodes: bytes


class Global(NamedTuple):
    module: str
    name: str


class Call(NamedTuple):
    function: Any
    arguments: tuple


class Build(NamedTuple):
    """An object, and the state that it is to be given."""

    made: Any
    state: Any


class Tensor(NamedTuple):
    """A view of a one-dimensional array, with strides in numbers."""

    storage: np.ndarray
    offset: Any
    shape: Any
    strides: Any


class Storages:
    """The storages of one file, by key; the same array is the same storage."""

    def __init__(self):
        self.arrays = []

    def key(self, array):
        for key, known in enumerate(self.arrays):
            if known is array:
                return str(key)
        self.arrays.append(array)
        return str(len(self.arrays) - 1)


def tensor(array):
    """The tensor that PyTorch makes of an array: rows one after the other."""
    array = np.asarray(array)
    strides = tuple(int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim))
    return Tensor(np.ascontiguousarray(array).reshape(-1), 0, array.shape, strides)


def parameter(data):
    return Call(Global("torch._utils", "_rebuild_parameter"), (data, True, ordered({})))


def ordered(items):
    return Call(Global("collections", "OrderedDict"), ([list(item) for item in items.items()],))


def opcodes(value, storages, storage_tail=()):
    """The pickle of a value, without its first and last opcode."""

    def write(value):
        match value:
            case Raw(opcodes):
                written = opcodes
            case Global(module, name):
                written = b"c" + f"{module}\n{name}\n".encode()
            case Call(function, arguments):
                written = write(function) + write(tuple(arguments)) + b"R"
            case Build(made, state):
                written = write(made) + write(state) + b"b"
            case Tensor(storage, offset, shape, strides):
                storage_type = Global("torch", f"{TYPES[storage.dtype]}Storage")
                key = storages.key(storage)
                identifier = ("storage", storage_type, key, "cpu", storage.size, *storage_tail)
                place = Raw(write(identifier) + b"Q")
                arguments = (place, offset, shape, strides, False, ordered({}))
                written = write(Call(Global("torch._utils", "_rebuild_tensor_v2"), arguments))
            case Mapping():
                pairs = b"".join(write(key) + write(item) for key, item in value.items())
                written = b"}(" + pairs + b"u"
            case tuple() | list():
                inner = b"(" + b"".join(map(write, value))
                written = inner + b"t" if isinstance(value, tuple) else b"]" + inner + b"e"
            case _:
                written = pickle.dumps(value, protocol=2)[2:-1]
        return written

    return write(value)


def dumps(value, storages, storage_tail=()):
    return b"\x80\x02" + opcodes(value, storages, storage_tail) + b"."


def zip_bytes(value, *, byteorder=b"little"):
    storages, buffer = Storages(), io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", dumps(value, storages))
        archive.writestr("archive/byteorder", byteorder)
        for key, array in enumerate(storages.arrays):
            archive.writestr(f"archive/data/{key}", array.tobytes())
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def legacy_bytes(value, *, storage_tail=(None,)):
    storages = Storages()
    pickled = dumps(value, storages, storage_tail)
    keys = [str(key) for key in range(len(storages.arrays))]
    heads = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True})
    content = b"".join(pickle.dumps(head, protocol=2) for head in heads) + pickled
    content += pickle.dumps(keys, protocol=2)
    for array in storages.arrays:
        content += struct.pack("<q", array.size) + array.tobytes()
    return content


FORMATS: dict[str, Any] = {"zip": zip_bytes, "legacy": legacy_bytes}
