"""A run from a file of pretrained weights: the head is replaced; a resumed run needs no file."""

import signal

import jax
import safetensors.numpy

from tests.parts.program.program import Program
from train.models import build_model, published
from train.models.weights.names import arrays_of
from train.training import randomness


def test_a_run_starts_with_the_weights_of_a_file(tmp_path):
    model = build_model(
        "resnet18", num_classes=1000, head="linear", axis_name=None, half_precision=False
    )
    key = randomness.initialization_key(7)
    images = jax.numpy.zeros((1, 32, 32, 3))
    variables = jax.jit(lambda key: model.init(key, images, train=False))(key)
    weights = tmp_path / "resnet18.safetensors"
    arrays = arrays_of(variables["params"], variables["batch_stats"], published("resnet18").names)
    safetensors.numpy.save_file(arrays, weights)
    sizes = {"num_classes": 10, "num_genera": 2, "num_train": 100}
    sizes |= {"num_validation": 50, "num_test": 50, "batch_size": 50}
    program = Program(
        (
            "--config=configs/synthetic_species.py:cross_entropy",
            "--config.model.name=resnet18",
            f"--config.model.pretrained={weights}",
            "--config.num_epochs=5",
            *(f"--config.dataset.{name}={size}" for name, size in sizes.items()),
        ),
    )
    workdir = tmp_path / "run"
    with program.start(workdir) as running:
        running.read_until("its head starts from random weights: the file's is for 1000 classes")
        running.read_until("epoch 1/5")
        running.send(signal.SIGTERM)
        assert running.end().returncode == 128 + signal.SIGTERM
    weights.unlink()
    done = program.complete(workdir)
    assert "continuing after epoch" in done.stdout
