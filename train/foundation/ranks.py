"""What is above the classes: genera and families above species, continents above countries."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from train.foundation.names import same_form

# What is before the first letter of a genus: numbers, marks, and a hybrid's sign, typed as an x.
_BEFORE = re.compile(r"^(?:[\W\d_]|x(?=[A-Z])|[xX](?=[ _].*[^\W\d_]))+")
# What may follow its last one.
_AFTER = "\"'\u2019\u201d\u00bb)],;:"


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
        """For each class its names from the top down, of which the last is its own.

        A node is as far below the root as its rank is below the top. So a rank that a class does
        not have, above one that it has, has a node with only the node of the next one below it.
        """
        return [
            (*self._complete(names), own)
            for names, own in zip(self.above, class_names, strict=True)
        ]

    def _complete(self, names: Sequence[str]) -> Iterator[str]:
        """The names of a class down to its last rank, with others for ranks that it lacks."""
        lacking: list[str] = []
        for rank, name in zip(self.names, names, strict=False):
            if not name:
                lacking.append(rank)
                continue
            yield from (f"{name} (no {one})" for one in lacking)
            yield name
            lacking.clear()

    def are_shared(self) -> bool:
        """Whether there is a name above the classes that two of them have in common."""
        above = [names[:depth] for names in self.above for depth in range(1, len(names) + 1)]
        nodes = [names for names in above if names[-1]]
        return len({*nodes}) < len(nodes)

    def that_exist(self) -> "Ranks":
        """The same without the ranks that no class has."""
        kept = [any(column) for column in zip(*self.above, strict=True)]
        names = (*itertools.compress(self.names, kept), self.names[-1])
        return Ranks(names, tuple(tuple(itertools.compress(one, kept)) for one in self.above))

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
    """The genera of species whose names start with them, as "Quercus" of "Quercus robur".

    Words are separated by spaces, and in a name without a space by "_". Genera that differ only in
    case are one. Numbers, marks and signs of hybrids before a genus are no part of it.
    """
    spelled: dict[str, str] = {}
    words = map(_first_word, class_names)
    genera = tuple((spelled.setdefault(word.casefold(), word),) for word in words)
    return Ranks(("genus", "species"), genera)


def _first_word(name: str) -> str:
    text = same_form(name)
    # Of a name without letters all is kept.
    text = _BEFORE.sub("", text) or text
    return text.split(" " if " " in text else "_")[0].rstrip(_AFTER)


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
