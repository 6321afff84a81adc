"""An exported program of small images, whose classes are parts of the grey levels."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from train.data.crops import ImageReader
from train.prediction import exported_program, preparation
from train.prediction.calibrated_rule import CalibratedRule

CLASSES = ("dark", "middle", "light")
SHAPE = (8, 8, 1)


def write(path):
    """Writes the program and its description."""

    def scores(images):
        mean = images.astype(jnp.float32).mean(axis=(1, 2, 3))[:, None] / 255
        return jax.nn.softmax(-10 * jnp.abs(mean - jnp.array([[0.0, 0.5, 1.0]])))

    classifier = SimpleNamespace(
        spec=SimpleNamespace(inputs="images"), image_shape=SHAPE, scores=lambda: scores
    )
    rule = CalibratedRule("average_k", 1.5, 0.2)
    path.write_bytes(exported_program.serialize(classifier, rule))
    steps = preparation.to_plain(ImageReader.plain(SHAPE))
    description = {
        "images": {"shape": ["n", *SHAPE], "steps": steps},
        "outputs": {"probabilities": {}, "chosen": {}},
        "classes": CLASSES,
        "rule": str(rule),
        "threshold": rule.threshold,
    }
    path.with_name(f"{path.name}.json").write_text(json.dumps(description))
