"""The answers that follow from the committed files of the study."""

import json
from pathlib import Path

from pretrained import answers, collecting, design
from pretrained.answers import Answer, Finished
from pretrained.design import Study


def complete(study: Study, folder: Path) -> list[Finished]:
    """The settings of the questions of which all settings have files."""
    found = {}
    for setting in study.settings:
        path = folder / f"{setting.name}.json"
        if path.exists():
            plain = json.loads(path.read_text())
            found[setting.name] = Finished(
                setting, collecting.read(plain, study), collecting.test_labels(plain)
            )
    missing = {one.question for one in study.settings if one.name not in found}
    return [one for one in found.values() if one.setting.question not in missing]


def answered(folder: Path = collecting.FOLDER) -> list[Answer]:
    """The answers to the primary contrasts of the complete questions."""
    study = design.study()
    return answers.answered(study, answers.differences(study, complete(study, folder)))
