"""The files of the comparison of losses: what was planned, and what the runs gave."""

import base64
import functools
import hashlib
import json
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"

# In the order of the page of the design.
QUESTIONS = {
    "tail": ("tail_countries", "tail_regions", "tail_tiny_imagenet", "tail_organs"),
    "noise": (
        "noise_gaussian_20",
        "noise_gaussian_40",
        "noise_organs_20",
        "noise_organs_40",
        "noise_tiny_imagenet_20",
        "noise_tiny_imagenet_40",
    ),
    "average": (
        "average_countries_2",
        "average_countries_5",
        "average_countries_10",
        "average_tiny_imagenet_5",
    ),
    "epsilon": ("epsilon_regions",),
    "samples": ("samples_countries",),
}
STUDIES = tuple(study for studies in QUESTIONS.values() for study in studies)
# Each of them is corrected by itself.
FINE_TUNED = ("fine_tuned_tail", "fine_tuned_noise")

# A part of a question has the studies of one kind of data.
DATA = {
    "names": ("countries", "regions"),
    "features": ("gaussian", "organs"),
    "photographs": ("tiny_imagenet",),
    "names and features": ("countries", "regions", "gaussian", "organs"),
}


def studies_of(name: str) -> tuple[str, ...]:
    """The studies of a question, of a part of it such as "noise of features", or the one named."""
    if name in STUDIES:
        return (name,)
    question, _, data = name.partition(" of ")
    if not data:
        return QUESTIONS[question]
    return tuple(study for study in QUESTIONS[question] if any(one in study for one in DATA[data]))


@dataclass(frozen=True)
class Contrast:
    """A contrast as its file plans it. The margin is in points."""

    study: str
    name: str
    first: str
    second: str
    metric: str
    primary: bool
    margin: float | None


@functools.cache
def planned(study: str) -> dict[str, Any]:
    """The file of a study."""
    return tomllib.loads(_plan(study).read_text())


def digest(study: str) -> str:
    """The SHA-256 of the file of a study."""
    return hashlib.sha256(_plan(study).read_bytes()).hexdigest()


def _plan(study: str) -> Path:
    if study in FINE_TUNED:
        return EVIDENCE / "fine_tuned" / f"{study.rsplit('_', maxsplit=1)[-1]}.toml"
    return EVIDENCE / "studies" / f"{study}.toml"


@functools.cache
def contrasts(study: str) -> tuple[Contrast, ...]:
    """All contrasts of a study, in the order of its file."""
    return tuple(
        Contrast(
            study,
            one["name"],
            one["first"],
            one["second"],
            one["metric"],
            one["primary"],
            one.get("equivalence"),
        )
        for one in planned(study)["contrasts"]
    )


@functools.cache
def claims() -> list[dict[str, str]]:
    """The claims of the thesis, with the contrasts that test them."""
    return tomllib.loads((EVIDENCE / "claims.toml").read_text())["claims"]


@functools.cache
def results(study: str) -> dict[str, Any]:
    """The JSON of a study."""
    if study in FINE_TUNED:
        return json.loads(_plan(study).with_suffix(".json").read_text())
    return json.loads((EVIDENCE / "results" / f"{study}.json").read_text())


def arm(study: str, name: str) -> dict[str, Any]:
    """One arm of a study."""
    (found,) = (one for one in results(study)["arms"] if one["name"] == name)
    return found


def stored(contrast: Contrast) -> dict[str, Any]:
    """What the JSON has of a contrast."""
    (found,) = (one for one in results(contrast.study)["contrasts"] if one["name"] == contrast.name)
    return found


def labels(study: str) -> np.ndarray:
    """The label of each test example."""
    found = results(study)["labels"]
    return np.frombuffer(base64.b64decode(found["little_endian_int32"]), "<i4")


def hits(study: str, arm_name: str, metric: str) -> np.ndarray:
    """Whether the set of each example had its label: 0 or 1, by seed and example."""
    found = arm(study, arm_name)["hits"][metric]
    packed = np.frombuffer(base64.b64decode(found["packed_bits"]), np.uint8)
    bits = np.unpackbits(packed, count=math.prod(found["shape"]))
    return bits.reshape(found["shape"])


def differences(contrast: Contrast) -> np.ndarray:
    """The hits of the first arm minus the hits of the second: -1, 0 or 1, by seed and example."""
    first, second = (
        hits(contrast.study, one, contrast.metric) for one in (contrast.first, contrast.second)
    )
    return first.astype(float) - second


def is_macro(metric: str) -> bool:
    """Whether the metric is a mean over classes."""
    return metric.startswith("macro_")
