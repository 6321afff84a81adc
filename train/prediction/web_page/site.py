"""Writes the folder of the page."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.evaluation import conformal_rules, promises
from train.foundation import files
from train.foundation.errors import UserError
from train.prediction import html_page
from train.prediction.calibrated_rule import CalibratedRule
from train.prediction.trained import TrainedClassifier

_ASSETS = Path(__file__).parent / "assets"
# The file that keeps the others in the browser has their names.
_KEEPER = "offline.js"
MODEL, DESCRIPTION, CARD = "classifier.onnx", "classifier.json", "classifier.md"


def check(classifier: TrainedClassifier) -> None:
    """Refuses a classifier that a page has no input for.

    Raises:
        UserError: it takes features.
    """
    spec = classifier.spec
    if not spec.has_images:
        raise UserError(
            "--format=web is for classifiers of images; a page cannot compute the features that "
            "this one takes"
        )


def describe(description: Mapping[str, Any], rule: CalibratedRule) -> dict[str, Any]:
    """What the page knows of the classifier: the description of its file, and what it promises."""
    return {**description, "promised": promised(rule), "has_promise": rule.has_promise}


def promised(rule: CalibratedRule) -> float | None:
    """The coverage that the sets of a rule promise; None if they do not promise any."""
    if rule.name != "coverage":
        return None
    conformal = rule.conformal
    used = conformal_rules.RULES[conformal_rules.DEFAULT] if conformal is None else conformal.rule
    return promises.promised(float(rule.value), used)


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
        description: what `describe` has.
        card: the model card.
        runtime: the files of ONNX Runtime by their names.
    """
    contents = {
        path.name: path.read_bytes() for path in sorted(_ASSETS.iterdir()) if path.is_file()
    }
    contents["style.css"] = html_page.STYLE.encode()
    contents["drops.js"] = html_page.DROPS.encode()
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
