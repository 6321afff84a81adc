"""Configurations with any value in any field: one line, or a configuration that can be run."""

import copy
import json
import random
import re
from typing import Any

import hypothesis
from hypothesis import strategies as st

from configs import digits, features, images, synthetic_species
from tests.parts.program.forked import error_lines, start
from train import experiment
from train.configuration import Config
from train.configuration.declaring import NO_DEFAULT, by_dotted_name
from train.data import dataset_spec
from train.foundation import files
from train.foundation.errors import UserError
from train.foundation.fields import Number
from train.foundation.nested import flatten
from train.training.losses import LOSSES as ALL_LOSSES
from train.workdir.runs import run_name

NUM_CONFIGURATIONS = 1500
NUM_FLAGS = 40
NUM_RUNS = 6

RECIPES = [
    json.loads(config.to_json())
    for config in (
        # Most often.
        digits.get_config(),
        digits.get_config("cross_entropy"),
        digits.get_config("ldam"),
        digits.get_config("role"),
        synthetic_species.get_config(),
        features.get_config(),
        images.get_config(),
    )
]
for recipe in RECIPES:
    if "path" in recipe["dataset"]:
        recipe["dataset"]["path"] = "somewhere"
NUMBERS = st.one_of(
    st.integers(),
    st.integers(0, 12),
    st.floats(),
    st.floats(0, 1),
    st.sampled_from((10**400, -(10**400), 10**9, 10**13, 2**31, 2**32, 2**63, 1e308, 5e-324)),
)
# What fields may hold, and what is near it.
WORDS = st.sampled_from(
    [
        *sorted({str(value) for recipe in RECIPES for _, value in flatten(recipe)}),
        *("adamw", "cosine", "linear", "sigmoid", "shard_map", "os:system", "json:dumps", ":"),
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20), WORDS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(WORDS, st.text(max_size=8)), inner, max_size=3),
    ),
    max_leaves=6,
)


# What has surprised a program before.
ODD: st.SearchStrategy[Any] = st.sampled_from(
    (
        *(
            10**400,
            -(10**400),
            10**9,
            10**13,
            float("nan"),
            float("inf"),
            -0.0,
            0,
            -1,
            2**32,
            1e308,
            5e-324,
        ),
        *("", "\0", "\ud800", "a" * 5000, True, None, [], [[]], [None], {}, {"": {}}, [10**400]),
    )
    # A dictionary may get further entries where it is drawn.
).map(copy.deepcopy)


def near(value):
    """Values of the kind of another."""
    if isinstance(value, bool) or value is None:
        return st.one_of(st.booleans(), st.none())
    if isinstance(value, int):
        return st.integers(-1, 40)
    if isinstance(value, float):
        return st.one_of(st.floats(-0.1, 1.1), st.floats(0, allow_infinity=False))
    return WORDS if isinstance(value, str) else st.lists(st.integers(0, 12), max_size=4)


def places(config, path=()):
    """The path of every field and of every group of fields."""
    for name, value in config.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from places(value, (*path, name))


@st.composite
def configurations(draw):
    """A recipe with other values in some fields, without some, or with more."""
    config = copy.deepcopy(draw(st.sampled_from(RECIPES)))
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        *groups, name = draw(st.sampled_from(list(places(config))))
        place = config
        for group in groups:
            place = place[group]
        kind = draw(st.sampled_from(("change", "change", "change", "change", "leave out", "add")))
        if kind == "leave out":
            del place[name]
        elif kind == "add":
            place[draw(st.one_of(WORDS, st.text(max_size=8)))] = draw(VALUES)
        else:
            place[name] = draw(st.one_of(VALUES, ODD, near(place[name]), near(place[name])))
    return config


def check(config, workdir):
    """Whether a configuration is valid, found at the door of the program."""
    try:
        parsed, _ = experiment._parsed(config, workdir, extend=False)
    except UserError:
        return None
    # What is done with it before anything is opened.
    checked = parsed.to_plain()
    assert json.loads(files.to_json(checked)) is not None
    assert run_name(checked)
    dataset_spec(parsed.dataset)
    return checked


