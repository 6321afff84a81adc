"""The names of the classes: which of them are one, and which look as if they were."""

import unicodedata
from collections.abc import Sequence

import numpy as np
from absl import logging

from train.foundation import names
from train.foundation.messages import in_words

# Letters, quotes and dashes that look like a character of ASCII.
_LOOK_LIKE = str.maketrans(
    "АВЕКМНОРСТУХІЈЅаеорсухіјѕΑΒΕΖΗΙΚΜΝΟΡΤΥΧο‘’ʼ′“”‐‑‒–—−",
    "ABEKMHOPCTYXIJSaeopcyxijsABEZHIKMNOPTYXo''''\"\"------",
)


def numbered(texts: Sequence[str], where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each example by the name of its class, int32 [n], and the sorted names.

    Names that look the same are one class, which is reported; see `names.same_form`.

    Args:
        texts: the name of the class of each example, [n].
        where: what they were found in, for messages.
    """
    name_of = _merged(texts, where)
    class_names = tuple(sorted(set(name_of.values())))
    number = {name: label for label, name in enumerate(class_names)}
    labels = (number[name_of[text]] for text in texts)
    return np.fromiter(labels, np.int32, len(texts)), class_names


def unified(
    labels: np.ndarray, class_names: Sequence[str], where: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The same for labels [n] that are indices into a list of names, whose order is kept."""
    name_of = _merged(class_names, where)
    merged = tuple(dict.fromkeys(name_of[name] for name in class_names))
    number = {name: label for label, name in enumerate(merged)}
    numbers = np.array([number[name_of[name]] for name in class_names], np.int32)
    return numbers[labels], merged


def warn_of_similar(class_names: Sequence[str], where: str) -> None:
    """Warns of classes that are most likely one: their names differ in little."""
    alike: dict[str, dict[str, None]] = {}
    for name in class_names:
        alike.setdefault(_likeness(name), {})[name] = None
    found = [_compared(list(group)) for group in alike.values() if len(group) > 1]
    if found:
        logging.warning(
            "%s has classes whose names differ only in case, spaces or characters that look alike: "
            "%s",
            where,
            in_words(found, "groups"),
        )


def _merged(texts: Sequence[str], where: str) -> dict[str, str]:
    """The name of the class that each name stands for.

    Raises:
        UserError: a name has no character that can be seen.
    """
    for text in texts:
        names.check_visible(text, f"{where}: the name of a class")
    forms: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        forms.setdefault(names.same_form(text), []).append(text)
    # A name that comes in one form keeps its characters without width: some scripts need them.
    name_of = {
        text: unicodedata.normalize("NFC", text).strip() if len(group) == 1 else form
        for form, group in forms.items()
        for text in group
    }
    found = [_compared(sorted(group)) for group in forms.values() if len(group) > 1]
    if found:
        logging.warning(
            "%s has names of classes in several forms of Unicode, or with invisible characters; "
            "names that look the same are one class: %s",
            where,
            in_words(found, "classes"),
        )
    return name_of


def _likeness(name: str) -> str:
    """A form of a name that is the same for names that most likely mean one class."""
    compatible = unicodedata.normalize("NFKC", names.same_form(name))
    return " ".join(compatible.translate(_LOOK_LIKE).casefold().split())


def _compared(group: Sequence[str]) -> str:
    return " and ".join(
        f"'{name}'" + ("" if name.isascii() else f" ({names.code_points(name)})") for name in group
    )
