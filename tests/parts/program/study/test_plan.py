"""Which runs a study file plans, what its searches select, and which files are refused."""

import itertools
import json
import re
from pathlib import Path

import pytest

from train.foundation.errors import UserError
from train.study import plan, search
from train.study.search import Choice, Range

HERE = Path(__file__).parent
SEARCHED = json.loads((HERE / "searched_study.json").read_text())
SEARCH = """
select_by = "macro_top_3_accuracy"
candidates = 6
finalists = 2
tuning_seeds = [0, 1]
seeds = [10, 11]
fields.num_epochs = 2
[[arms]]
name = "hinge"
config = "digits:noised_top_k_hinge"
fields = {num_epochs = 3}
[arms.space]
optimizer.learning_rate = {from = 1e-3, to = 0.1, scale = "log"}
loss.epsilon = {from = 0.2, to = 1.2, scale = "linear", least = 0.1}
[[arms]]
name = "cosine"
config = "digits:cross_entropy"
fields = {model.head = "cosine", model.scale = 20}
[[contrasts]]
name = "loss"
first = "hinge"
second = "cosine"
metric = "top_1_accuracy"
primary = true
equivalence = 0.5
"""


def read(folder, text):
    path = folder / "study.toml"
    path.write_text(text)
    return plan.read(path)


def test_a_grid_has_every_combination_with_every_seed(tmp_path):
    fields = "[fields]\noptimizer.decay_epochs = [[15, 25], [9]]\nloss.gamma = [0, 2.0]\n"
    study = read(tmp_path, f'config = "digits:focal"\nseeds = [0, 3]\n{fields}num_epochs = 2')
    configs = [run.config for arm in study.arms for run in plan.known(study, arm, {}).finals]
    assert [
        (one["optimizer"]["decay_epochs"], one["loss"]["gamma"], one["seed"], one["num_epochs"])
        for one in configs
    ] == [(*one, 2) for one in itertools.product(([15, 25], [9]), (0.0, 2.0), (0, 3))]


def test_each_loss_of_a_grid_has_its_own_defaults_and_parameters(tmp_path):
    losses = '["cross_entropy", "generalized_cross_entropy", "focal"]'
    text = f"seeds = [0]\nfields.loss = {{name = {losses}, gamma = [0.5, 3]}}"
    study = read(tmp_path, f'config = ["digits:focal", "synthetic_species:focal"]\n{text}')
    assert [(arm.config, dict(arm.fields)) for arm in study.arms] == [
        (f"{recipe}:{loss}", fields)
        for recipe in ("digits", "synthetic_species")
        for loss, fields in (
            ("cross_entropy", {}),
            ("generalized_cross_entropy", {}),
            ("focal", {"loss.gamma": 0.5}),
            ("focal", {"loss.gamma": 3}),
        )
    ]
    assert study.arms[3].name == "digits:focal, loss.gamma=3"


def test_a_run_is_named_and_made_as_the_command_line_does_it():
    run = plan.Planned("digits", (("optimizer.decay_epochs", [1, 2]),), 0)
    assert run.command(Path("runs")) == [
        *("-m", "train.main", "--config=digits", "--config.optimizer.decay_epochs=[1, 2]"),
        *("--config.seed=0", f"--workdir=runs/{run.name}"),
    ]


@pytest.mark.parametrize("told", SEARCHED["arms"], ids=lambda arm: arm["name"])
def test_committed_scores_give_the_committed_selection(tmp_path, told):
    study = read(tmp_path, SEARCHED["plan"])
    (arm,) = (arm for arm in study.arms if arm.name == told["name"])
    scores = {
        arm.run(one["fields"], int(seed)).key: score
        for one in told["candidates"]
        for seed, score in one["scores"].items()
    }
    ended, drawn = {}, []
    for _ in range(len(told["extensions"]) + 2):
        found = plan.known(study, arm, ended)
        assert (found.selected, found.finals) == (None, [])
        drawn.append(len(found.search))
        # No run is planned that was not made, and none is forgotten.
        ended |= {run.key: scores[run.key] for run in found.search}
    found = plan.known(study, arm, ended)
    assert ended.keys() == scores.keys()
    assert drawn[1:-1] == [one["first_candidate"] + 4 for one in told["extensions"]]
    assert found.selected == told["selected"]
    assert [run.seed for run in found.finals] == list(study.seeds)


@pytest.mark.parametrize(
    ("best", "longer", "new"),
    [
        # A tenth of three decades from 1e-4: 1.99e-4 is at the end, 2e-4 is not.
        ((2.0e-4, 0.5), None, None),
        ((1e-2, 0.1), None, None),
        ((1.99e-4, 0.5), (3.162e-6, 1e-1, 0.1, 1.1), (3.162e-6, 1.995e-4, 0.1, 1.1)),
        ((5.1e-2, 1.01), (1e-4, 3.162, 0.1, 1.3), (5.012e-2, 3.162, 1.0, 1.3)),
    ],
)
def test_ranges_are_extended_where_the_best_candidate_is_at_an_end(best, longer, new):
    margin = Range(0.1, 1.1, "linear", least=0.1, most=1.3)
    space = {"rate": Range(1e-4, 1e-1, "log"), "margin": margin}
    found = search.extended(space, dict(zip(space, best, strict=True)))
    ends = found and [tuple(x for r in one.values() for x in (r.low, r.high)) for one in found]
    assert ends == (longer and [longer, new])