def test_any_value_in_any_field_is_one_line_or_a_configuration(trials_of, tmp_path):
    trials = trials_of("configurations")
    valid = []

    @hypothesis.seed(trials.seed)
    @hypothesis.settings(
        max_examples=NUM_CONFIGURATIONS,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(configurations())
    def tried(config):
        trials.number += 1
        checked = check(config, tmp_path / "run")
        if checked is not None:
            valid.append(checked)

    try:
        tried()
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        trials.failures.append(f"{type(error).__name__}: {error} {notes}")
    trials.check()
    # Neither kind is rare.
    assert NUM_CONFIGURATIONS / 50 < len(valid) < NUM_CONFIGURATIONS / 2


# What a number may be, if its declaration allows it.
TRIED = (
    0,
    1,
    3,
    20,
    2**32 - 1,
    10**30,
    0.1,
    0.9,
    0.999999999999,
    5e-324,
    1e-300,
    1e-30,
    1e30,
    1e300,
)


def allowed(check):
    """Values that a field may have; texts come from a short list."""
    words = () if check("any text") is None else re.findall(r"\w+", check(""))
    return [value for value in (None, False, True, *TRIED, *words) if check(value) is None]


# Values of fields that any configuration of the digits may have. Most have their default.
VALUES_OF = {
    **{
        name: [*[one.default] * 2, *allowed(one.check)]
        for name, one in by_dotted_name(Config).items()
        if one.in_recipes and one.default is not NO_DEFAULT
    },
    **{
        f"loss.{name}": allowed(check)
        for loss in ALL_LOSSES.values()
        for name, check in loss.parameters.items()
    },
    # A run takes seconds.
    "num_epochs": (1, 2),
    "seed": (0, 1, 2**32 - 1),
    "dataset.batch_size": (128, 256, 1000),
    "model.name": ("mlp", "linear"),
    "model.width": (None, 1, 7),
    "model.depth": (None, 1, 3),
    "optimizer.name": ("sgd", "adamw", "lamb", "lars", "lion", "rmsprop"),
    "optimizer.learning_rate": allowed(Number(above=0)),
    "optimizer.weight_decay": allowed(Number(at_least=0)),
    "optimizer.decay_epochs": ((), (1,), (1, 10**12)),
    "optimizer.accumulation_steps": (1, 2),
    "loss.num_samples": (1, 3),
    "eval.ks": ((1,), (1, 3), (10,)),
    "select_by": ("loss", "top_1_accuracy"),
    "checkpoint.every_steps": (None, 1),
    "class_devices": (1, 2, 4),
}
# One in some tens is valid.
MOST_DRAWS = 10_000
LOSSES = (
    "cross_entropy",
    "focal",
    "ldam",
    "noised_balanced",
    "expected_balanced",
    "smooth_top_k_hinge",
    "sparsemax",
    "average_k",
    "role",
)


def drawn_config(draw, workdir):
    """A valid configuration with some of these values."""
    for _ in range(MOST_DRAWS):
        config = digits.get_config(draw.choice(LOSSES)).to_dict()
        config["num_epochs"], config["model"]["name"] = 1, "mlp"
        config["dataset"]["batch_size"] = 256
        for name in draw.sample(list(VALUES_OF), 12):
            *groups, field = name.split(".")
            place = config[groups[0]] if groups else config
            if field in place:
                place[field] = draw.choice(VALUES_OF[name])
        found = check(json.loads(json.dumps(config)), workdir)
        if found is not None:
            return found
    raise AssertionError(f"none of {MOST_DRAWS} configurations is valid")


def test_valid_configurations_run_or_end_in_one_line(trials_of, tmp_path):
    trials = trials_of("runs of configurations")
    recipe = tmp_path / "recipe.py"
    for index in range(NUM_RUNS):
        config = drawn_config(trials.draw(index), tmp_path / str(index))
        recipe.write_text(
            "import json\nfrom ml_collections import ConfigDict\n\n\n"
            f"def get_config():\n    return ConfigDict(json.loads({json.dumps(config)!r}))\n"
        )
        ended = start("train.main", f"--config={recipe}", f"--workdir={tmp_path / str(index)}")
        with trials.trial(f"run {index} of {config}"):
            *warnings, last = error_lines(ended.stderr) or [""]
            assert all(line.startswith("warning: ") for line in warnings), ended
            if ended.returncode == 0:
                assert not last or last.startswith("warning: "), ended
            else:
                assert ended.returncode == 2, ended
                assert last.startswith("error: "), ended
    trials.check()


def test_any_value_of_any_flag_is_one_line(trials_of, tmp_path):
    trials = trials_of("flags of configurations")
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    names = [name for name, _ in flatten(RECIPES[0])]
    for index in range(NUM_FLAGS):
        draw = trials.draw(index)
        given = []
        for name in draw.sample(names, draw.randint(1, 3)):
            given.append(f"--config.{name}={text(draw)}")
        # A valid configuration ends there.
        ended = start("train.main", "--config=digits", *given, f"--workdir={in_the_way}")
        with trials.trial(f"flags {given}"):
            assert ended.returncode == 2, ended
            assert ended.stderr.startswith("error: "), ended
            assert len(error_lines(ended.stderr)) == 1, ended
            assert ended.stdout == "", ended
    trials.check()


def text(draw: random.Random) -> str:
    """What a user may type as a value."""
    return draw.choice(
        (
            str(draw.randrange(-3, 70)),
            repr(draw.uniform(-1, 2)),
            draw.choice(("", " ", "None", "True", "nan", "inf", "-inf", "1e999", "0x10", "1_0")),
            "9" * draw.choice((20, 400, 5000)),
            draw.choice(("(", "()", "(1", "(1,2,)", "[1]", "{}", "{'a':1}", "1,2", "((1,),)")),
            "(" * 300,
            draw.choice(("adam", "cosine", "os:system", "train.main:main", "a.b:c", "ä\u202e")),
            "".join(chr(draw.choice((9, 27, 10, 65, 0x2603, 0x1F600))) for _ in range(5)),
        )
    )
