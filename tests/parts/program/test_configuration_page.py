"""The page of all fields comes from the declarations, and the declarations are complete."""

import importlib.util
from pathlib import Path

import pytest

from train.configuration import FIELDS_OF, Config
from train.configuration.declaring import by_dotted_name
from train.data import DATASETS, find

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("page", DOCS / "write_configuration.py")
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert page == written.page(), "python docs/write_configuration.py writes it"


@pytest.mark.parametrize("name", DATASETS)
def test_recipes_and_the_program_agree_on_the_fields_of_a_data_set(name):
    assert find(name).fields is FIELDS_OF[name]
    for one in by_dotted_name(Config, dataset=FIELDS_OF[name]).values():
        assert one.doc.endswith(".")
        assert one.check(object()) is not None
