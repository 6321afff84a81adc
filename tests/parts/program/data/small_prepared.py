"""Pl@ntNet-300K with few species, prepared."""

from pathlib import Path

import pytest

from tests.parts.program.data import small
from train import prepare


def plantnet(folder: Path) -> None:
    """Prepares it in the folder `data` below another one."""
    with pytest.MonkeyPatch.context() as patch:
        small.shrink(patch.setattr)
        small.plantnet(folder / "manual")
        prepare.prepare(
            "plantnet300k",
            data_dir=str(folder / "data"),
            manual_dir=str(folder / "manual"),
        )
