"""Exported programs of small images and of few features, which need no training."""

import hashlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp

from tests.parts.program.prediction import fitted_rules
from topk_jax import sets
from train.data import preparation, taxonomy
from train.data.classes import Classes
from train.data.crops import ImageReader
from train.foundation import files
from train.package import program

CLASSES = ("dark", "middle", "light")
SHAPE = (8, 8, 1)
SPECIES = ("Rosa alba", "Rosa rugosa", "Acer rubrum")


def write(path):
    """A program of images, whose classes are parts of the grey levels."""

    def scores(images):
        mean = images.astype(jnp.float32).mean(axis=(1, 2, 3))[:, None] / 255
        return jax.nn.softmax(-10 * jnp.abs(mean - jnp.array([[0.0, 0.5, 1.0]])))

    classifier = SimpleNamespace(inputs="images", shape=SHAPE, scores=lambda: scores)
    rule = fitted_rules.of("average_k=1.5", 0.2, classes=Classes.of(CLASSES))
    steps = preparation.to_plain(ImageReader.plain(SHAPE))
    _write(path, classifier, rule, {"classes": CLASSES}, steps=steps)


def write_features(path):
    """A program of scores as features, whose sets have names and may be none of the classes."""
    tree = taxonomy.first_words(SPECIES)
    classifier = SimpleNamespace(
        inputs="features",
        shape=(len(SPECIES),),
        scores=lambda: jax.nn.softmax,
        outliers=lambda kind: lambda features: sets.outlier_scores(features, kind=kind),
    )
    rule = fitted_rules.of(
        "coverage=0.9, max_names=1, new_score=energy",
        0.2,
        classes=Classes(SPECIES, (1, 1, 1), tree),
        tree=tree.digest,
        known_to=-1.0,
        new_from=-1.0,
    )
    _write(path, classifier, rule, {"classes": SPECIES, "taxonomy": tree.to_plain()})


def _write(path, classifier, rule, more, **inputs):
    content = program.serialize(classifier, rule)
    path.write_bytes(content)
    description = {
        classifier.inputs: {"shape": ["n", *classifier.shape], **inputs},
        "outputs": program.outputs(rule, len(more["classes"])),
        "rule": rule.to_json(),
        "digest": hashlib.sha256(content).hexdigest(),
        **more,
    }
    path.with_name(f"{path.name}.json").write_bytes(files.to_json(files.with_checksum(description)))
