"""What all parts of one work have in common: texts that are equal, or the parts do not fit."""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from absl import flags

from train.foundation import files

# Flags that choose how the work is shared, and not what it is.
_OF_SHARING = ("shard", "merge", "cluster")
_VERSIONS = ("topk-jax", "jax", "jaxlib", "numpy")
_PART = 2**20


def of(
    command: str,
    *,
    network: str = "",
    inputs: str,
    places: Iterable[str] = (),
    contents: Iterable[str] = (),
    outputs: Iterable[str] = (),
) -> dict[str, str]:
    """The kind of the parts that this command writes.

    Args:
        command: the name of the command.
        network: a digest of the network; empty for work without one.
        inputs: a digest of the inputs.
        places: flags whose values are places, which may differ from host to host: outputs, and
            inputs that have a digest.
        contents: flags that name files whose contents count, and not their places.
        outputs: flags that name further outputs; only whether there are any counts.
    """
    contents, outputs = tuple(contents), tuple(outputs)
    without = {*_OF_SHARING, *places, *contents, *outputs}
    given = {name: value for name, value in _given().items() if name not in without}
    given |= {name: _content(name) for name in contents if flags.FLAGS[name].value is not None}
    given |= {name: True for name in outputs if flags.FLAGS[name].value is not None}
    return {
        "command": command,
        "flags": json.dumps(given, sort_keys=True, default=str),
        "program": _program(uses_devices=bool(network)),
        "network": network,
        "inputs": inputs,
    }


def digest(*values: Any) -> str:
    """A hash of values of JSON, bytes or paths."""
    found = hashlib.sha256()
    for value in values:
        content = value if isinstance(value, bytes) else json.dumps(value, default=str).encode()
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()


def digest_of_files(paths: Iterable[Path]) -> str:
    """A hash of the sizes of files and their times of change. The files are not read."""
    found = hashlib.sha256()
    for path in paths:
        try:
            status = path.stat()
            # Copies may have lost the fractions of a second.
            state = f"{status.st_size} {int(status.st_mtime)}"
        except (OSError, ValueError):
            state = "unreadable"
        found.update(f"{state}\n".encode())
    return found.hexdigest()


def digest_of_content(path: Path) -> str:
    """A hash of the content of a file, or of the files of a folder."""
    found = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.is_dir():
            continue
        with files.open_regular(file) as opened:
            found.update(f"{os.fstat(opened.fileno()).st_size}\n".encode())
            while content := opened.read(_PART):
                found.update(content)
    return found.hexdigest()


def _given() -> Mapping[str, Any]:
    """The flags of the command that do not have their default."""
    return {
        name: flags.FLAGS[name].value
        for name in flags.FLAGS
        if flags.FLAGS[name].value != flags.FLAGS[name].default
        and not str(flags.FLAGS.find_module_defining_flag(name)).startswith("absl.")
    }


def _content(name: str) -> str:
    """What a flag gives: the content of its file, or the value itself."""
    value = str(flags.FLAGS[name].value)
    path = Path(value).expanduser()
    return digest_of_content(path) if path.is_file() else value


def _program(*, uses_devices: bool) -> str:
    versions = []
    for name in _VERSIONS:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(name)
    if uses_devices:
        import jax  # noqa: PLC0415 (preparing images does not need it)

        devices = jax.local_devices()
        versions.append(f"{len(devices)} x {devices[0].device_kind}")
    return ", ".join(versions)
