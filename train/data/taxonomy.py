"""What is above the classes: genera and families above species, continents above countries."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from train.data.own import table_columns
from train.data.own.table_columns import Columns, Table, TableKind
from train.foundation import messages, names
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.foundation.spelling import spell

if TYPE_CHECKING:
    from topk_jax.taxonomy import Taxonomy

FIELD = "config.dataset.taxonomy"
# Genera are the first words of the names of species.
FIRST_WORD = "first_word"
# After the name of the flag or field.
HOW_TO_GIVE = f"a table of the classes and their ranks, or {FIRST_WORD} for the genera of names"
# The rank of the node that has all classes.
ALL = "all"
_TABLE = TableKind(
    field=FIELD,
    what=f"a table of classes and their ranks, or {FIRST_WORD}",
    # These names show what is between the columns.
    known=("class", "species", "genus", "family", "order"),
    takes_all=True,
)
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
            above: for each class its names in all ranks but the last; "" in a rank that it does
                not have.
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
        depths = np.zeros(self.taxonomy.num_nodes, int)
        for depth, nodes in enumerate(self.taxonomy.ancestors.T):
            depths[nodes] = depth
        inner = (ALL, *self.ranks[:-1])
        leaves = (self.ranks[-1],) * self.taxonomy.num_classes
        return (*leaves, *(inner[depth] for depth in depths[self.taxonomy.num_classes :]))

    @cached_property
    def digest(self) -> str:
        """A hash of the tree."""
        plain = json.dumps([self.taxonomy.names, self.taxonomy.parents])
        return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()[:12]

    def members(self, node: int) -> np.ndarray:
        """The classes of a node, by their indices."""
        return np.flatnonzero((self.taxonomy.ancestors == node).any(axis=1))

    def describe(self, nodes: Iterable[int], class_names: Sequence[str]) -> list[dict[str, Any]]:
        """Nodes as files have them.

        Args:
            nodes: the nodes.
            class_names: what the classes are called.
        """
        called = (*class_names, *self.taxonomy.names[self.taxonomy.num_classes :])
        return [
            {
                "name": called[node],
                "rank": self.rank_of_node[node],
                "classes": int(self.taxonomy.sizes[node]),
            }
            for node in nodes
        ]

    def title(self, node: int, class_names: Sequence[str]) -> str:
        """What is shown to users: "Quercus (4 species)", or the name of a class."""
        (described,) = self.describe([node], class_names)
        if node < self.taxonomy.num_classes:
            return str(described["name"])
        number = described["classes"]
        what = self.ranks[-1] if number == 1 else plural(self.ranks[-1])
        return f"{described['name']} ({number:,} {what})"

    def to_rows(self) -> Iterator[dict[str, str]]:
        """A JSON value for each class: its names by their ranks, "" in a rank without one."""
        for *above, own in self.paths:
            lacking = [""] * (len(self.ranks) - 1 - len(above))
            yield dict(zip(self.ranks, (*above, *lacking, own), strict=True))

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
        if taxonomy.depth > len(plain["ranks"]):
            raise ValueError("ranks must have a name for each rank of the tree")
        ways = (dict.fromkeys(way[1:]) for way in taxonomy.ancestors.tolist())
        paths = tuple(tuple(taxonomy.names[node] for node in way) for way in ways)
        found = cls(tuple(plain["ranks"]), paths)
        if found.taxonomy != taxonomy:
            raise ValueError("names must have the nodes in the order of the classes below them")
        return found


def read(given: str, class_names: Sequence[str]) -> ClassTree:
    """The tree of classes that `config.dataset.taxonomy` names.

    A table has a column for each rank, from the classes up, as class, genus and family, or from the
    top down. It may have rows of further classes, which are not looked at. An empty cell is a rank
    that the class does not have.

    Args:
        given: the path of a table, or `FIRST_WORD`.
        class_names: the classes.

    Raises:
        UserError: the table cannot be read, lacks a class, or its ranks are not a tree; or each
            class is alone in all of them.
    """
    if given == FIRST_WORD:
        above, found = ["genus"], first_words(class_names)
    else:
        above, found = _of_table(given, class_names)
    if found is None:
        raise UserError(
            f"{spell(FIELD)} must have two classes or more in one {' or '.join(above)}; "
            f"with {given} each of the {len(class_names):,} classes is alone, such as "
            f"{shown(class_names[0])!r}"
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


def _of_table(given: str, class_names: Sequence[str]) -> tuple[list[str], ClassTree | None]:
    """The ranks above the classes in a table, and the tree; None if each class is alone."""
    found = table_columns.read(names.existing(Path(given).expanduser().absolute()), _TABLE)
    columns = {name: [*map(same_form, column)] for name, column in found.columns.items()}
    if len(columns) < 2:
        raise UserError(
            f"{found.where} must have a column of classes and one for each rank above them; it has "
            f"{', '.join(map(repr, columns)) or 'none'}"
        )
    first, *_, last = columns
    wanted = [*map(same_form, class_names)]
    own = max(first, last, key=lambda name: len({*columns[name]} & {*wanted}))
    if own == first:
        columns = dict(reversed(columns.items()))
    rows = _rows_of(wanted, own, replace(found, columns=columns))
    above = {
        name: [column[row] if names.is_visible(column[row]) else "" for row in rows]
        for name, column in columns.items()
        if name != own
    }
    _check_names(above, wanted, found.where)
    tree = ClassTree.of((*above, own), zip(*above.values(), strict=True), class_names)
    _check_classes(tree, found.where)
    return [*above], tree.if_shared()


def _rows_of(wanted: Sequence[str], own: str, table: Table) -> list[int]:
    """The row of each class.

    Raises:
        UserError: a class has none, or several.
    """
    rows: dict[str, int] = {}
    column, classes = table.columns[own], {*wanted}
    for row, name in enumerate(column):
        if name in classes and rows.setdefault(name, row) != row:
            raise UserError(
                f"{table.where} must have each class once; {table.place(rows[name])} and "
                f"{table.place(row)} both have {shown(name)}"
            )
    if missing := [name for name in wanted if name not in rows]:
        folded = {name.casefold(): name for name in column}
        cased = next((name for name in missing if name.casefold() in folded), None)
        hint = ""
        if cased is not None:
            hint = f"; it has {folded[cased.casefold()]!r} in place of {cased!r}"
        raise UserError(
            f"{table.where} must have a row for each class; it has none for "
            f"{messages.in_words([*map(shown, missing)], 'classes')}{hint}"
        )
    return [rows[name] for name in wanted]


def _check_names(above: Columns, class_names: Sequence[str], where: str) -> None:
    """Refuses names of one rank that differ only in case, a name in two places, and circles."""
    spelled: dict[tuple[str, str], tuple[str, str]] = {}
    places: dict[tuple[str, str], tuple[str, str]] = {}
    orders: dict[tuple[str, str], str] = {}
    for of_class, *cells in zip(class_names, *above.values(), strict=True):
        # The names of the class in the ranks that it has, below what is above all classes.
        way = [("", ""), *(one for one in zip(above, cells, strict=True) if one[1])]
        for (upper, name), (lower, child) in itertools.pairwise(way):
            other, of_other = spelled.setdefault((lower, child.casefold()), (child, of_class))
            if other != child:
                raise UserError(
                    f"{where}: the column {lower} has {shown(other)!r} ({shown(of_other)}) and "
                    f"{shown(child)!r} ({shown(of_class)}), which differ only in case"
                )
            place = f"the {upper} {shown(name)}" if upper else "no rank"
            other, of_other = places.setdefault((lower, child), (place, of_class))
            if other != place:
                raise UserError(
                    f"{where}: the {lower} {shown(child)} must be in one place; it is in {other} "
                    f"({shown(of_other)}) and in {place} ({shown(of_class)})"
                )
            orders.setdefault((name, child), of_class)
            if name != child and (child, name) in orders:
                raise UserError(
                    f"{where}: no two names may be above each other; {shown(child)} is above "
                    f"{shown(name)} ({shown(orders[child, name])}) and below it ({shown(of_class)})"
                )


def _check_classes(tree: ClassTree, where: str) -> None:
    """Refuses classes that others are in."""
    inner = {path[:depth]: path[-1] for path in tree.paths for depth in range(1, len(path))}
    if both := next((path for path in tree.paths if path in inner), None):
        rank, own = tree.ranks[len(both) - 1], shown(both[-1])
        raise UserError(
            f"{where}: the class {own} must be in a {rank}: {shown(inner[both])} is in the {rank} "
            f"{own}"
        )
