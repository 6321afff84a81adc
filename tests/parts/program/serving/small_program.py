"""An exported program of small images, whose classes are parts of the grey levels."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from tests.parts.program.prediction import fitted_rules
from train.classifiers.program import Program
from train.data import preparation
from train.data.classes import Classes
from train.data.crops import ImageReader
from train.prediction import exported_program

CLASSES = ("dark", "middle", "light")
SHAPE = (8, 8, 1)


def write(path):
    """Writes the program and its description."""

    def scores(images):
        mean = images.astype(jnp.float32).mean(axis=(1, 2, 3))[:, None] / 255
        return jax.nn.softmax(-10 * jnp.abs(mean - jnp.array([[0.0, 0.5, 1.0]])))

    classifier = SimpleNamespace(inputs="images", shape=SHAPE, scores=lambda: scores)
    rule = fitted_rules.of("average_k=1.5", 0.2, classes=Classes.of(CLASSES))
    content = exported_program.serialize(classifier, rule)
    path.write_bytes(content)
    steps = preparation.to_plain(ImageReader.plain(SHAPE))
    description = {
        "images": {"shape": ["n", *SHAPE], "steps": steps},
        "outputs": {"probabilities": {}, "chosen": {}},
        "classes": CLASSES,
        "rule": rule.to_json(),
        "digest": hashlib.sha256(content).hexdigest(),
    }
    path.with_name(f"{path.name}.json").write_text(json.dumps(description))


def of_features(call, num_classes=2):
    """A program of features, one for each class, that some function computes."""
    names = [*"abcdefgh"[:num_classes]]
    return Program(
        path=Path("program"),
        classes=Classes.of(names),
        inputs="features",
        shape=(num_classes,),
        reader=None,
        own_rule=fitted_rules.of("top_k=1", classes=Classes.of(names)),
        call=call,
        is_onnx=False,
    )
