import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from train.data.images import UnreadableImageError
from train.foundation.errors import UserError
from train.foundation.spelling import flags_for_fields, spell

FIELD = "config.dataset.path"


def error(**parts) -> UserError:
    return UserError(field=FIELD, must_be="a folder", **parts)


@pytest.mark.parametrize(
    ("parts", "end"),
    [
        ({}, ""),
        ({"got": "photos"}, "; got 'photos'"),
        ({"got": None}, "; got None"),
        ({"got": (1, 2)}, "; got (1, 2)"),
        ({"but": "it is a file"}, "; it is a file"),
        ({"because": "it has images", "got": 3}, ": it has images; got 3"),
        ({"usually": "it was moved"}, ""),
    ],
)
def test_an_error_is_worded_by_its_parts(parts, end):
    assert str(error(**parts)) == f"{FIELD} must be a folder{end}"


def test_a_longer_message_keeps_the_parts():
    whole = error(got=3, usually="it was moved").within("a.toml: ", "; delete it")
    assert str(whole) == f"a.toml: {FIELD} must be a folder; got 3; delete it"
    assert (whole.field, whole.must_be, whole.usually) == (FIELD, "a folder", "it was moved")


def test_a_field_is_spelled_as_it_is_given():
    with flags_for_fields({FIELD: "--images"}):
        assert str(error()) == "--images must be a folder"
        assert error().field == FIELD
        # A thread that reads images belongs to the same command.
        with ThreadPoolExecutor() as threads:
            assert threads.submit(spell, f"{FIELD}=a=b").result() == "--images=a=b"
        with flags_for_fields({"config.dataset.nested": "--nested"}):
            assert spell(FIELD) == "--images"
            assert spell("config.dataset.nested=True") == "--nested"
        assert spell("config.dataset.nested=True") == "config.dataset.nested=True"
    assert spell(FIELD) == FIELD


@pytest.mark.parametrize("kind", [UserError, UnreadableImageError])
def test_the_parts_come_through_a_process(kind):
    parts = {"field": FIELD, "must_be": "a folder", "because": "", "usually": "it was moved"}
    copy = pickle.loads(pickle.dumps(kind(**parts, got="photos")))
    assert type(copy) is kind
    assert str(copy) == f"{FIELD} must be a folder; got 'photos'"
    assert vars(copy) == parts
