"""A sample of the user's own images by the rules that made Pl@ntNet-300K (thesis, 3.2.2).

Some of the genera are drawn, and all their species are kept, since species of one genus look alike:
the sample is as ambiguous as all images. Then species with few images are left out, and each of the
others is divided by images. The text of the thesis contradicts itself (docs/errata.md). The rules
here are: more than four images, and ceil(0.1 n) images of a species for validation and for the
test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from train.data.own.listing import Role
from train.foundation.errors import UserError

# A species has more images than these.
FEW = 4
# One in ten images of a species, rounded up, is for validation, and one in ten for the test.
_ONE_IN = 10


@dataclass(frozen=True)
class GenusSample:
    """Images of drawn genera, divided.

    Attributes:
        genera: the genera that were drawn, sorted.
        images: the indices of the images that are kept, in increasing order, [m].
        roles: their splits, int8 [m].
        num_few: how many species of the drawn genera are left out, for they have few images.
        num_left_out: how many images these species have.
    """

    genera: tuple[str, ...]
    images: np.ndarray
    roles: np.ndarray
    num_few: int
    num_left_out: int


def draw(
    paths: Sequence[str],
    labels: np.ndarray,
    genera: Sequence[str],
    *,
    share: float,
    seed: int,
) -> GenusSample:
    """Draws genera uniformly, and divides the images of each of their species.

    The order of the images does not matter: the same images give the same sample.

    Args:
        paths: the paths of the images, [n], all different.
        labels: the species of each image, [n].
        genera: the genus of each species.
        share: the share of the genera that are drawn; rounded to an integer, at least 1.
        seed: what the draws are a function of.

    Raises:
        UserError: fewer than two of the species have enough images.
    """
    counts = np.bincount(labels, minlength=len(genera))
    if counts.max() <= FEW:
        raise UserError(
            f"no class has more than {FEW} images, as the classes of a sample of genera do; the "
            f"largest has {counts.max()}"
        )
    random = np.random.default_rng(seed)
    known = sorted(set(genera))
    number = max(1, round(share * len(known)))
    drawn = {known[place] for place in random.choice(len(known), number, replace=False)}
    is_drawn = np.array([genus in drawn for genus in genera])
    is_kept = is_drawn & (counts > FEW)
    if is_kept.sum() < 2:
        raise UserError(
            f"a sample must have two classes with more than {FEW} images; the {number:,} drawn of "
            f"{len(known):,} genera have {is_kept.sum()}: draw a larger share, or with another seed"
        )
    roles = np.empty(len(paths), np.int8)
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    for label in np.flatnonzero(is_kept):
        of_class = np.array(sorted(by_class[label], key=paths.__getitem__))
        roles[random.permutation(of_class)] = _divided(len(of_class))
    images = np.flatnonzero(is_kept[labels])
    is_few = is_drawn & ~is_kept
    return GenusSample(
        tuple(sorted(drawn)), images, roles[images], int(is_few.sum()), int(counts[is_few].sum())
    )


def _divided(number: int) -> np.ndarray:
    """The splits of the images of a species, in any order, int8 [number]."""
    held_out = -(-number // _ONE_IN)
    roles = np.full(number, Role.TRAIN, np.int8)
    roles[:held_out], roles[held_out : 2 * held_out] = Role.VALIDATION, Role.TEST
    return roles
