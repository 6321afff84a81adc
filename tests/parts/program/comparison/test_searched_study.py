"""A study that was run: its plan, and what each arm's search drew, extended and selected."""

import json
from pathlib import Path

import pytest

from tests.parts.program.papers.finished_runs import finish
from train.comparison import study_file
from train.series.planner import Planner
from train.series.runs_folder import RunsFolder

SEARCHED = json.loads((Path(__file__).parent / "searched_study.json").read_text())


@pytest.mark.parametrize("arm", SEARCHED["arms"], ids=lambda arm: arm["name"])
def test_a_study_draws_and_selects_again_what_it_did(tmp_path, arm):
    path = tmp_path / "study.toml"
    path.write_text(SEARCHED["plan"])
    study = study_file.read(path)
    folder = tmp_path / "runs"
    scores = [(one["fields"], one["scores"]) for one in arm["candidates"]]

    def look():
        return Planner(RunsFolder(folder), [study.arms[arm["name"]]], study.seeds)

    # A search knows its next runs when the last ones have ended: the first candidates, those of
    # each extension, the finalists, the selected one.
    for _ in range(len(arm["extensions"]) + 2):
        planner = look()
        for run in planner.to_make:
            (score,) = [
                of_seeds[str(run.seed)]
                for fields, of_seeds in scores
                if fields.items() <= dict(run.recipe.overrides).items()
            ]
            finish(folder, run.name, run.config, validation={study.select_by.name: score})
    tuned = look().tuned(study.arms[arm["name"]].search)
    assert [dict(candidate) for candidate in tuned.drawn.candidates] == [one for one, _ in scores]
    assert [one.first for one in tuned.drawn.extensions] == [
        one["first_candidate"] for one in arm["extensions"]
    ]
    assert list(tuned.finalists) == arm["finalists"]
    assert dict(tuned.fields) == arm["selected"]
