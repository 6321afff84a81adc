"""`train.main`, killed, held or sent a signal at an exact moment, on photographs that are small."""

import os
import shutil
import signal
import threading
from pathlib import Path

import jax

from tests.parts.program.data import small
from train import main as program
from train.assembly import data_checks
from train.assembly.evaluator import Evaluator
from train.data import photographs
from train.data.crops import ImageReader
from train.foundation import files
from train.training.stop_signals import StopSignals
from train.workdir.checkpoint import Checkpointer


def shrink_photographs():
    small.shrink(setattr)
    photographs.READER = ImageReader.published(8, 12)


# In the processes that decode images, but not when pytest collects this file.
if __name__ == "__mp_main__":
    shrink_photographs()


def kill(*_arguments, **_keywords):
    os.kill(os.getpid(), signal.SIGKILL)


def replace_at(owner, name, is_moment, instead):
    """Replaces a function at the moment that its arguments determine."""
    original = getattr(owner, name)

    def replaced(*arguments, **keywords):
        chosen = instead if is_moment(*arguments) else original
        return chosen(*arguments, **keywords)

    setattr(owner, name, replaced)


def kill_before_renaming_to(name):
    replace_at(Path, "replace", lambda _source, target: target.name == name, kill)


def kill_in_line(number):
    """Kills the process when half of a line of metrics is written."""
    original = files.append
    calls = 0

    def half(path, content):
        nonlocal calls
        calls += 1
        if calls < number:
            return original(path, content)
        original(path, content[: len(content) // 2])
        return kill()

    files.append = half


def kill_in_save(number, *, after):
    """Kills the process before or after the checksums: all other files of a save are written."""
    original = Checkpointer._write_checksums
    calls = 0

    def counted(self):
        nonlocal calls
        calls += 1
        if calls < number or after:
            original(self)
        if calls == number:
            kill()

    Checkpointer._write_checksums = counted


def kill_in_deletion(*, half):
    """Kills the process when a checkpoint is about to be deleted, or half of its files are."""
    original = shutil.rmtree

    def rmtree(path, *arguments, **keywords):
        if not Path(path).name.isdigit():
            return original(path, *arguments, **keywords)
        found = sorted(file for file in Path(path).rglob("*") if file.is_file())
        for file in found[: len(found) // 2] if half else ():
            file.unlink()
        return kill()

    shutil.rmtree = rmtree


def say(line):
    """Prints a line. A signal may come within `print`, which cannot be called again then."""
    os.write(1, f"{line}\n".encode())


def hold_at_save(number):
    """Prints that a save comes and waits there for ever; prints when a signal was received."""
    original_save, original_receive = Checkpointer.save, StopSignals._receive
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

    Checkpointer.save, StopSignals._receive = save, receive


def stop_in(owner, name):
    """Asks the process to end when it calls a function."""
    original = getattr(owner, name)

    def stopped(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    setattr(owner, name, stopped)


MOMENTS = {
    "never": lambda: None,
    # Whatever kills it: its steps are compiled, as by no start before.
    "in a compilation": lambda: jax.config.update("jax_enable_compilation_cache", False),
    "before the configuration": lambda: kill_before_renaming_to("config.json"),
    "in a line of metrics": lambda: kill_in_line(3),
    "before the checksums": lambda: kill_in_save(3, after=False),
    "before the renaming": lambda: kill_in_save(3, after=True),
    "before the deletion": lambda: kill_in_deletion(half=False),
    "in the deletion": lambda: kill_in_deletion(half=True),
    "before old metrics are dropped": lambda: kill_before_renaming_to("metrics.jsonl"),
    "before the curves": lambda: kill_before_renaming_to("learning_curves.png"),
    "before the results": lambda: kill_before_renaming_to("results.json"),
    "held at the second save": lambda: hold_at_save(2),
    "SIGTERM before the first step": lambda: stop_in(data_checks, "find_overlooked"),
    "SIGTERM in a validation": lambda: stop_in(Evaluator, "validate"),
    "SIGTERM in the evaluation after training": lambda: stop_in(Evaluator, "evaluate_selected"),
}


def main():
    shrink_photographs()
    MOMENTS[os.environ["MOMENT"]]()
    program.main()
