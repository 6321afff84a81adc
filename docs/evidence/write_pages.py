"""Writes the numbers of the evidence into the pages: `python docs/evidence/write_pages.py`.

The table or the block of `blocks.toml` that is called NAME replaces the lines between the comments
`<!-- NAME -->` and `<!-- end -->`. Sentences of the pages have no such numbers: `sentences.toml`
lists the numbers that must hold for each of them. A sentence that does not hold is an error. The
figures are drawn again, and the files of `records.py` are written.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

# The program of this checkout comes before an installed one.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import figures
import first_edition
import records
import sentences
import tables
import texts
from answers import FINE_TUNED, FOLDER, QUESTIONS
from pretrained import tables as pretrained_tables

ROOT = FOLDER.parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "evidence.md",
    ROOT / "docs" / "which_loss.md",
    FOLDER / "claims.md",
    FOLDER / "tables.md",
    FOLDER / "design.md",
    FOLDER / "pretrained.md",
    FOLDER / "fine_tuned.md",
)
FIGURES = ROOT / "docs" / "figures"
TABLES: Mapping[str, Callable[[], str]] = {
    "claims": tables.claims_of_the_thesis,
    "other answers": tables.other_answers,
    "corrected equivalences": tables.corrected_equivalences,
    "better heads": tables.better_head_contrasts,
    "hierarchical model": tables.hierarchical_model,
    "times": tables.times_to_an_accuracy,
    "secondary": tables.secondary_contrasts,
    **first_edition.TABLES,
    "pretrained leads": pretrained_tables.leads,
    "pretrained progress": pretrained_tables.progress,
    "pretrained contrasts": pretrained_tables.contrasts,
    "pretrained secondary": pretrained_tables.secondary,
    "pretrained accuracies": pretrained_tables.accuracies,
    **{
        name: partial(texts.block, template)
        for name, template in tomllib.loads((FOLDER / "blocks.toml").read_text()).items()
    },
    **{f"{question} contrasts": partial(tables.contrasts, question) for question in QUESTIONS},
    **{
        f"{study.replace('_', ' ')} {name}": partial(table, study)
        for study in FINE_TUNED
        for name, table in (
            ("contrasts", tables.fine_tuned_contrasts),
            ("accuracies", tables.fine_tuned_accuracies),
        )
    },
}
_PLACE = re.compile(
    rf"(?<=<!-- )(?P<name>{'|'.join(TABLES)})( -->\n).*?(?=<!-- end -->)", re.DOTALL
)


def filled(page: str) -> str:
    """The page with the tables and numbers of the results that are there now."""

    def table(place: re.Match[str]) -> str:
        return f"{place['name']}{place[2]}{TABLES[place['name']]()}"

    return _PLACE.sub(table, page)


if __name__ == "__main__":
    if wrong := sentences.wrong():
        raise SystemExit("\n".join(wrong))
    for path in PAGES:
        path.write_text(filled(path.read_text()))
    for name, record in records.RECORDS.items():
        (FOLDER / name).write_text(records.csv_text(record()))
    for name, draw in figures.FIGURES.items():
        (FIGURES / f"{name}.png").write_bytes(draw())
