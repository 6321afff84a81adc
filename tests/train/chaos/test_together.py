"""Two commands on one run at the same time, one of which may be killed.

Each ends well or with one line. Afterwards the run comes to the same result as always.
"""

import signal
from functools import partial

import pytest

from tests.train.chaos.material import COMMANDS, TIME_LIMIT, Material, why_no_end, why_not

pytestmark = [pytest.mark.slow, pytest.mark.long]

NUM_TRIALS = 24
# The seconds until the later command starts, and from there to a kill.
_SECONDS = 3.0
TRAINING, FINISHED = "train.main of an unfinished run", "train.main of a finished run"
OTHERS = (FINISHED, "train.evaluate", "train.predict", "train.compare")


def drawn_pair(draw):
    """Two commands of a run that is finished, or that one of them finishes."""
    if draw.random() < 0.5:
        return TRAINING, draw.choice((TRAINING, TRAINING, *OTHERS[1:]))
    return draw.choice(OTHERS), draw.choice(OTHERS)


def why_failed(material, pair, draw):
    """Why two commands at once are not as they should be; None if they are."""
    material.renew(is_training=TRAINING in pair)
    first = COMMANDS[pair[0]].start(material.at)
    # Nothing is waited for: what is tried is any moment.
    first.ends_within(draw.random() * _SECONDS)
    second = COMMANDS[pair[1]].start(material.at)
    killed = draw.choice((None, None, first, second))
    if killed is not None and not killed.ends_within(draw.random() * _SECONDS):
        killed.kill()
    for one in (first, second):
        ended = one.end(TIME_LIMIT)
        was_killed = one is killed and ended.returncode == -signal.SIGKILL
        if not was_killed and (wrong := why_no_end(ended)) is not None:
            return wrong
    for name in (FINISHED, *pair):
        ended = COMMANDS[name].run(material.at)
        if (wrong := why_not(name, material, ended)) is not None or ended.returncode != 0:
            return f"afterwards {name}: {wrong or ended}"
    return None


def test_two_commands_at_once(trials_of, tmp_path):
    trials = trials_of("two commands at once")
    material = Material(tmp_path)
    for index in range(NUM_TRIALS):
        draw = trials.draw(index)
        pair = drawn_pair(draw)
        trials.attempt(f"{index}, {pair}", partial(why_failed, material, pair, draw))
    trials.check()
