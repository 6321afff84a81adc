"""`train.main`, killed, held or sent a signal at an exact moment, on photographs that are small."""

import os
import shutil
import signal
import threading
from pathlib import Path

from tests.parts.program.data import small
from train import main as program
from train.data import photographs
from train.data.crops import ImageReader
from train.run import evaluation
from train.run.checkpoints import Checkpoints
from train.run.loop import Signals


def shrink_photographs():
    small.shrink(setattr)
    photographs.READER = ImageReader.published(8, 12)


# In the processes that decode images, but not when pytest collects this file.
if __name__ == "__mp_main__":
    shrink_photographs()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before_the_results():
    original = Path.replace
    Path.replace = lambda source, target: (
        kill() if target.name == "results.json" else original(source, target)
    )


def kill_in_save(number, *, after):
    """Kills the process before or after the checksums: all other files of a save are written."""
    original = Checkpoints._write_checksums
    calls = 0

    def counted(self):
        nonlocal calls
        calls += 1
        if calls < number or after:
            original(self)
        if calls == number:
            kill()

    Checkpoints._write_checksums = counted


def kill_in_deletion():
    """Kills the process when half of the files of a checkpoint are deleted."""
    original = shutil.rmtree

    def rmtree(path, *arguments, **keywords):
        if not Path(path).name.isdigit():
            return original(path, *arguments, **keywords)
        found = sorted(file for file in Path(path).rglob("*") if file.is_file())
        for file in found[: len(found) // 2]:
            file.unlink()
        return kill()

    shutil.rmtree = rmtree


def say(line):
    """Prints a line. A signal may come within `print`, which cannot be called again then."""
    os.write(1, f"{line}\n".encode())


def hold_at_save(number):
    """Prints that a save comes and waits there for ever; prints when a signal was received."""
    original_save, original_receive = Checkpoints.save, Signals._receive
    calls = 0

    def save(self, *arguments):
        nonlocal calls
        calls += 1
        if calls == number:
            say("held at a save")
            # Not in one long wait, which a signal that comes just before it would not end.
            while not threading.Event().wait(0.1):
                pass
        original_save(self, *arguments)

    def receive(self, *arguments):
        original_receive(self, *arguments)
        say("took a signal in")

    Checkpoints.save, Signals._receive = save, receive


def stop_in_evaluation():
    """Asks the process to end when training has ended."""
    original = evaluation.evaluate_selected

    def stopped(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    evaluation.evaluate_selected = stopped


MOMENTS = {
    "never": lambda: None,
    "before the checksums": lambda: kill_in_save(3, after=False),
    "before the renaming": lambda: kill_in_save(3, after=True),
    "in the deletion": kill_in_deletion,
    "before the results": kill_before_the_results,
    "held at the second save": lambda: hold_at_save(2),
    "SIGTERM in the evaluation after training": stop_in_evaluation,
}


def main():
    shrink_photographs()
    MOMENTS[os.environ["MOMENT"]]()
    program.main()
