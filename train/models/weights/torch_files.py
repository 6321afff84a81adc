"""Reads files of `torch.save` without PyTorch, and without running code that they name.

Such a file has a pickle of containers and tensors, and the storages of the tensors. They are
members of a zip archive or, before PyTorch 1.6, one after the other behind the pickle. A pickle can
name any function for its reader to call. This reader has harmless counterparts of the few functions
that weights need, and refuses all others by name. A pickle of a hundred bytes can also describe a
tuple whose hash, or whose text, takes years: each level holds the one below twice. Therefore only
texts and numbers are hashed or printed.
"""

import io
import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import IO, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from train.foundation.errors import UserError

# The first bytes of the two formats: of an archive's first member, and of a pickle.
ZIP_START = b"PK\x03\x04"
LEGACY_START = b"\x80"

_LEGACY_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001

# The names of the state dict in files that also have an epoch, an optimiser, ...
_STATE_DICT_NAMES = ("state_dict", "model_state_dict", "model")
# The deepest state dict; bounded, because a damaged pickle can make a dictionary that holds itself.
_MAX_NESTING = 2
# NumPy does not have more. The product of a hundred thousand lengths takes long.
_MAX_AXES = 64
# Layers can share weights, and a file can have many names for each of its bytes.
_MOST_VIEWS = 8
# The prefixes that DataParallel and torch.compile add to every name.
_NAME_PREFIXES = ("module.", "_orig_mod.")


class _StorageType(NamedTuple):
    dtype: np.dtype[Any]


class _Storage(NamedTuple):
    """A sequence of numbers in the file.

    Attributes:
        key: its name in the file.
        dtype: the type of its numbers.
        size: the number of its numbers.
    """

    key: str
    dtype: np.dtype[Any]
    size: int

    @property
    def num_bytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize


class _Tensor(NamedTuple):
    """A view of a storage that has not been read."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """The size of a copy in bytes."""
        return math.prod(self.shape) * self.storage.dtype.itemsize

    def __setstate__(self, state: Any) -> None:
        """Drops a parameter's flags, which PyTorch before 0.4 set after making it."""


