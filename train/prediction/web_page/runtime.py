"""The files of ONNX Runtime for browsers, of one version: by npm, or from a folder."""

import contextlib
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from train.foundation import files
from train.foundation.errors import UserError, first_line

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
# The digests of what is copied: it is code that the browsers of users run.
_SCRIPT, _MACHINE = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
DIGESTS = {
    _SCRIPT: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    _MACHINE: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
_MOST_BYTES = 2**26
# The limit in seconds: 33 MB come over a slow line.
_TIME_LIMIT = 900
_HOW = (
    f"on a machine with npm, `npm pack {PACKAGE}@{VERSION}` and `tar xzf {PACKAGE}-{VERSION}.tgz` "
    "make the folder package; copy it here and give --onnxruntime_web=package"
)


def read(folder: str | None) -> dict[str, bytes]:
    """The contents of the files by their names.

    Args:
        folder: where the package is unpacked; None to get it by npm.

    Raises:
        UserError: it is not there, is of another version, or npm does not get it.
    """
    if folder is not None:
        return _read(Path(folder), f"--onnxruntime_web={folder}")
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(
            f"--format=web needs the npm package {PACKAGE} {VERSION}, and npm is not installed: "
            f"{_HOW}"
        )
    with tempfile.TemporaryDirectory() as temporary:
        return _read(_unpack(npm, Path(temporary)), f"the npm package {PACKAGE} {VERSION}")


def _unpack(npm: str, folder: Path) -> Path:
    """The folder of the package, from the registry that npm is configured for."""
    command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", str(folder)]
    # Its list of the contents is long. By itself it tries three times, for minutes.
    command += ["--loglevel=error", "--fetch-retries=1"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"npm pack {PACKAGE}@{VERSION} takes too long; {_HOW}") from error
    if done.returncode:
        said = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        raise UserError(f"npm pack {PACKAGE}@{VERSION} failed ({said}); {_HOW}")
    (archive,) = folder.glob("*.tgz")
    unpacked = folder / "dist"
    unpacked.mkdir()
    with tarfile.open(archive) as packed:
        for name in DIGESTS:
            # Other members are a mistake of the package, and `_read` names what is missing.
            with contextlib.suppress(KeyError):
                source = packed.extractfile(f"package/dist/{name}")
                if source is not None:
                    (unpacked / name).write_bytes(source.read(_MOST_BYTES))
    return folder


def _read(folder: Path, what: str) -> dict[str, bytes]:
    found = {}
    for name, digest in DIGESTS.items():
        try:
            content = files.read_bounded(folder / "dist" / name, _MOST_BYTES)
        except OSError as error:
            raise UserError(
                f"{what} lacks the file dist/{name} ({first_line(error)}): {_HOW}"
            ) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise UserError(f"{what} is not version {VERSION}: its dist/{name} is another one")
        found[name] = content
    return found
