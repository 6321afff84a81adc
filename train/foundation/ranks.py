"""What is above the classes: genera and families above species, continents above countries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# Signs in front of the names of hybrids.
_HYBRID = ("×", "x")


@dataclass(frozen=True)
class Ranks:
    """The ranks of a taxonomy, and the name of each class in each of them.

    Attributes:
        names: the names of the ranks from the top down; the last is the rank of the classes, as in
            ("family", "genus", "species").
        above: for each class, its names in all ranks but the last; "" in a rank that it does not
            have.
    """

    names: tuple[str, ...]
    above: tuple[tuple[str, ...], ...]

    def paths(self, class_names: Sequence[str]) -> list[tuple[str, ...]]:
        """For each class its names from the top down, of which the last is its own."""
        named = zip(self.above, class_names, strict=True)
        return [(*filter(None, names), own) for names, own in named]

    def to_plain(self, class_names: Sequence[str]) -> Iterator[dict[str, str]]:
        """A JSON value for each class: its names by their ranks."""
        for names, own in zip(self.above, class_names, strict=True):
            yield dict(zip(self.names, (*names, own), strict=True))

    @classmethod
    def from_plain(cls, plain: Sequence[Mapping[str, str]]) -> "Ranks":
        """The ranks from the results of `to_plain`.

        Raises:
            ValueError: the classes have different ranks.
        """
        names = tuple(plain[0])
        if any(tuple(one) != names for one in plain):
            raise ValueError("'ranks' must have the same names for each class")
        return cls(names, tuple(tuple(one.values())[:-1] for one in plain))


# The names of the classes to their ranks; None if there is nothing above them.
RanksOf = Callable[[Sequence[str]], Ranks | None]


def none(_class_names: Sequence[str]) -> Ranks | None:
    """No ranks."""
    return None


def first_words(class_names: Sequence[str]) -> Ranks:
    """The genera of species whose names start with them, as "Quercus" of "Quercus robur"."""
    return Ranks(("genus", "species"), tuple((_first_word(name),) for name in class_names))


def _first_word(name: str) -> str:
    first, _, rest = name.partition(" ")
    return f"{first} {rest.partition(' ')[0]}" if first in _HYBRID and rest else first


def folders(class_names: Sequence[str]) -> Ranks | None:
    """The folders above the folders of the classes, whose names are paths; None if there are none.

    A folder may be a class and also be above others, such as a genus with plants of unknown
    species. It is then a class of its own below itself.
    """
    parents = [tuple(name.split("/")[:-1]) for name in class_names]
    above = {parent[:depth] for parent in parents for depth in range(1, len(parent) + 1)}
    # A class that is also a folder above others.
    own = (tuple(name.split("/")) for name in class_names)
    complete = [one if one in above else parent for one, parent in zip(own, parents, strict=True)]
    depth = max(map(len, complete))
    if depth == 0:
        return None
    outer = ("folder",) if depth == 1 else tuple(f"level-{n} folder" for n in range(1, depth + 1))
    names = (*outer, "class")
    return Ranks(names, tuple(one + ("",) * (depth - len(one)) for one in complete))


def plural(rank: str) -> str:
    """The name of a rank for several of its nodes.

    Examples:
        >>> plural("species"), plural("genus"), plural("family"), plural("class")
        ('species', 'genera', 'families', 'classes')
    """
    irregular = {"genus": "genera", "phylum": "phyla", "species": "species"}
    if rank in irregular:
        return irregular[rank]
    if rank.endswith("y"):
        return f"{rank[:-1]}ies"
    return f"{rank}es" if rank.endswith(("s", "x", "ch")) else f"{rank}s"
