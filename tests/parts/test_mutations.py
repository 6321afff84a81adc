"""The rows of `mutations.toml` fit the code, so that the nightly run can try them."""

import pytest

from tests import mutations


@pytest.mark.parametrize("row", mutations.read(), ids=lambda row: row.promise)
def test_a_row_names_one_place_of_the_code_and_a_test_file(row, tmp_path):
    copy = tmp_path / row.file
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text((mutations.ROOT / row.file).read_text())
    row.apply(tmp_path)
    assert row.before != row.after
    assert (mutations.ROOT / row.notices).is_file()


def test_there_are_rows_of_every_tier_of_every_change():
    rows = mutations.read()
    assert len(rows) >= 30
    assert {row.tier for row in rows} >= {"tests/promises"}
