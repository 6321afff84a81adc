"""Reads files of `torch.save` without PyTorch, and without running code that they name.

Such a file has a pickle of containers and tensors, and the storages of the tensors. They are
members of a zip archive or, before PyTorch 1.6, one after the other behind the pickle. A pickle can
name any function for its reader to call: this reader has harmless counterparts of the few functions
that weights need, and refuses all others by name.
"""

import functools
import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import IO, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from train.foundation.errors import UserError

# The numbers that start a legacy file: of the format, and of its version.
_MAGIC_NUMBERS = [0x1950A86A20F9469CFC6C, 1001]

# The names of the state dict in files that also have an epoch, an optimiser, ...
_STATE_DICT_NAMES = ("state_dict", "model_state_dict", "model")
# The prefixes that DataParallel and torch.compile add to every name.
_NAME_PREFIXES = ("module.", "_orig_mod.")


class _StorageType(NamedTuple):
    dtype: np.dtype[Any]


class _Storage(NamedTuple):
    """A sequence of `size` numbers, under its key in the file."""

    key: Any
    dtype: np.dtype[Any]
    size: Any


class _Tensor(NamedTuple):
    """A view of a storage as the pickle describes it, which is not checked yet."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any

    def __setstate__(self, state: Any) -> None:
        """Drops a parameter's flags, which PyTorch before 0.4 set after making it."""


class _Function(NamedTuple):
    """The counterpart of a function; unlike a function's, its attributes cannot be set."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


_TENSOR = _Function(lambda *described: _Tensor(*described[:4]))
_PARAMETER = _Function(lambda data, *_: data)
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Function(OrderedDict),
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


class _Unpickler(pickle.Unpickler):
    """Unpickles containers, numbers, texts and tensors, and nothing else.

    Attributes:
        storages: the storages that the pickle has named, by their keys.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="utf-8")  # Python 2 wrote texts as bytes.
        self.storages: dict[Any, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            # Shown as a literal, because a name can have line ends and control characters.
            raise UserError(
                f"asks for {f'{module}.{name}'[:200]!r}, which is refused: weights need only "
                "tensors in floating point and containers; in PyTorch, save model.state_dict() "
                "instead of the model or of all that was kept beside it"
            )
        return _ALLOWED[module, name]

    def persistent_load(self, identifier: Any) -> _Storage:
        _, storage_type, key, _, size, *view = identifier
        if not isinstance(storage_type, _StorageType):
            raise TypeError("a storage has numbers of no type")
        if view not in ([], [None]):
            raise UserError("has views of storages, as only PyTorch before 0.4 wrote them")
        self.storages[key] = _Storage(key, storage_type.dtype, size)
        return self.storages[key]


def read_state_dict(file: IO[bytes]) -> dict[str, np.ndarray]:
    """The tensors of a model that `torch.save` wrote, also if other things are in the file.

    Returns:
        Read-only arrays by their names in the model.

    Raises:
        UserError: the file does not have a state dict, or names more than tensors and containers;
            the message continues a sentence that starts with the name of the file.
        Exception: of any kind, if the file is damaged: a pickle can fail in many ways.
    """
    reader = _read_zip if zipfile.is_zipfile(file) else _read_legacy
    saved, read_storage = reader(file)
    read_once = functools.cache(read_storage)  # Several tensors can be views of one storage.
    tensors = _find_state_dict(saved)
    return {name: _to_array(one, read_once(one.storage.key)) for name, one in tensors.items()}


def _read_zip(file: IO[bytes]) -> tuple[Any, Callable[[Any], bytes]]:
    """The unpickled object of a file, and what reads a storage by its key."""
    archive = zipfile.ZipFile(file)
    pickles = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1:
        raise UserError("is a zip archive of something other than weights: it has no data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    order = f"{folder}byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
        raise UserError("was written on a big-endian machine; only little-endian files are read")
    saved = _Unpickler(io.BytesIO(archive.read(pickles[0]))).load()
    return saved, lambda key: archive.read(f"{folder}data/{key}")


def _read_legacy(file: IO[bytes]) -> tuple[Any, Callable[[Any], bytes]]:
    """As `_read_zip`; each storage is its number of numbers and these."""
    file.seek(0)
    for number in _MAGIC_NUMBERS:
        if _Unpickler(file).load() != number:
            raise UserError("is a pickle, but not one of torch.save")
    _Unpickler(file).load()  # Sizes of C types on the machine that wrote it.
    unpickler = _Unpickler(file)
    saved, contents = unpickler.load(), {}
    for key in _Unpickler(file).load():
        storage = unpickler.storages[key]
        if int.from_bytes(file.read(8), "little") != storage.size:
            raise EOFError(f"storage {key!r} should have {storage.size} numbers")
        contents[key] = file.read(storage.size * storage.dtype.itemsize)
    return saved, contents.__getitem__


def _find_state_dict(saved: Any) -> dict[str, _Tensor]:
    """The tensors of the state dict by name, without the prefixes of `_NAME_PREFIXES`."""
    for name in _STATE_DICT_NAMES * 2:  # One can be inside another.
        if isinstance(saved, Mapping) and isinstance(saved.get(name), Mapping):
            saved = saved[name]
    items = saved.items() if isinstance(saved, Mapping) else ()
    tensors = {name: value for name, value in items if isinstance(value, _Tensor)}
    if not tensors or not all(isinstance(name, str) for name in tensors):
        names = ", ".join(_STATE_DICT_NAMES)
        raise UserError(f"has no state dict, neither by itself nor under one of the names {names}")
    for prefix in _NAME_PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def _to_array(tensor: _Tensor, content: bytes) -> np.ndarray:
    storage, offset, shape, strides = tensor
    are_sizes = all(type(number) is int and number >= 0 for number in (offset, *shape, *strides))
    if not are_sizes or not isinstance(storage, _Storage):
        raise TypeError("a tensor is described by values that describe none")
    size, itemsize = storage.size, storage.dtype.itemsize
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    # Hazard: NumPy's own check overflows; the array would then read outside the buffer.
    if len(content) != size * itemsize or (all(shape) and last >= size):
        raise ValueError(f"a tensor of shape {shape} is outside of its {size} numbers")
    steps = [stride * itemsize for stride in strides]
    return np.ndarray(shape, storage.dtype, content, offset * itemsize, steps)
