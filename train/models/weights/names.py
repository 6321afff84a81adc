"""The publishers' names for the variables of a network, and their layouts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flax import traverse_util

# The path of a variable: the collection, the modules from the outside in, and its own name.
Path = tuple[str, ...]
# Arrays by the names that a file has for them.
Arrays = dict[str, np.ndarray]

# Kernels [height, width, in, out] to [out, in, height, width], and [in, out] to [out, in].
_TO_TORCH = {4: (3, 2, 0, 1), 2: (1, 0)}
_FROM_TORCH = {4: (2, 3, 1, 0), 2: (1, 0)}

_LINEAR_HEAD = ("head", "Dense_0")
_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


@dataclass(frozen=True)
class OtherNames:
    """The names of another publisher, for reading.

    Attributes:
        sign: the name of a variable that only this publisher's files of the family have.
        renames: names, or prefixes of names up to a dot, in that file and in PyTorch's of
            `PublishedNames`, with `{}` as there. The first that fits is taken; a name that none
            fits stays as it is.
        arrange: changes the renamed arrays that are cut or laid out in another way.
    """

    sign: str
    renames: Mapping[str, str] = field(default_factory=dict)
    arrange: Callable[[Arrays], Arrays] = dict

    def translate(self, arrays: Arrays) -> Arrays:
        """The arrays of a file by the names of `PublishedNames`."""
        renamed = {_renamed(name, self.renames): one for name, one in arrays.items()}
        try:
            return self.arrange(renamed)
        except Exception:
            # Arrays are missing or have other shapes. A message can name them better as they are.
            return renamed


@dataclass(frozen=True)
class PublishedNames:
    """The names of the variables of a family in a file of PyTorch's, both ways.

    Attributes:
        modules: the paths of modules here, below the network, with slashes, and their names there.
            `{}` stands for a number or a word, the same on both sides, in the same order. The path
            of one variable may stand there too. The first that fits is taken; a path that none fits
            has dots for the slashes.
        head: the name of the last, linear layer there.
        left_out: the prefixes of names of what is read and left out, such as auxiliary heads.
        others: the names of other publishers.
        sized: the names of arrays that are of another shape in files for images of another size.
        head_is_convolution: whether the last layer there is a convolution of 1 by 1.
        publisher: whose names they are.
    """

    modules: Mapping[str, str]
    head: str
    left_out: tuple[str, ...] = ()
    others: tuple[OtherNames, ...] = ()
    sized: tuple[str, ...] = ()
    head_is_convolution: bool = False
    publisher: str = "torchvision"

    def of(self, path: Path) -> str | None:
        """The name of a variable; None for a head that is not linear."""
        _, *modules, leaf = path
        if modules[0] != "features":
            return f"{self.head}.{_LEAVES[leaf]}" if tuple(modules) == _LINEAR_HEAD else None
        inner = modules[1:]
        named = _match("/".join([*inner, leaf]), self.modules)
        if named is not None:
            return named
        place = "/".join(inner)
        module = _match(place, self.modules)
        module = place.replace("/", ".") if module is None else module
        return ".".join(filter(None, [module, _LEAVES.get(leaf, leaf)]))

    def in_head(self, name: str) -> bool:
        """Whether a name is one of the last layer."""
        return name.startswith(f"{self.head}.")

    def translate(self, arrays: Arrays) -> Arrays:
        """The arrays of a publisher's file by the names of this table, without those left out."""
        return {
            name: array
            for name, array in self._renamed(arrays).items()
            if not name.endswith("num_batches_tracked") and not name.startswith(self.left_out)
        }

    def unused(self, arrays: Arrays) -> list[str]:
        """The names of the arrays of a publisher's file that are left out."""
        return [name for name in self._renamed(arrays) if name.startswith(self.left_out)]

    def _renamed(self, arrays: Arrays) -> Arrays:
        other = next((other for other in self.others if other.sign in arrays), None)
        return arrays if other is None else other.translate(arrays)

    def num_parameters(self, arrays: Arrays) -> int:
        """What `ModelSpec.num_parameters` counts, of the arrays of a publisher's file."""
        return sum(
            array.size
            for name, array in self.translate(arrays).items()
            if not self.in_head(name)
            and name not in self.sized
            and not name.endswith((".running_mean", ".running_var"))
        )

    def to_torch(self, path: Path, array: np.ndarray) -> np.ndarray:
        """A variable in PyTorch's layout."""
        array = array.transpose(_TO_TORCH[array.ndim]) if path[-1] == "kernel" else array
        if self.head_is_convolution and path[1] == "head" and array.ndim == 2:
            array = array[:, :, None, None]
        return array

    def from_torch(self, path: Path, array: np.ndarray) -> np.ndarray:
        """The inverse of `to_torch`."""
        if self.head_is_convolution and path[1] == "head" and array.ndim == 4:
            array = array[:, :, 0, 0]
        return array.transpose(_FROM_TORCH[array.ndim]) if path[-1] == "kernel" else array


def arrays_of(params: Any, batch_stats: Any, names: PublishedNames) -> Arrays:
    """The variables of a network by their names there, in PyTorch's layout.

    A head that is not linear does not have a name there and is left out. So is the number of
    batches that batch norm has seen: PyTorch then takes 0.
    """
    return {
        name: np.ascontiguousarray(names.to_torch(path, np.asarray(array)))
        for path, array in flatten(params, batch_stats).items()
        if (name := names.of(path)) is not None
    }


def flatten(params: Any, batch_stats: Any) -> dict[Path, Any]:
    """The variables of a model by their paths."""
    return traverse_util.flatten_dict({"params": params, "batch_stats": batch_stats})


def unflatten(variables: Mapping[Path, Any]) -> tuple[Any, Any]:
    """The inverse of `flatten`."""
    nested = traverse_util.unflatten_dict(variables)
    return nested.get("params", {}), nested.get("batch_stats", {})


def _renamed(name: str, renames: Mapping[str, str]) -> str:
    """A name with its prefix, up to a dot or the end, renamed."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        begun = _match(".".join(parts[:end]), renames)
        if begun is not None:
            return ".".join(filter(None, [begun, *parts[end:]]))
    return name


def _match(text: str, templates: Mapping[str, str]) -> str | None:
    """The right side of the first template whose left side is this text, with its numbers."""
    for template, result in templates.items():
        pattern = re.escape(template).replace(r"\{\}", "([^./]+?)")
        found = re.fullmatch(pattern, text)
        if found is not None:
            return result.format(*found.groups())
    return None
