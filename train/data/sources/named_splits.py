"""Data sets whose splits have names, as Hugging Face and tensorflow-datasets have them."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from absl import logging

from train.data.examples import SPLIT_WORDS, Examples, Split, given_groups, split_named
from train.foundation import names
from train.foundation.errors import UserError


def chosen(available: Collection[str], splits: Mapping[Split, str], where: str) -> dict[Split, str]:
    """The name of each split of a data set, as `config.dataset` gives it or as it is usual.

    Raises:
        UserError: a given name is not there or is another split too, or several names fit, or none
            fits for training.
    """
    found: dict[Split, str] = {}
    for split in (Split.TRAIN, Split.VALIDATION, Split.TEST):
        is_given = split in splits
        fit = [splits[split]] if is_given else [n for n in available if split_named(n) is split]
        if len(fit) == 1 and fit[0] in available and fit[0] not in found.values():
            found[split] = fit[0]
        elif fit or split is Split.TRAIN:
            has = f"{where} has {' and '.join(fit) or 'none'} for {split.word}"
            raise UserError(
                field=f"config.dataset.{split.word}_split",
                must_be=f"one of {', '.join(available)}, each for one split",
                but=f"got {fit[0]!r}" if is_given else has,
            )
    return found


def given_splits(words: np.ndarray, where: str) -> np.ndarray:
    """The split of each example by the word that a table or an array has for it, int8 [n]."""
    split_of = {word: split_named(word) for word in words}
    if wrong := [word for word, split in split_of.items() if split is None]:
        raise UserError(field=f"{where}: split", must_be=SPLIT_WORDS, got=wrong[0])
    return np.array([split_of[word] for word in words], np.int8)


def joined(
    parts: Sequence[tuple[Split, Examples]], asked: Collection[Split], where: str
) -> Examples:
    """The encoded images of several splits, one split after another.

    The official test images of many data sets have no labels. Such a split is left out, and so are
    single examples without a label, which have a negative one.

    Raises:
        UserError: examples for training, or of a split that was asked for, have no labels.
    """
    used = []
    for split, given in parts:
        # What shall be classified has no classes.
        part = with_labels(given) if given.class_names else given
        if len(part):
            used.append(dataclasses.replace(part, splits=np.full(len(part), split, np.int8)))
        elif split is Split.TRAIN or split in asked:
            raise UserError(f"{where}: examples of {split.word} have no labels")
        else:
            logging.warning("%s: %s has no labels, and is not used", where, split.word)

    def of_all(column: str) -> Any:
        columns = [getattr(part, column) for part in used]
        return None if columns[0] is None else np.concatenate(columns)

    inputs: list[Any] = [part.inputs for part in used]
    starts = np.cumsum([0, *map(len, inputs[:-1])])
    splits, called, groups = of_all("splits"), of_all("names"), of_all("groups")
    if len({*called}) < len(called):  # Splits may have files of the same names.
        words = [Split(split).word for split in splits.tolist()]
        called = np.array([*map("/".join, zip(words, called, strict=True))], object)
    examples = Examples(
        inputs=_Joined(inputs),
        places=np.concatenate([one.places + at for one, at in zip(used, starts, strict=True)]),
        labels=of_all("labels"),
        splits=splits,
        class_names=used[0].class_names,
        where=where,
        names=called,
        groups=None if groups is None else given_groups(groups),
        credits=of_all("credits"),
        content=" ".join(dict.fromkeys(part.content for part in used)),
    )
    # Names that look the same are one.
    forms = [*map(names.same_form, examples.class_names)]
    number = {form: label for label, form in enumerate(dict.fromkeys(forms))}
    if len(number) == len(forms):
        return dataclasses.replace(examples, class_names=tuple(number))
    return examples.renumbered(np.array([number[form] for form in forms]), tuple(number))


def with_labels(examples: Examples) -> Examples:
    """The examples that have a label; a warning counts the others, unless none has one."""
    is_labelled = examples.labels >= 0
    if is_labelled.any() and not is_labelled.all():
        number = np.count_nonzero(~is_labelled)
        logging.warning("%s: %s examples without a label are left out", examples.where, number)
    return examples if is_labelled.all() else examples.take(is_labelled)


@dataclass(frozen=True)
class _Joined(Sequence[bytes]):
    """The images of several splits, one split after another."""

    parts: list[Sequence[bytes]]

    def __len__(self) -> int:
        """The number of images."""
        return sum(map(len, self.parts))

    def __getitem__(self, index: Any) -> Any:
        """The bytes of an image, counted from 0."""
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError(index)