def test_all_combinations_of_few_choices_are_tried_and_a_narrow_range_has_few_values():
    few = {"way": Choice(("a", "b")), "k": Choice((1, 3))}
    assert search.draw(few, 4, 0) == [{"way": w, "k": k} for w in "ab" for k in (1, 3)]
    narrow = search.draw({"x": Range(1.0, 1.002, "linear")}, 12, 0)
    assert sorted(one["x"] for one in narrow) == [1.0, 1.001, 1.002]


def test_a_candidate_that_diverges_counts_as_the_worst_and_if_all_do_none_is_selected(tmp_path):
    choices = "[arms.space]\nloss.epsilon.values = [0.1, 0.2, 0.3]\n"
    study = read(tmp_path, re.sub(r"\[arms.space\]\n.*\n.*\n", choices, SEARCH))
    runs = plan.known(study, study.arms[0], {}).search
    none = {run.key: None for run in runs}
    assert plan.known(study, study.arms[0], none) == plan.Known(runs, None, [])
    again = plan.known(study, study.arms[0], {**none, runs[1].key: 0.1}).search
    assert again[:3] == runs
    # The best one is a finalist, and so is the first of the others.
    assert [(run.fields, run.seed) for run in again[3:]] == [(run.fields, 1) for run in runs[1::-1]]


def test_the_study_of_the_docs_is_one(tmp_path):
    page = (HERE.parents[3] / "docs" / "compare.md").read_text()
    (block,) = (one for one in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "arms" in one)
    assert len(read(tmp_path, block).arms) == 2


# What is replaced, by what, and the message.
MISTAKES = {
    "not toml": ("[[arms]]", "[[arms", "study.toml: "),
    "unknown key": ("finalists", "finalist", "unknown field `finalist`"),
    "empty range": ('{from = 1e-3, to = 0.1, scale = "log"}', "{}", "space.optimizer: Object"),
    "missing key": ("seeds = [10, 11]", "", "missing required field `seeds`"),
    "wrong type": ("= [10, 11]", '= "10"', "Expected `array`, got `str` - at `$.seeds`"),
    "split": ("finalists", 'split = "tset"\nfinalists', "Invalid enum value 'tset' - at `$.split`"),
    "metric": ('"macro_top_3', '"top3', "arm 'hinge': config.select_by must be "),
    "contrast": ('"top_1_acc', '"top1_acc', "contrast 'loss': a metric must be a name such as"),
    "no difference": (
        'second = "cosine"',
        'second = "hinge"',
        "must be two arms; both are 'hinge'",
    ),
    "seed twice": ("[10, 11]", "[10, 1]", "seeds and tuning_seeds must be different; 1 is there"),
    "many runs": ("candidates = 6", "candidates = 2000", "must have from 1 to 2,000 runs before"),
    "arm twice": ('"cosine"\nconfig', '"hinge"\nconfig', "names of arms must be different; hinge"),
    "recipe": (
        "digits:noised",
        "digit:noised",
        "arm 'hinge': --config must be the name of a recipe",
    ),
    "field": ("{num_epochs", "{num_epoch", "has no field config.num_epoch; did you mean"),
    "value": ("num_epochs = 3", "num_epochs = 0", "config.num_epochs must be an integer of at"),
    "the seed": ("num_epochs = 2", "seed = 2", "fields cannot have seed: list the"),
    "range": ("{from = 0.2, to", "{to", "space.loss.epsilon: Object missing required field `from`"),
    "order": ("to = 1.2", "to = 0.1", "space.loss.epsilon: from must be below to"),
    "endless": ("to = 1.2", "to = inf", "space.loss.epsilon: from must be below to"),
    "reach": ("least = 0.1", "most = 2", "space.loss.epsilon can be -2.175; least and most"),
    "no search": ("candidates = 6", "", "space needs select_by, candidates and"),
    "no arm": (
        '"cosine"\nmetric',
        '"cosin"\nmetric',
        "contrast 'loss': second must be cosine (did",
    ),
    "one seed": ("[10, 11]", "[10]", "seeds must be two or more with contr"),
    "other k": ('"top_1_acc', '"top_2_acc', "'hinge' has no top_2_accuracy of single labels"),
    "labels": (
        'digits:cross_entropy"\nfields = {',
        'features:cross_entropy"\nfields = {dataset.path = "a.npz", dataset.labels = "votes", ',
        "and dataset.labels is votes",
    ),
    "two forms": ("finalists", 'config = "digits"\nfinalists', "either config, of a grid, or [[ar"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_says_where_it_is(tmp_path, mistake):
    old, new, message = MISTAKES[mistake]
    assert old in SEARCH
    with pytest.raises(UserError) as raised:
        read(tmp_path, SEARCH.replace(old, new, 1))
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"--study {tmp_path / 'study.toml'}")
    assert "\n" not in str(raised.value)


def test_a_grid_that_never_ends_is_refused(tmp_path):
    fields = "".join(f"{name} = {[*range(100)]}\n" for name in ("learning_rate", "momentum"))
    with pytest.raises(UserError, match="from 1 to 2,000 runs"):
        read(tmp_path, f'config = "digits"\nseeds = [0]\n[fields.optimizer]\n{fields}')
