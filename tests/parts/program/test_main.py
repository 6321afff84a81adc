"""The list of commands, and several tasks that start one."""

from tests.parts.program.forked import ROOT, check_mistakes
from train.__main__ import COMMANDS

CONFIG = "--config=configs/digits.py"


def test_every_command_is_in_the_list_of_them():
    files = (ROOT / "train").glob("*.py")
    found = {file.stem for file in files if "command.run(main)" in file.read_text()}
    assert found == set(COMMANDS)


def test_tasks_that_start_together_are_told_to_say_how(tmp_path):
    srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}
    arguments = (CONFIG, f"--workdir={tmp_path / 'run'}")
    check_mistakes("train.main", [(arguments, "--nocluster")], srun)
    # Alone, the next mistake is told.
    check_mistakes(
        "train.main", [((*arguments, "--nocluster", "--config.seed=-1"), "config.seed")], srun
    )
    assert not (tmp_path / "run").exists()
