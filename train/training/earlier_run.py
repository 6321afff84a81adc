"""Reads the selected classifier of an earlier run, which another run starts from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train import data
from train.data import DatasetSpec
from train.foundation.errors import UserError
from train.models import NEW_HEAD, Pretrained, feature_norm
from train.workdir import array_types, run_files
from train.workdir.checkpoint import Checkpointer
from train.workdir.facts import Facts

_FIELD = "config.model.start_from"
# What normalizes the features below the head.
_NORM = "norm"


def load(
    path: str,
    params: Any,
    batch_stats: Any,
    *,
    model_name: str,
    facts: Facts,
    new_head: bool = False,
) -> Pretrained:
    """The variables of a network, replaced by an earlier run's variables at its selected epoch.

    The head is read too if it is of the same kind, for the same classes in the same order.
    Otherwise, and with `new_head`, it keeps its initial values. Moving averages are used if the run
    has them.

    Args:
        path: the workdir of the run, which must be finished.
        params: the initial parameters.
        batch_stats: the initial statistics of batch norm.
        model_name: the name of the network.
        facts: the classes and the shape of the images of the new run.
        new_head: whether the head keeps its initial values in any case.

    Raises:
        UserError: there is no finished run, or its network is another one.
    """
    workdir = Path(path).expanduser()
    name, _, earlier = _describe(workdir)
    if name != model_name:
        raise UserError(
            f"{_FIELD} must be a run of the network {model_name!r}; the run in {path} is of "
            f"{name!r}"
        )
    found = _read(workdir)
    wanted = {"params": params, "batch_stats": batch_stats}
    differences = array_types.differences(*map(_features_of, (found, wanted)))
    if differences:
        raise UserError(
            f"{_FIELD}: the network of the run in {path} does not fit: {differences}. Its images "
            f"are of shape {earlier.image_shape}, and the images of this run of {facts.image_shape}"
        )
    why_new_head = NEW_HEAD if new_head else _why_new_head(found["params"], params, earlier, facts)
    loaded = {collection: dict(parts or {}) for collection, parts in found.items()}
    norm = loaded["batch_stats"].pop(_NORM, None)
    if why_new_head is not None:
        loaded["params"]["head"], norm = params["head"], None
    if _NORM in batch_stats:
        loaded["batch_stats"][_NORM] = batch_stats[_NORM] if norm is None else norm
    elif norm is not None:
        loaded["params"]["head"] = feature_norm.folded(loaded["params"]["head"], norm)
    what = f"{model_name} starts with the weights of the run in {path}"
    head = (
        f"its head too, of {len(earlier.classes.names)} classes"
        if why_new_head is None
        else f"but its head starts from random weights: {why_new_head}"
    )
    return Pretrained(loaded["params"], loaded["batch_stats"], f"{what}, {head}", why_new_head)


def inputs(path: str) -> DatasetSpec:
    """The data set of an earlier run, with the mean and deviation by which the run normalized.

    Args:
        path: the workdir of the run, which must be finished.

    Raises:
        UserError: there is no finished run.
    """
    _, spec, facts = _describe(Path(path).expanduser())
    return facts.complete(spec)


def _describe(workdir: Path) -> tuple[str, DatasetSpec, Facts]:
    """The name of the network of a finished run, its data set, and the facts that it stored."""
    if workdir.is_file():
        raise UserError(
            f"{_FIELD} must be the workdir of a finished run; {workdir} is a file: "
            "config.model.pretrained takes weights of other programs"
        )
    config = run_files.read_config(workdir) if workdir.is_dir() else None
    if config is None:
        what = "holds no run" if workdir.is_dir() else "does not exist"
        raise UserError(f"{_FIELD} must be the workdir of a finished run; {workdir} {what}")
    if run_files.read_results(workdir) is None:
        raise UserError(
            f"{_FIELD} must be the workdir of a finished run; the run in {workdir} is not "
            "finished: the command that started it continues it"
        )
    try:
        name, spec = str(config["model"]["name"]), data.read(config["dataset"])
    except (KeyError, TypeError) as error:
        raise UserError(f"{_FIELD}: {workdir} is a run of another version: {error}") from error
    classes = run_files.read_classes(workdir)
    return name, spec, run_files.read_facts(workdir, classes, spec.image_shape)


def _read(workdir: Path) -> dict[str, Any]:
    """The selected parameters and statistics, on the host."""
    results = run_files.read_results(workdir) or {}
    folder = workdir / run_files.CHECKPOINTS
    if not folder.is_dir():
        raise UserError(f"{_FIELD}: the run in {workdir} has no checkpoints any more")
    try:
        with Checkpointer(folder) as checkpointer:
            found = checkpointer.read_selected()
            checkpointer.check_selected(results.get("best_epoch"))
    except (OSError, ValueError) as error:
        raise UserError(f"{_FIELD}: the checkpoints in {folder} cannot be read: {error}") from error
    return jax.tree.map(np.asarray, found)


def _features_of(variables: Mapping[str, Any]) -> dict[str, str]:
    """The types of the layers below the head."""
    return array_types.describe(
        {name: {"features": (parts or {}).get("features", {})} for name, parts in variables.items()}
    )


def _why_new_head(found: Any, params: Any, earlier: Facts, facts: Facts) -> str | None:
    """The reason why the head of the run is not used; None if it is."""
    names, earlier_names = facts.classes.names, earlier.classes.names
    if len(names) != len(earlier_names):
        return f"the run's is for {len(earlier_names)} classes, not {len(names)}"
    if names != earlier_names:
        return "the run's is for other classes, or for the same in another order"
    if array_types.describe(found["head"]) != array_types.describe(params["head"]):
        return "the run's is of another kind"
    return None
