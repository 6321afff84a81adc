"""The parts of a classifier, from its configuration: what training and using it share."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from train.data import DatasetSpec
from train.data.augmentation import normalize
from train.data.pipeline import Pipeline
from train.devices import parallel
from train.models import build_model
from train.models.classifier import Classifier
from train.training.objectives import LOSSES, Objective


def build_objective(config: Mapping[str, Any], class_counts: np.ndarray) -> Objective:
    """The objective of a configuration.

    Args:
        config: the fields of the configuration, nested.
        class_counts: the training images of each class.
    """
    return LOSSES[config["loss"]["name"]].objective(
        config["loss"],
        class_counts,
        axis_name=parallel.AXIS_NAME,
        scores=config["eval"]["scores"],
    )


def build_classifier(config: Mapping[str, Any], num_classes: int) -> Classifier:
    """The network of a configuration."""
    return build_model(
        config["model"]["name"],
        num_classes=num_classes,
        head=LOSSES[config["loss"]["name"]].head,
        axis_name=parallel.AXIS_NAME if config["model"]["sync_batch_norm"] else None,
        half_precision=config["model"]["half_precision"],
    )


def build_normalize(spec: DatasetSpec) -> Callable[[jax.Array], jax.Array]:
    """uint8 images to the network's input."""
    return functools.partial(normalize, mean=spec.mean, std=spec.std)


def build_pipeline(config: Mapping[str, Any], batch_size: int) -> Pipeline:
    """How the examples are read, in batches of that size over all processes."""
    return Pipeline(
        batch_size,
        config["seed"],
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        # Only streamed data sets have these two.
        num_workers=config["dataset"].get("num_workers", 0),
        skip_unreadable=config["dataset"].get("skip_unreadable", False),
    )
