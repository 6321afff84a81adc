"""The figure of an expert beside networks, drawn from files of scores."""

import numpy as np
import pytest

from train.foundation.errors import UserError
from train.papers.figures import expert

CLASSES = ("Crotalaria alba", "Crotalaria nana", "Lupinus alba", "Rosa canina")


def write(path, labels, right, names=None, classes=CLASSES):
    """A file of scores: the label has 0.7 where the network is right, else the smallest score."""
    scores = np.tile(np.array([0.4, 0.3, 0.2, 0.1], np.float32), (len(labels), 1))
    rows = np.arange(len(labels))
    scores[rows, labels] = np.where(right, 0.7, 0.01)
    names = [f"{row}.jpg" for row in rows] if names is None else names
    np.savez(path, scores=scores, labels=labels, names=names, class_names=classes)
    return str(path)


def answers(path, *rows):
    path.write_text("\n".join(["path,label", *rows]) + "\n", encoding="utf-8")
    return str(path)


def errors_of(figure):
    [axes] = figure.axes
    names = [text.get_text() for text in axes.get_yticklabels()]
    return dict(zip(names, (line.get_xdata()[0] for line in axes.lines), strict=False))


def test_sets_are_as_large_as_the_answers_of_the_expert(tmp_path):
    # The expert names 1.5 classes for each of four images, and misses one of their classes.
    table = answers(
        tmp_path / "expert.csv",
        *("1.jpg,Crotalaria alba", "1.jpg,Crotalaria nana", "3.jpg,Lupinus alba"),
        *('0.jpg,"Crotalaria alba; Lupinus alba"', "2.jpg,Rosa canina"),
    )
    labels = np.array([0, 1, 2, 2, 3])
    scores = [
        write(tmp_path / "good.npz", labels, [True] * 5),
        # In another order, and with further images.
        write(
            tmp_path / "bad.npz",
            np.array([3, 2, 2, 1, 0]),
            [True, False, False, True, True],
            names=["4.jpg", "3.jpg", "2.jpg", "1.jpg", "0.jpg"],
        ),
    ]
    figure = expert.against_networks(scores=scores, expert=table)
    # The six largest scores of `good` have all labels; in `bad` 2.jpg and 3.jpg have 0.01.
    assert errors_of(figure) == {"expert": 0.25, "good": 0.0, "bad": 0.5}
    assert figure.axes[0].get_title() == "4 images, sets of 1.5 classes on average"
    # The line of the expert.
    assert set(figure.axes[0].lines[-1].get_xdata()) == {0.25}


def test_without_answers_the_expert_is_the_published_one(tmp_path):
    labels = np.repeat([0, 1, 2, 3], [8, 3, 6, 9])
    path = write(tmp_path / "net.npz", labels, np.ones(len(labels), bool))
    scored = expert._read(tmp_path / "net.npz")
    drawn = expert._published(scored)
    counts = {name: scored.labels(drawn.names).count(name) for name in CLASSES}
    # At most five of each species of the two genera.
    assert counts == dict(zip(CLASSES, (5, 3, 5, 0), strict=True))
    assert len(set(drawn.names)) == 13
    # The order in the file does not matter.
    turned = np.arange(len(labels))[::-1]
    write(
        tmp_path / "turned.npz",
        labels[turned],
        np.ones(len(labels), bool),
        names=[f"{row}.jpg" for row in turned],
    )
    assert expert._published(expert._read(tmp_path / "turned.npz")).names == drawn.names
    assert (drawn.size, drawn.error) == (4.1, 0.205)
    # The sets of this network of four classes cannot have 4.1.
    with pytest.raises(UserError, match=r"fewer classes on average than .*; got 4\.1"):
        expert.against_networks(scores=[path], expert=None)


def test_files_of_other_examples_are_refused(tmp_path):
    labels = np.array([0, 1])
    a = write(tmp_path / "a.npz", labels, [True, True])
    table = answers(tmp_path / "e.csv", "0.jpg,Crotalaria alba", "1.jpg,Crotalaria alba")
    mistakes = {
        "has no example 0.jpg, which .*a.npz has": {"names": ["8.jpg", "9.jpg"]},
        "must have one class for an example of one name": {"classes": CLASSES[::-1]},
        "has two examples of one name": {"names": ["0.jpg", "0.jpg"]},
    }
    for message, change in mistakes.items():
        b = write(tmp_path / "b.npz", labels, [True, True], **change)
        with pytest.raises(UserError, match=message):
            expert.against_networks(scores=[a, b], expert=table)
    other = answers(tmp_path / "other.csv", "0.jpg,alba", "1.jpg,nana")
    with pytest.raises(UserError, match=r"other\.csv must name classes of .*, for example Crotal"):
        expert.against_networks(scores=[a], expert=other)
