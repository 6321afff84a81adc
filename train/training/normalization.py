"""How the images of a run are normalized: by the data set's numbers, or as the weights expect."""

from train.configuration import ModelFields
from train.data import DatasetSpec
from train.foundation.errors import UserError
from train.foundation.spelling import spell
from train.models import NORMALIZATIONS, Normalization, find
from train.training import earlier_run

_FIELD = "config.model.normalization"


def choose_for_run(settings: ModelFields, spec: DatasetSpec) -> Normalization | None:
    """The normalization of a new run; None for the normalization of its data set.

    Args:
        settings: the fields of `config.model`.
        spec: the data set, with the shape of its examples.

    Raises:
        UserError: the field does not fit the data set, or there is no run to start from.
    """
    chosen = _choose(settings, spec)
    return None if chosen in (None, (spec.mean, spec.std)) else chosen


def describe(settings: ModelFields, spec: DatasetSpec) -> str:
    """A line about how images are normalized, if not by the data set's numbers.

    Args:
        settings: the fields of `config.model`.
        spec: the data set, with the normalization of the run.
    """
    if settings.normalization is not None:
        reason = f"{spell(f'{_FIELD}={settings.normalization}')} sets"
    elif settings.start_from is not None:
        reason = f"the run in {settings.start_from} did"
    else:
        reason = f"weights of {settings.name} expect"
    return f"images are normalized as {reason}, not as the data set does: {describe_numbers(spec)}"


def describe_numbers(spec: DatasetSpec) -> str:
    """The mean and deviation of images, of values from 0 to 1."""
    mean, std = (", ".join(f"{one:.3g}" for one in values) for values in (spec.mean, spec.std))
    return f"mean {mean}; standard deviation {std}"


def _choose(settings: ModelFields, spec: DatasetSpec) -> Normalization | None:
    name = settings.normalization
    if name == "dataset":
        return None
    shape = spec.image_shape
    in_colour = spec.has_images and shape is not None and shape[-1] == 3
    if name is not None:
        if not in_colour:
            what = f"images of shape {shape}" if spec.has_images else spec.inputs
            raise UserError(
                field=_FIELD,
                must_be=f"'dataset' or None for {what}",
                but=f"{name!r} is for images of 3 channels",
            )
        return NORMALIZATIONS[name]
    if settings.start_from is not None:
        earlier = earlier_run.inputs(settings.start_from)
        # An earlier run on other channels does not fit, which is reported when its weights are
        # read.
        same = spec.has_images and earlier.has_images and len(earlier.mean) == len(spec.mean)
        return Normalization(earlier.mean, earlier.std) if same else None
    if settings.pretrained is not None and in_colour:
        return find(settings.name).normalization
    return None
