"""Descriptions of other versions: JSON files of a run, of its checkpoints and of prepared data.

They are intact, with the right checksums, but have other fields or values. A command ends well or
with one line. Its result may differ, because a number in a file may differ.
"""

import pytest

from tests.train.chaos import metadata
from tests.train.chaos.material import COMMANDS, Material, why_no_end

pytestmark = [pytest.mark.slow, pytest.mark.long]

# The trials of each command on descriptions of the run, and of the data.
NUMBERS = {
    "train.main of a finished run": (24, 4),
    "train.main of an unfinished run": (16, 8),
    "train.evaluate": (16, 8),
    "train.predict": (16, 4),
    "train.compare": (30, 0),
    "train.tables": (10, 0),
}


def test_commands_and_changed_descriptions(trials_of, tmp_path):
    trials = trials_of("commands and descriptions of other versions")
    material = Material(tmp_path)
    for name, numbers in NUMBERS.items():
        command = COMMANDS[name]
        for part, number in zip(("run", "data"), numbers, strict=True):
            for index in range(number):
                draw = trials.draw(f"{name} {part} {index}")
                material.renew(is_training=command.is_training)
                what = metadata.change(draw.choice(metadata.written(material.at / part)), draw)
                trials.attempt(
                    f"{name}, {part} {index}, {what}",
                    lambda command=command: why_no_end(command.run(material.at)),
                )
    trials.check()
