"""What files of DenseNets and Inceptions have beside others: older names, an auxiliary head."""

import re

import jax
import numpy as np
import safetensors.numpy

from tests.parts.program.models import tiny
from train.models import HEADS, MODELS, load_pretrained
from train.models.classifier import Classifier
from train.models.weights import names

NUM_CLASSES = 5


def with_head(family, seed):
    """Parameters and statistics of a small member, no two numbers alike."""
    model = Classifier(tiny.FAMILIES[family](axis_name=None), HEADS["linear"](NUM_CLASSES))
    _, variables = tiny.shapes(model)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype("f4"), variables)


def read(arrays, name, family, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.numpy.save(arrays))
    before = with_head(family, 2)
    return load_pretrained(name, str(path), before["params"], before["batch_stats"])


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_older_names_of_a_densenet(tmp_path):
    written = with_head("large_densenet", 1)
    published = MODELS["densenet121"].names
    arrays = names.arrays_of(written["params"], written["batch_stats"], published)
    older = {
        re.sub(r"(denselayer\d+\.(norm|conv))(\d)", r"\1.\3", name): array
        for name, array in arrays.items()
    }
    assert "features.denseblock2.denselayer2.conv.1.weight" in older
    for in_file in (arrays, older):
        found = read(in_file, "densenet121", "large_densenet", tmp_path)
        assert found.why_new_head is None
        assert_equal(found.params, written["params"])
        assert_equal(found.batch_stats, written["batch_stats"])


def test_the_auxiliary_head_is_left_out(tmp_path):
    written = with_head("inception", 1)
    published = MODELS["inception_v3"].names
    arrays = names.arrays_of(written["params"], written["batch_stats"], published)
    auxiliary = {"AuxLogits.fc.bias": np.zeros(NUM_CLASSES, np.float32)}
    found = read(arrays | auxiliary, "inception_v3", "inception", tmp_path)
    assert_equal(found.params, written["params"])
    assert found.why_new_head is None
