"""A worker of studies whose runs take no time: they do what a file says, or finish.

`does.json`, beside the folder of runs, has a word for a run by its loss, gamma and seed; `order`
gets a line for each run. Two runs that meet wait for each other.
"""

import json
import os
import signal

from tests.parts.program.study.finished_runs import finish
from train.foundation.errors import UserError, guarded
from train.study import worker


def make(config, workdir):
    """Does what the file says of a run, in the place of training."""
    signal.alarm(60)  # A lost signal does not hang the tests.
    loss, place = config["loss"], workdir.parents[1]
    name = f"{loss['name']} {loss['gamma']} {config['seed']}"
    with (place / "order").open("a") as order:
        order.write(f"{name}\n")
    print(f"made by {os.getpid()}", flush=True)
    does = json.loads((place / "does.json").read_text()).get(name, "finishes")
    if does == "fails":
        raise UserError("no room")
    if does == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "diverges":
        workdir.mkdir()
        (workdir / "config.json").write_text(json.dumps(config))
        raise UserError("training diverged: at step 3")
    if does != "finishes":
        _meet(place / "meeting", *does.split())
    metrics = {"top_1_accuracy": 0.5, "top_3_accuracy": loss["gamma"]}
    finish(workdir.parent, workdir.name, config, validation=metrics, test=metrics)


def _meet(fifo, which, number):
    """Meets the other run, sends a signal to the parent unless it is 0, and waits for it."""
    try:
        os.close(os.open(fifo, os.O_WRONLY if which == "first" else os.O_RDONLY))
        if int(number):
            os.kill(os.getppid(), int(number))
        signal.pause()
    except KeyboardInterrupt:
        print("saved", flush=True)
        raise


if __name__ == "__main__":
    worker.make = make
    guarded(worker.main)