class _Function(NamedTuple):
    """The counterpart of a function; unlike a function's, its attributes cannot be set."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def read_state_dict(file: IO[bytes]) -> dict[str, np.ndarray]:
    """The tensors of a model that `torch.save` wrote, also if other things are in the file.

    Args:
        file: starts as `ZIP_START` or `LEGACY_START`.

    Returns:
        Read-only arrays by their names in the model.

    Raises:
        UserError: the file does not have a state dict, or names more than tensors and containers;
            the message continues a sentence that starts with the name of the file.
        Exception: of any kind, if the file is damaged: a pickle can fail in many ways.
    """
    is_zip = file.read(len(ZIP_START)) == ZIP_START
    file.seek(0)
    saved, read_storage = _read_zip(file) if is_zip else _read_legacy(file)
    contents: dict[str, bytes] = {}
    arrays = {}
    tensors = _find_state_dict(saved)
    _check_sizes(tensors)
    for name, tensor in tensors.items():
        key = tensor.storage.key
        if key not in contents:  # Several tensors can be views of one storage.
            contents[key] = read_storage(key)
        arrays[name] = _to_array(tensor, contents[key])
    return arrays


def _read_zip(file: IO[bytes]) -> tuple[Any, Callable[[str], bytes]]:
    archive = zipfile.ZipFile(file)
    pickles = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1:
        raise UserError("is a zip archive of something other than weights: it has no data.pkl")
    folder = pickles[0].removesuffix("data.pkl")

    def read(name: str) -> bytes:
        member = archive.getinfo(folder + name)
        # A stored member is at most as large as the file; a compressed one can be a bomb.
        if member.compress_type != zipfile.ZIP_STORED:
            raise UserError("has compressed members, which torch.save never writes")
        return archive.read(member)

    if folder + "byteorder" in archive.namelist() and read("byteorder") != b"little":
        raise UserError("was written on a big-endian machine; only little-endian files are read")
    saved = _Unpickler(io.BytesIO(read("data.pkl"))).load()
    return saved, lambda key: read(f"data/{key}")


def _read_legacy(file: IO[bytes]) -> tuple[Any, Callable[[str], bytes]]:
    if _Unpickler(file).load() != _LEGACY_MAGIC_NUMBER:
        raise UserError("is a pickle, but not one of torch.save")
    if _Unpickler(file).load() != _LEGACY_PROTOCOL:
        raise UserError("is in a version of torch.save's format that is not known here")
    _Unpickler(file).load()  # Sizes of C types on the machine that wrote it.
    unpickler = _Unpickler(file)
    saved = unpickler.load()
    keys = _Unpickler(file).load()
    file_size = os.fstat(file.fileno()).st_size
    extents: dict[str, tuple[int, int]] = {}
    for key in keys:
        _check_key(key)
        storage = unpickler.storages[key]
        size = int.from_bytes(file.read(8), "little")
        num_bytes = storage.num_bytes
        start = file.tell()
        if size != storage.size or start + num_bytes > file_size:
            raise EOFError(f"storage {key!r} should have {storage.size} numbers")
        extents[key] = start, num_bytes
        file.seek(num_bytes, os.SEEK_CUR)

    def read_storage(key: str) -> bytes:
        start, num_bytes = extents[key]
        file.seek(start)
        return file.read(num_bytes)

    return saved, read_storage


def _find_state_dict(saved: Any) -> dict[str, _Tensor]:
    """The tensors of the state dict by name, without the prefixes of `_NAME_PREFIXES`."""
    for _ in range(_MAX_NESTING):
        for name in _STATE_DICT_NAMES:
            if isinstance(saved, Mapping) and isinstance(saved.get(name), Mapping):
                saved = saved[name]
    tensors = (
        {name: value for name, value in saved.items() if isinstance(value, _Tensor)}
        if isinstance(saved, Mapping)
        else {}
    )
    if not tensors or not all(isinstance(name, str) for name in tensors):
        raise UserError(
            "has no state dict, neither by itself nor under one of the names "
            + ", ".join(_STATE_DICT_NAMES)
        )
    for prefix in _NAME_PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def _check_sizes(tensors: Mapping[str, _Tensor]) -> None:
    """Refuses tensors of more numbers than their storages have; a copy of one has them all.

    With a stride of 0 a storage of one number is a tensor of any size.
    """
    for name, tensor in tensors.items():
        if math.prod(tensor.shape) > tensor.storage.size:
            raise UserError(
                f"has {name[:80]!r} of shape {tensor.shape}, and {tensor.storage.size:,} numbers "
                "for it; in PyTorch, save its contiguous()"
            )
    total = sum(tensor.num_bytes for tensor in tensors.values())
    stored = sum(storage.num_bytes for storage in {one.storage for one in tensors.values()})
    if total > _MOST_VIEWS * stored:
        raise UserError(
            f"has {len(tensors):,} tensors of {total:,} bytes, which are views of {stored:,} bytes"
        )


def _to_array(tensor: _Tensor, content: bytes) -> np.ndarray:
    storage = tensor.storage
    if len(content) != storage.num_bytes:
        raise EOFError(
            f"storage {storage.key!r} has {len(content)} bytes instead of {storage.num_bytes}"
        )
    return np.lib.stride_tricks.as_strided(
        np.frombuffer(content, storage.dtype)[tensor.offset :],
        tensor.shape,
        # An axis of one number takes no steps, so it may have any stride.
        [
            stride * storage.dtype.itemsize if length > 1 else 0
            for length, stride in zip(tensor.shape, tensor.strides, strict=True)
        ],
        writeable=False,
    )


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not (
        isinstance(storage, _Storage)
        and _is_size(offset)
        and all(
            isinstance(sizes, tuple) and all(map(_is_size, sizes)) for sizes in (shape, strides)
        )
        and len(shape) == len(strides) <= _MAX_AXES
    ):
        raise ValueError("a tensor is described by values that describe none")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    # Hazard: as_strided, which makes the array, would read outside the buffer.
    if all(shape) and last >= storage.size:
        raise ValueError(
            f"a tensor of shape {shape} reaches beyond the {storage.size} numbers of its storage"
        )
    return _Tensor(storage, offset, shape, strides)


def _rebuild_parameter(data: Any, *_: Any) -> Any:
    return data


def _make_ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    for key, value in items:
        _check_key(key)
        made[key] = value
    return made


def _is_size(value: Any) -> bool:
    # Bounded, because the product of two numbers of a million digits takes long.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check_key(key: Any) -> None:
    """Refuses a key of a dictionary whose hash may take for ever."""
    if not isinstance(key, str | bytes | int | float | None):
        raise TypeError(f"a key is neither a text nor a number, but a {type(key).__name__}")


# One of these is PyTorch's first name in a file of weights that are quantised to integers, or to
# real numbers of 8 bits.
_QUANTISED = {
    ("torch._utils", "_rebuild_qtensor"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch", "qint8"),
}

_TENSOR, _PARAMETER = _Function(_rebuild_tensor), _Function(_rebuild_parameter)
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Function(_make_ordered),
    ("torch._utils", "_rebuild_tensor"): _TENSOR,
    ("torch._utils", "_rebuild_tensor_v2"): _TENSOR,
    ("torch._utils", "_rebuild_parameter"): _PARAMETER,
    ("torch.nn.parameter", "Parameter"): _PARAMETER,
} | {
    ("torch", f"{name}Storage"): _StorageType(np.dtype(dtype))
    for name, dtype in {
        "Double": "<f8",
        "Float": "<f4",
        "Half": "<f2",
        "BFloat16": jnp.bfloat16,
        "Long": "<i8",
        "Int": "<i4",
        "Short": "<i2",
        "Char": "i1",
        "Byte": "u1",
        "Bool": "?",
    }.items()
}


class _CompleteReads:
    """A file whose reads raise an error at the end, instead of returning fewer bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        start = file.tell()
        self._size = file.seek(0, os.SEEK_END)
        file.seek(start)

    def read(self, size: int) -> bytes:
        # Hazard: a file makes room for all requested bytes before it finds that it has fewer.
        found = self._file.read(min(size, self._size))
        if len(found) < size:
            raise EOFError("the pickle is cut short")
        return found

    def readline(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the pickle is cut short")
        return line


def _with_checked_keys(
    load: Callable[[Any], None], keys: slice
) -> Callable[[pickle.Unpickler], None]:
    """A reader of an opcode that checks the keys on the stack before they are hashed."""

    def checked(unpickler: Any) -> None:
        for key in unpickler.stack[keys]:
            _check_key(key)
        load(unpickler)

    return checked


class _Unpickler(pickle._Unpickler):
    """Unpickles containers, numbers, strings and tensors, and nothing else.

    It is the standard library's reader in Python, because the reader in C hashes any key. 3,000
    tensors take it 0.15 s instead of 0.06 s. Their numbers are not in the pickle.

    Attributes:
        storages: the storages that the pickle has named, by their keys.
    """

    def __init__(self, file: IO[bytes]) -> None:
        # Python 2 wrote texts as bytes.
        super().__init__(_CompleteReads(file), encoding="utf-8")
        self.storages: dict[str, _Storage] = {}

    dispatch = pickle._Unpickler.dispatch | {
        # The keys are after a mark on the stack, or everything on it.
        opcode[0]: _with_checked_keys(pickle._Unpickler.dispatch[opcode[0]], keys)
        for opcode, keys in {
            pickle.SETITEM: slice(-2, -1),
            pickle.SETITEMS: slice(None, None, 2),
            pickle.DICT: slice(None, None, 2),
            pickle.ADDITEMS: slice(None),
            pickle.FROZENSET: slice(None),
        }.items()
    }
    # It makes as many zeros as the file asks for.
    del dispatch[pickle.BYTEARRAY8[0]]

    def find_class(self, module: str, name: str) -> Any:
        allowed = _ALLOWED.get((module, name))
        if (module, name) in _QUANTISED:
            raise UserError(
                f"asks for {module}.{name}, as quantised weights do, which are not read: save the "
                "weights in floating point"
            )
        if allowed is None:
            # Shown as a literal, because a name can have line ends and control characters.
            raise UserError(
                f"asks for {f'{module}.{name}'[:200]!r}, which is refused: weights need only "
                "tensors and containers; in PyTorch, save model.state_dict() instead of the model "
                "or of all that was kept beside it"
            )
        return allowed

    def persistent_load(self, identifier: Any) -> _Storage:
        kind, storage_type, key, _, size, *view = identifier
        if kind != "storage" or not isinstance(storage_type, _StorageType) or not _is_size(size):
            raise ValueError("a storage is described by values that describe none")
        if view not in ([], [None]):
            raise UserError("has views of storages, as only PyTorch before 0.4 wrote them")
        _check_key(key)
        storage = _Storage(str(key), storage_type.dtype, size)
        if self.storages.setdefault(storage.key, storage) != storage:
            raise ValueError(f"storage {storage.key!r} is described in two ways")
        return storage
