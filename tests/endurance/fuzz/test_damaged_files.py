"""Damaged files of a run and of prepared data, and the commands that read them.

A command comes to the same result, or ends in one line with an exit code that is documented.
"""

from tests.endurance.fuzz.material import COMMANDS, Material, why_not
from tests.endurance.fuzz.mutations import damage

# The trials of each command. Those that do not compute take a fifth of a second, others some.
OF_A_RUN = {
    "train.main of a finished run": 20,
    "train.main of an unfinished run": 8,
    "train.evaluate": 12,
    "train.predict": 12,
    "train.compare": 40,
    "train.tables": 4,
}
OF_DATA = {
    "train.main of an unfinished run": 5,
    "train.evaluate": 5,
    "train.predict": 3,
}


def try_all(trials, material, part, numbers):
    for name, number in numbers.items():
        for index in range(number):
            command, draw = COMMANDS[name], trials.draw(f"{name} {index}")
            material.renew(is_training=command.is_training)
            what = damage(material.file(part, command.reads, draw), draw)
            what = f"{name} {index}: {what.replace(str(material.at), '')}"
            trials.attempt(
                what, lambda name=name: why_not(name, material, COMMANDS[name].run(material.at))
            )


def test_commands_and_damaged_files(trials_of, tmp_path):
    material = Material(tmp_path)
    of_a_run = trials_of("commands and damaged files of a run")
    try_all(of_a_run, material, "run", OF_A_RUN)
    of_data = trials_of("commands and damaged files of data")
    try_all(of_data, material, "data", OF_DATA)
    for trials in (of_a_run, of_data):
        trials.check()
