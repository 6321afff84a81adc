"""A classifier with its sets as a page: a folder of static files, computed in the browser."""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.foundation import files
from train.foundation.errors import UserError
from train.prediction import pages

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
_ENGINE = "ort-wasm-simd-threaded.wasm"
# The digests of what is copied: it is code that the browsers of users run.
DIGESTS = {
    "ort.wasm.bundle.min.mjs": "sha256-EeZL2P/hG9GiovDWJ1/fu7pyYvC3a5m1PSKKiiLvPZA=",
    _ENGINE: "sha256-M5jBDQfSKb2Rs2RUjhMODlGo5XBLiMfAg+u+t4hC3uI=",
}
MODEL = "classifier.onnx"
_PAGE = Path(__file__).parent / "page"


def runtime(folder: str | None) -> dict[str, bytes]:
    """The files of ONNX Runtime for browsers, by their names.

    Args:
        folder: where its npm package is unpacked.

    Raises:
        UserError: they are not there, or of another version.
    """
    how = f"`npm pack {PACKAGE}@{VERSION} && tar xzf {PACKAGE}-{VERSION}.tgz` makes it"
    if folder is None:
        raise UserError(f"--format=web needs --onnxruntime_web, the folder package: {how}")
    found = {}
    for name, digest in DIGESTS.items():
        path = Path(folder, "dist", name)
        found[name] = path.read_bytes() if path.is_file() else b""
        if _integrity(found[name]) != digest:
            raise UserError(
                f"--onnxruntime_web must be the folder package of {PACKAGE} {VERSION}; got "
                f"{folder}, whose dist/{name} is missing or another one: {how}"
            )
    return found


def write(
    out: Path,
    content: bytes,
    description: Mapping[str, Any],
    card: bytes,
    runtime_files: Mapping[str, bytes],
) -> None:
    """Writes the page to a folder that does not exist.

    Args:
        out: the folder.
        content: the ONNX file.
        description: of the file.
        card: the model card.
        runtime_files: the result of `runtime`.
    """
    contents = {path.name: path.read_bytes() for path in sorted(_PAGE.iterdir())}
    contents |= {"style.css": pages.STYLE.encode(), MODEL: content, f"{MODEL}.md": card}
    described = {**description, "digest": hashlib.sha256(content).hexdigest()}
    contents[f"{MODEL}.json"] = files.to_json(files.with_checksum(described), indent=1)
    # Not every server knows that .mjs is a script.
    contents |= {name.replace(".mjs", ".js"): code for name, code in runtime_files.items()}
    # The service worker keeps all of these in the browser, until one of them changes.
    kept = {name: _integrity(one) for name, one in contents.items() if name != "offline.js"}
    index = contents["index.html"].decode()
    for name in (MODEL, f"{MODEL}.json", _ENGINE):
        index = index.replace(f"{{{{ {name} }}}}", kept[name])
    contents["index.html"] = index.encode()
    kept["index.html"] = _integrity(contents["index.html"])
    listed = json.dumps(kept, indent=1)
    contents["offline.js"] = contents["offline.js"].replace(b"{{ files }}", listed.encode())
    with files.new_folder(out) as partial:
        for name, one in contents.items():
            (partial / name).write_bytes(one)


def _integrity(content: bytes) -> str:
    """The digest of a file, as browsers compare it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}"
