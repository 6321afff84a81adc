"""Groups in all kinds of the user's own data: no split that is held out divides one."""

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.parts.program.data.own import divided, observations
from tests.parts.program.data.own.observations import CLASSES, PATTERN, observation
from tests.parts.program.data.specs import dataset_spec
from train.data.own import division, groups
from train.data.own.listing import NO_SPLIT, ListedFiles, Listing, Role
from train.foundation import files
from train.foundation.errors import UserError

PATHS = observations.names()
GROUPS = [observation(path) for path in PATHS]
LABELS = [CLASSES.index(path.partition("/")[0]) for path in PATHS]


def folder(root):
    return {"name": "folder", "path": str(observations.write(root, PATHS)), "group": PATTERN}


def table(root, column="group"):
    observations.write(root, PATHS)
    rows = zip(PATHS, [CLASSES[label] for label in LABELS], GROUPS, strict=True)
    with (root / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", column), *rows])
    return {"name": "table", "path": str(root / "a.csv")}


def table_with_another_column(root):
    return {**table(root, "plant number"), "group": "plant number"}


def features(root, **arrays):
    root.mkdir(parents=True)
    rows = np.random.default_rng(0).normal(size=(len(PATHS), 4)).astype(np.float32)
    arrays = {"features": rows, "labels": np.array(LABELS), "names": np.array(PATHS)} | (
        arrays or {"group": np.array(GROUPS)}
    )
    np.savez(root / "a.npz", **arrays)
    return {"name": "features", "path": str(root / "a.npz")}


def features_with_numbers(root):
    numbers = np.array([int(group.removeprefix("obs")) for group in GROUPS])
    return {**features(root, plants=numbers), "group": "plants"}


def huggingface(root, column="group"):
    import datasets  # noqa: PLC0415

    root.mkdir(parents=True)
    columns = {
        "image": [{"bytes": encoded(path), "path": None} for path in PATHS],
        "label": LABELS,
        column: GROUPS,
    }
    kinds = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=list(CLASSES)),
        column: datasets.Value("string"),
    }
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    made.to_parquet(root / "train.parquet")
    return {"name": "huggingface", "path": str(root)}


def huggingface_with_another_column(root):
    return {**huggingface(root, "plant"), "group": "plant"}


def encoded(path):
    file = io.BytesIO()
    observations.photograph(path).save(file, "PNG")
    return file.getvalue()


KINDS = [table_with_another_column, features_with_numbers, huggingface_with_another_column]


def load(fields, tmp_path):
    return dataset_spec({"batch_size": 4, **fields}).load(str(tmp_path / "cache"))


@pytest.mark.parametrize("make", KINDS)
def test_splits_that_are_held_out_do_not_divide_groups(tmp_path, make, caplog):
    dataset = load(make(tmp_path / "data"), tmp_path)
    splits = [dataset.train, dataset.validation, dataset.test]
    groups = [set(split.groups) for split in splits]
    assert sum(map(len, groups)) == len(set().union(*groups)) == len(set(GROUPS))
    assert all(len(split) for split in splits)
    # Each example has the group of its name.
    for split in splits:
        assert len(split.names) == len(split.groups) == len(split)
        if make is not huggingface_with_another_column:
            named = [observation(name) for name in split.names]
            expected = [int(re.sub(r"\D", "", name)) for name in named]
            assert [int(re.sub(r"\D", "", group)) for group in split.groups] == expected
    assert caplog.messages == []


def test_other_groups_are_another_data_set(tmp_path):
    fields = folder(tmp_path / "data")
    grammars = (None, PATTERN, "near_duplicates")
    digests = [load({**fields, "group": group}, tmp_path).digest for group in grammars]
    assert digests[0] not in digests[1:]
    path = tmp_path / "features"
    assert load(features(path / "a"), path).digest != load(features(path / "b", x=1), path).digest


def test_near_duplicates_are_the_observations(tmp_path):
    dataset = load({**folder(tmp_path / "data"), "group": "near_duplicates"}, tmp_path)
    for split in (dataset.train, dataset.validation, dataset.test):
        first = {group: observation(group) for group in split.groups}
        assert [first[group] for group in split.groups] == [*map(observation, split.names)]


def test_a_run_keeps_its_groups(tmp_path, monkeypatch):
    fields = folder(tmp_path / "data")
    spec = dataset_spec({"batch_size": 4, **fields})
    before = spec.load(None)
    listed = ListedFiles.from_plain(json.loads(files.to_json(before.files.to_plain())))
    assert listed.listing.groups == before.files.listing.groups
    for path in PATHS[:3]:
        (tmp_path / "data" / path).unlink()
    # Nothing is searched for again.
    monkeypatch.delattr(groups, "find")
    found = spec.going_on(listed).load(None)
    assert found.digest == before.digest
    for name in ("train", "validation", "test"):
        one, other = getattr(found, name), getattr(before, name)
        assert [*one.names] == [*other.names]
        assert [*one.groups] == [*other.groups]


def listing(groups, labels=None, roles=None, given=()):
    labels = np.array([0, 1] * (len(groups) // 2) if labels is None else labels, np.int32)
    roles = np.full(len(groups), NO_SPLIT, np.int8) if roles is None else np.array(roles, np.int8)
    return Listing(
        paths=tuple(f"{index}.jpg" for index in range(len(groups))),
        labels=labels,
        roles=roles,
        class_names=("ash", "birch"),
        groups=tuple(f"group {group}" for group in groups),
        given=frozenset(given),
    )


def divide(given):
    return division.divide(given, divided.fields(), where="DATA", example="image")


def test_given_splits_that_divide_groups_are_told_with_counts(caplog):
    roles = [Role.TRAIN] * 4 + [Role.VALIDATION] * 2 + [Role.TEST] * 4
    found = divide(listing("abcdefabgh", roles=roles, given=Role))
    assert found.roles.tolist() == roles
    (message,) = caplog.messages
    assert "2 of 8 groups" in message
    assert "2 of 4 test images" in message


def test_an_example_without_a_split_has_that_of_its_group():
    roles = [Role.TEST, Role.TEST, NO_SPLIT, NO_SPLIT, *[NO_SPLIT] * 8]
    found = divide(listing("ababcdefghij", roles=roles, given={Role.TEST}))
    assert found.roles[:4].tolist() == [Role.TEST] * 4
    assert Role.TEST not in found.roles[4:]


def test_classes_of_one_group_leave_nothing_for_validation():
    with pytest.raises(UserError, match="only complete groups are held out, and each class keeps"):
        divide(listing("ab" * 8))


WRONG: dict[str, tuple[Callable[..., Any], str, str]] = {
    "a table": (table, "plant", "a column of TABLE, which are path, label, group; got 'plant'"),
    "features": (features, "plant", "an array of config.dataset.path FILE, which are features, "),
    "huggingface": (huggingface, "plant", "one of image, label, group, or None; got 'plant'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_group_that_is_not_there(tmp_path, case):
    make, group, message = WRONG[case]
    fields = make(tmp_path / "data")
    message = message.replace("TABLE", fields["path"]).replace("FILE", fields["path"])
    with pytest.raises(UserError, match=re.escape(message)) as error:
        load({**fields, "group": group}, tmp_path)
    assert "config.dataset.group" in str(error.value)
