"""What a new run takes over: an earlier run's weights, and the normalization of its weights."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train import data
from train.configuration import ModelFields
from train.data import DatasetSpec
from train.foundation.errors import UserError
from train.models import feature_norm, find
from train.models.model_spec import NORMALIZATIONS, Normalization
from train.models.pretrained import NEW_HEAD, Pretrained
from train.run import run_folder, runs
from train.run.checkpoints import read_selected
from train.run.run_folder import Facts

_FIELD = "config.model.start_from"


def normalized(facts: Facts, spec: DatasetSpec, settings: ModelFields) -> Facts:
    """The facts of a new run, with its normalization if it is not its data set's.

    Args:
        facts: what is known of its data set.
        spec: the data set.
        settings: the fields of `config.model`.

    Raises:
        UserError: the field does not fit the data set, or there is no run to start from.
    """
    spec, name = facts.complete(spec), settings.normalization
    in_colour = spec.has_images and facts.image_shape[-1] == 3
    chosen = None
    if name not in (None, "dataset"):
        if not in_colour:
            raise UserError(
                field="config.model.normalization",
                must_be=f"'dataset' or None for {spec.inputs} of shape {facts.image_shape}",
                but=f"{name!r} is for images of 3 channels",
            )
        chosen = NORMALIZATIONS[name]
    elif name is None and settings.start_from is not None:
        workdir = Path(settings.start_from).expanduser()
        run = runs.read_finished(workdir, _FIELD)
        earlier = run_folder.read_facts(workdir).complete(data.read(run.config["dataset"]))
        # A run on other channels does not fit, which is reported when its weights are read.
        if spec.has_images and earlier.has_images and len(earlier.mean) == len(spec.mean):
            chosen = Normalization(earlier.mean, earlier.std)
    elif name is None and settings.pretrained is not None and in_colour:
        chosen = find(settings.name).normalization
    if chosen is None or chosen == (spec.mean, spec.std):
        return facts
    return dataclasses.replace(facts, **chosen._asdict())


def load(settings: ModelFields, params: Any, batch_stats: Any, facts: Facts) -> Pretrained:
    """The variables of a network, replaced by an earlier run's variables at its selected epoch.

    The head is read too if it is of the same kind, for the same classes in the same order.
    Otherwise, and with `config.model.new_head`, it keeps its initial values. Moving averages are
    used if the run has them.

    Args:
        settings: the fields of `config.model`.
        params: the initial parameters.
        batch_stats: the initial statistics of batch norm.
        facts: the classes and the shape of the images of the new run.

    Raises:
        UserError: there is no finished run, or its network is another one.
    """
    workdir = Path(str(settings.start_from)).expanduser()
    run = runs.read_finished(workdir, _FIELD)
    earlier, network = run_folder.read_facts(workdir), run.config["model"]["name"]
    found = read_selected(workdir / run_folder.CHECKPOINTS, run.results["best_step"])
    found = {name: found.get(name) or {} for name in ("params", "batch_stats")}
    there, here = (
        _shapes({name: variables.get("features", {}) for name, variables in one.items()})
        for one in (found, {"params": params, "batch_stats": batch_stats})
    )
    differing = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if differing or network != settings.name:
        raise UserError(
            f"{_FIELD}: the network {network!r} of the run in {workdir}, for inputs of shape "
            f"{earlier.image_shape}, is not {settings.name!r} for inputs of shape "
            f"{facts.image_shape}"
            + (f": {', '.join(differing[:3])} differ in their shapes" if differing else "")
        )
    why_new_head = None
    if settings.new_head:
        why_new_head = NEW_HEAD
    elif facts.classes.names != earlier.classes.names:
        why_new_head = "the run's is for other classes, or for the same in another order"
    elif _shapes(found["params"]["head"]) != _shapes(params["head"]):
        why_new_head = "the run's is of another kind"
    loaded = {"params": {**found["params"]}, "batch_stats": {**found["batch_stats"]}}
    norm = loaded["batch_stats"].pop("norm", None)
    if why_new_head is not None:
        loaded["params"]["head"], norm = params["head"], None
    if "norm" in batch_stats:
        loaded["batch_stats"]["norm"] = batch_stats["norm"] if norm is None else norm
    elif norm is not None:
        loaded["params"]["head"] = feature_norm.folded(loaded["params"]["head"], norm)
    head = (
        "its head too"
        if why_new_head is None
        else f"but its head starts from random weights: {why_new_head}"
    )
    message = f"{network} starts with the weights of the run in {workdir}, {head}"
    return Pretrained(loaded["params"], loaded["batch_stats"], message, why_new_head)


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.shape(leaf) for path, leaf in leaves}
