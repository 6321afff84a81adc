"""What is above the classes: genera and families above species, continents above countries."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from train.data.sources import table
from train.foundation import names
from train.foundation.console import in_words
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown

if TYPE_CHECKING:
    from topk_jax.taxonomy import Taxonomy

FIELD = "config.dataset.taxonomy"
# Genera are the first words of the names of species.
FIRST_WORD = "first_word"
# After the name of the flag or field.
HOW_TO_GIVE = f"a table of the classes and their ranks, or {FIRST_WORD} for the genera of names"
# The rank of the node that has all classes.
ALL = "all"
# What is before the first letter of a genus: numbers, marks, and a hybrid's sign, typed as an x.
_BEFORE = re.compile(r"^(?:[\W\d_]|x(?=[A-Z])|[xX](?=[ _].*[^\W\d_]))+")
# What may follow its last one.
_AFTER = "\"'\u2019\u201d\u00bb)],;:"


@dataclass(frozen=True)
class ClassTree:
    """The classes of a data set, and what is above them.

    A node is as far below the root as its rank is below the top. So a rank that a class does not
    have, above one that it has, has a node with only the node of the next one below it.

    Attributes:
        ranks: the names of the ranks from the top down; the last is the rank of the classes, as in
            ("family", "genus", "species").
        paths: for each class its names from the top down, of which the last is its own. A path is
            shorter if the class does not have the lowest ranks above it.
    """

    ranks: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, ranks: Sequence[str], above: Iterable[Sequence[str]], class_names: Sequence[str]
    ) -> "ClassTree":
        """The tree of classes, without ranks that none of them has.

        Args:
            ranks: the names of the ranks from the top down, with the rank of the classes.
            above: the names above each class, from the top down; "" in a rank that it lacks.
            class_names: the classes.
        """
        above = [*above]
        kept = [any(column) for column in zip(*above, strict=True)]
        ranks = (*itertools.compress(ranks, kept), ranks[-1])
        paths = tuple(
            (*_complete(ranks, itertools.compress(one, kept)), own)
            for one, own in zip(above, class_names, strict=True)
        )
        return cls(ranks, paths)

    def if_shared(self) -> "ClassTree | None":
        """The same; None if each class is alone below the root."""
        nodes = [path[:depth] for path in self.paths for depth in range(1, len(path))]
        return self if len({*nodes}) < len(nodes) else None

    @cached_property
    def taxonomy(self) -> "Taxonomy":
        """The same as the functions of the library take it."""
        # Imported here because reading a data set does not need JAX.
        from topk_jax.taxonomy import Taxonomy  # noqa: PLC0415

        return Taxonomy.from_paths(self.paths)

    @cached_property
    def rank_of_node(self) -> tuple[str, ...]:
        """The rank of each node; `ALL` for the root."""
        found = np.full(self.taxonomy.num_nodes, self.ranks[-1], object)
        for rank, nodes in zip((ALL, *self.ranks), self.taxonomy.ancestors.T, strict=False):
            found[nodes] = rank
        found[: self.taxonomy.num_classes] = self.ranks[-1]
        return tuple(found.tolist())

    @cached_property
    def digest(self) -> str:
        """A hash of the tree."""
        plain = json.dumps([self.taxonomy.names, self.taxonomy.parents])
        return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:12]

    def members(self, node: int) -> np.ndarray:
        """The classes of a node, by their indices."""
        return np.flatnonzero((self.taxonomy.ancestors == node).any(axis=1))

    def describe(self, nodes: Iterable[int], class_names: Sequence[str]) -> list[dict[str, Any]]:
        """Nodes as files have them, with other names of the classes."""
        called = (*class_names, *self.taxonomy.names[self.taxonomy.num_classes :])
        ranks, sizes = self.rank_of_node, self.taxonomy.sizes.tolist()
        return [
            {"name": called[node], "rank": ranks[node], "classes": sizes[node]} for node in nodes
        ]

    def title(self, node: int, class_names: Sequence[str]) -> str:
        """What is shown to users: "Quercus (4 species)", or the name of a class."""
        if node < self.taxonomy.num_classes:
            return class_names[node]
        number = int(self.taxonomy.sizes[node])
        what = self.ranks[-1] if number == 1 else plural(self.ranks[-1])
        return f"{self.taxonomy.names[node]} ({number:,} {what})"

    def to_rows(self) -> Iterator[dict[str, str]]:
        """A JSON value for each class: its names by their ranks, "" in a rank without one."""
        for *above, own in self.paths:
            named = dict(zip(self.ranks, above, strict=False))
            yield {**dict.fromkeys(self.ranks, ""), **named, self.ranks[-1]: own}

    @classmethod
    def from_rows(
        cls, rows: Sequence[Mapping[str, str]], class_names: Sequence[str]
    ) -> "ClassTree | None":
        """The tree from the results of `to_rows`; None if each class is alone.

        Raises:
            ValueError: the classes have different ranks.
        """
        ranks = tuple(rows[0])
        if any(tuple(one) != ranks for one in rows):
            raise ValueError("'ranks' must have the same names for each class")
        above = (tuple(one.values())[:-1] for one in rows)
        return cls.of(ranks, above, class_names).if_shared()

    def to_plain(self) -> dict[str, Any]:
        """The tree as the description of a program has it: a node, its name, rank and parent."""
        return {
            "ranks": list(self.ranks),
            "names": list(self.taxonomy.names),
            "parents": list(self.taxonomy.parents),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> "ClassTree":
        """The tree from the result of `to_plain`.

        Raises:
            ValueError: it is not one.
        """
        from topk_jax.taxonomy import Taxonomy  # noqa: PLC0415

        taxonomy = Taxonomy(tuple(plain["names"]), tuple(plain["parents"]))
        ways = (dict.fromkeys(way[1:]) for way in taxonomy.ancestors.tolist())
        paths = tuple(tuple(taxonomy.names[node] for node in way) for way in ways)
        found = cls(tuple(plain["ranks"]), paths)
        if found.taxonomy != taxonomy or taxonomy.depth > len(found.ranks):
            raise ValueError("names must be in the order of the classes, with a rank for each")
        return found


def read(given: str, class_names: Sequence[str]) -> ClassTree:
    """The tree of classes that `config.dataset.taxonomy` names.

    A table has a column for each rank, from the classes up, as class, genus and family, or from the
    top down. It may have rows of further classes, which are not looked at, and several rows of a
    class that say the same. An empty cell is a rank that the class does not have.

    Args:
        given: the path of a table, or `FIRST_WORD`. After a colon may be the names of the columns
            to use, from the top rank to the classes: "gbif.csv:family,genus,species".
        class_names: the classes.

    Raises:
        UserError: the table cannot be read, lacks a class, or its ranks are not a tree; or each
            class is alone in all of them.
    """
    found = first_words(class_names) if given == FIRST_WORD else _of_table(given, class_names)
    if found is None:
        raise UserError(
            f"{FIELD} must have two classes or more below one name; with {given} each of "
            f"the {len(class_names):,} classes is alone, such as {shown(class_names[0])!r}"
        )
    return found


def genera(class_names: Sequence[str]) -> list[str]:
    """The genera of species whose names start with them, as "Quercus" of "Quercus robur".

    Words are separated by spaces, and in a name without a space by "_". Genera that differ only in
    case are one. Numbers, marks and signs of hybrids before a genus are no part of it.
    """
    spelled: dict[str, str] = {}
    return [spelled.setdefault(word.casefold(), word) for word in map(_first_word, class_names)]


def first_words(class_names: Sequence[str]) -> ClassTree | None:
    """The species below their `genera`; None if each is alone in its genus."""
    above = zip(genera(class_names), strict=True)
    return ClassTree.of(("genus", "species"), above, class_names).if_shared()


def folders(class_names: Sequence[str]) -> ClassTree | None:
    """The folders above the folders of the classes, whose names are paths; None if none is shared.

    A folder may be a class and also be above others, such as a genus with plants of unknown
    species. It is then a class of its own below itself.
    """
    own = [tuple(name.split("/")) for name in class_names]
    outer = {path[:depth] for path in own for depth in range(1, len(path))}
    above = [path if path in outer else path[:-1] for path in own]
    depth = max(map(len, above))
    ranks = ("folder",) if depth == 1 else tuple(f"level-{n} folder" for n in range(1, depth + 1))
    full = (one + ("",) * (depth - len(one)) for one in above)
    return ClassTree.of((*ranks, "class"), full, class_names).if_shared()


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


def _complete(ranks: Sequence[str], above: Iterable[str]) -> Iterator[str]:
    """The names of a class down to its last rank, with others for ranks that it lacks."""
    lacking: list[str] = []
    for rank, name in zip(ranks, above, strict=False):
        if not name:
            lacking.append(rank)
            continue
        yield from (f"{name} (no {one})" for one in lacking)
        yield name
        lacking.clear()


def _first_word(name: str) -> str:
    text = same_form(name)
    # Of a name without letters all is kept.
    text = _BEFORE.sub("", text) or text
    return text.split(" " if " " in text else "_")[0].rstrip(_AFTER)


def _of_table(given: str, class_names: Sequence[str]) -> ClassTree | None:
    """The tree in a table; None if each class is alone."""
    where = f"{FIELD} {given}"
    path, _, chosen = given.rpartition(":")
    # After the path of a table may be the names of the columns to use.
    is_named = path != "" and not Path(given).expanduser().exists()
    place = names.existing(Path(path if is_named else given).expanduser().absolute())
    found = table.read(place, FIELD)
    columns = {same_form(name): [*map(same_form, column)] for name, column in found.items()}
    if is_named:
        wanted = [*map(same_form, chosen.split(","))]
        if missing := [name for name in wanted if name not in columns]:
            raise UserError(f"{where}: it has no column {missing[0]!r}, but {', '.join(columns)}")
        columns = {name: columns[name] for name in wanted}
    if len(columns) < 2:
        raise UserError(
            f"{where} must have a column of classes and one for each rank above them; it has "
            f"{', '.join(columns) or 'none'}"
        )
    wanted = [*map(same_form, class_names)]
    known = {*wanted}
    first, *_, last = columns
    if not is_named and max(first, last, key=lambda name: len({*columns[name]} & known)) == first:
        columns = dict(reversed(columns.items()))
    rows = [row for row in zip(*columns.values(), strict=True) if row[-1] in known]
    _check_places([*columns], rows, where)
    above = {row[-1]: row[:-1] for row in rows}
    if missing := [shown(name) for name in wanted if name not in above]:
        raise UserError(
            f"{where} must have a row for each class; it has none for "
            f"{in_words(missing, 'classes')}; a colon and the names of columns, down to "
            "that of the classes, may follow its path"
        )
    tree = ClassTree.of([*columns], [above[name] for name in wanted], class_names)
    try:
        _ = tree.taxonomy
    except ValueError as error:  # A class is above others.
        raise UserError(f"{where}: {error}") from error
    return tree.if_shared()


def _check_places(ranks: Sequence[str], rows: Sequence[tuple[str, ...]], where: str) -> None:
    """Refuses a name in two places of its rank, in any case, and two names above each other."""
    places: dict[tuple[str, str], str] = {}
    pairs: set[tuple[str, str]] = set()
    for row in rows:
        way: list[tuple[str, str]] = []
        for rank, name in filter(all, zip(ranks, row, strict=True)):
            way.append((rank, name))
            place = ", ".join(map(" ".join, way))
            other = places.setdefault((rank, name.casefold()), place)
            if other != place:
                raise UserError(
                    f"{where}: the {rank} {shown(name)} must be in one place, in one case; it is "
                    f"in {shown(other)}, and in {shown(place)}"
                )
        for (_, upper), (_, name) in itertools.pairwise(way):
            pairs.add((upper, name))
            if name != upper and (name, upper) in pairs:
                raise UserError(f"{where}: {shown(upper)} is above {shown(name)}, and below it")
