"""Files like those of `torch.save`, written without PyTorch, and pickles that name functions."""

import io
import os
import pickle
import struct
import zipfile

import jax.numpy as jnp
import numpy as np

_TYPES = {
    np.dtype(np.float32): b"Float",
    np.dtype(np.float16): b"Half",
    np.dtype(jnp.bfloat16): b"BFloat16",
    np.dtype(np.int64): b"Long",
}
_EMPTY = b"ccollections\nOrderedDict\n)R"


def zip_file(arrays):
    """A state dict among other things, as PyTorch writes it since version 1.6."""
    return archive(b"\x80\x02}(" + _plain("epoch") + _plain(3) + _plain("state_dict"))(arrays, b"u")


def archive(start):
    """Writes the arrays behind some opcodes."""

    def written(arrays, end):
        return zip_of(
            start + _state_dict(arrays) + end + b".",
            [array.tobytes("A") for array in arrays.values()],
        )

    return written


def zip_of(pickled, storages=()):
    """The archive of a pickle and of the bytes of its storages."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("archive/data.pkl", pickled)
        members.writestr("archive/byteorder", "little")
        for key, storage in enumerate(storages):
            members.writestr(f"archive/data/{key}", storage)
        members.writestr("archive/version", "3\n")
    return file.getvalue()


def legacy_file(arrays):
    """A state dict as earlier versions wrote it: storages behind the pickle."""
    content = legacy_of(b"\x80\x02" + _state_dict(arrays, _plain(None)) + b".")
    content += pickle.dumps([str(key) for key in range(len(arrays))], protocol=2)
    for array in arrays.values():
        content += struct.pack("<q", array.size) + array.tobytes()
    return content


def legacy_of(pickled):
    """The beginning of such a file, and a pickle."""
    heads = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True})
    return b"".join(pickle.dumps(head, protocol=2) for head in heads) + pickled


class Makes:
    """A pickle of it makes a folder, if its reader calls what it names."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def _plain(value):
    return pickle.dumps(value, protocol=2)[2:-1]


def _state_dict(arrays, tail=b""):
    """The opcodes of a dictionary of tensors, of which each has a storage of its own.

    Matrices are transposed views of their storages.
    """
    content = _EMPTY + b"("
    for key, (name, array) in enumerate(arrays.items()):
        strides = [stride // array.itemsize for stride in array.strides]
        place = b"ctorch\n" + _TYPES[array.dtype] + b"Storage\n" + _plain(str(key))
        place = b"(" + _plain("storage") + place + _plain("cpu") + _plain(array.size) + tail + b"tQ"
        view = _plain(0) + _plain(array.shape) + _plain(tuple(strides)) + b"\x89" + _EMPTY
        content += _plain(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + view + b"tR"
    return content + b"u"
