"""Which classes there are, and on which pages each of them is; the same size on every page."""

import bisect
import functools
from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from train.prediction.html_page import cells, words

# The largest number of classes on a page; of more, these are the most frequent ones in the sets.
MOST_CLASSES = 50_000


class ClassIndex:
    """The classes of a classifier and the pages of their sets.

    Args:
        names: the names of the classes.
        labels: what tables call them.
    """

    def __init__(self, names: Sequence[str], labels: Sequence[str]) -> None:
        self._names = names
        self._labels = labels
        # The pages on which a class is, in order, and the number of its sets.
        self._pages: dict[int, list[int]] = {}
        self._sets: dict[int, int] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the options have every class."""
        return len(self._names) <= MOST_CLASSES

    def add(self, classes: Iterable[int], page: int) -> None:
        """Adds the classes that a card on a page has; pages come in order."""
        for index in classes:
            pages = self._pages.setdefault(index, [])
            if not pages or pages[-1] != page:
                pages.append(page)
            self._sets[index] = self._sets.get(index, 0) + 1

    def options(self, page: int | None) -> Iterator[Markup]:
        """An option for each class, by name; no class may be added afterwards.

        With a page, an option has the number of sets with the class, and the first page, the page
        before this one, the page after this one and the last page that have the class; 0 for no
        page. So its size does not depend on the number of pages.
        """
        for index, start in self._starts:
            places = "" if page is None else self._places(index, page)
            yield Markup(f"{start}{places}>")

    @functools.cached_property
    def _starts(self) -> list[tuple[int, str]]:
        """The classes by name, and the start of the option of each."""
        listed: Iterable[int] = range(len(self._names))
        if not self.is_complete:
            by_sets = sorted(listed, key=lambda index: -self._sets.get(index, 0))
            listed = by_sets[:MOST_CLASSES]
        starts = []
        for index in sorted(listed, key=lambda index: (self._names[index], index)):
            name = self._names[index]
            label = cells.other_label(name, self._labels[index])
            start = Markup('<option value="{}"').format(words.plain(name))
            if label is not None:
                start += Markup(' data-label="{}"').format(label)
            starts.append((index, str(start)))
        return starts

    def _places(self, index: int, page: int) -> str:
        pages = self._pages.get(index)
        if pages is None:
            return ""
        before = bisect.bisect_left(pages, page)
        after = bisect.bisect_right(pages, page)
        places = (
            pages[0],
            pages[before - 1] if before else 0,
            pages[after] if after < len(pages) else 0,
            pages[-1],
        )
        return f' data-sets="{self._sets[index]}" data-pages="{" ".join(map(str, places))}"'
