"""Writes the folder of the page."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.foundation import files
from train.prediction import pages

_ASSETS = Path(__file__).parent / "assets"
# The file that keeps the others in the browser has their names.
_KEEPER = "offline.js"
MODEL, DESCRIPTION, CARD = "classifier.onnx", "classifier.json", "classifier.md"


def write(
    folder: Path,
    model: bytes,
    description: Mapping[str, Any],
    card: bytes,
    runtime: Mapping[str, bytes],
) -> None:
    """Writes all files of the page to a folder that does not exist.

    Args:
        folder: the folder.
        model: the classifier as an ONNX file.
        description: of the file.
        card: the model card.
        runtime: the files of ONNX Runtime by their names.
    """
    contents = {
        path.name: path.read_bytes() for path in sorted(_ASSETS.iterdir()) if path.is_file()
    }
    contents["style.css"] = pages.STYLE.encode()
    contents["drops.js"] = pages.DROPS.encode()
    contents[MODEL] = model
    contents[CARD] = card
    contents[DESCRIPTION] = files.to_json(description)
    # Not every server knows that .mjs is a script.
    contents |= {
        f"onnxruntime/{name.replace('.mjs', '.js')}": content for name, content in runtime.items()
    }
    contents[_KEEPER] = _keeper(contents)
    with files.new_folder(folder) as partial:
        for name, content in contents.items():
            path = partial / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


def _keeper(contents: Mapping[str, bytes]) -> bytes:
    """The script that keeps all files in the browser, and others when these change."""
    names = [name for name in contents if name != _KEEPER]
    digest = hashlib.sha256()
    for name in contents:
        digest.update(name.encode() + b"\0" + hashlib.sha256(contents[name]).digest())
    text = contents[_KEEPER].decode()
    listed = json.dumps(["./", *names])
    version = digest.hexdigest()[:16]
    return text.replace("{{ version }}", version).replace("{{ files }}", listed).encode()
