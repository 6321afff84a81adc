"""What a study file describes, and which files are not studies."""

import hashlib
import re
from pathlib import Path

import pytest

from tests.parts.program.comparison.made_up_study import STUDY, read
from train.comparison import study_file
from train.foundation.errors import UserError
from train.reports.metric import Metric
from train.series.parameters import Choice, Range
from train.series.recipe import Recipe
from train.series.search import Search


def test_a_study_is_read(tmp_path):
    text = STUDY.replace(
        "[[contrasts]]",
        '[[arms]]\nname = "x"\nconfig = "digits:focal"\n'
        "fields = {num_epochs = 3}\n[arms.space]\nloss.gamma = {values = [1, 2.5]}\n"
        "optimizer.decay_epochs = {values = [[1], [1, 2]]}\n[[contrasts]]",
        1,
    )
    study = read(tmp_path, text)
    assert study.select_by == Metric.accuracy("top", 3, "macro")
    assert (study.split, study.seeds) == ("test", (10, 11, 12))
    assert list(study.arms) == ["hinge", "cosine", "untuned", "x"]
    hinge, cosine, untuned, focal = study.arms.values()
    assert hinge.recipe == Recipe(
        "digits", "noised_balanced", (("select_by", "macro_top_3_accuracy"), ("num_epochs", 2))
    )
    space = (
        Range("optimizer.learning_rate", 1e-3, 0.1, "log", None, None),
        Range("loss.epsilon", 0.2, 1.2, "linear", 0.1, 1.4),
    )
    assert hinge.search == Search(hinge.recipe, space, study.select_by, 6, 2, (0, 1), 0)
    assert dict(cosine.recipe.overrides)["model.scale"] == 20.0
    assert untuned.search is None
    # An arm's own value wins.
    assert dict(focal.recipe.overrides)["num_epochs"] == 3
    assert focal.search.space == (
        Choice("loss.gamma", (1, 2.5)),
        Choice("optimizer.decay_epochs", ((1,), (1, 2))),
    )
    of_loss, of_head = study.contrasts
    assert (of_loss.first, of_loss.second, of_loss.primary) == ("hinge", "cosine", True)
    assert (of_loss.equivalence, of_head.equivalence) == (0.5, None)
    assert of_head.metric == Metric.accuracy("top", 1)
    assert study.metrics == (of_loss.metric, of_head.metric)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_hash_is_that_of_the_file(tmp_path, encoding):
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding=encoding)
    study = study_file.read(path)
    assert study.content == STUDY
    assert study.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


# What is replaced, by what, and the message.
MISTAKES = {
    "not toml": ("[fields]", "[fields", "study.toml is not TOML: "),
    "unknown key": ("finalists", "finalist", "'finalist' is not one of select_by, split, cand"),
    "split": ('"test"', '"tset"', "split must be one of balanced_test, test (did you mean 'test'"),
    "many candidates": (
        "candidates = 6",
        "candidates = 1000",
        "candidates of all arms",
    ),
    "finalists": ("finalists = 2", "finalists = 7", "finalists must be at most candidates"),
    "one seed": ("seeds = [10, 11, 12]", "seeds = 10", "seeds must be at least 2, for intervals"),
    "seed twice": ("[10, 11, 12]", "[10, 10]", "seeds has 10 twice"),
    "old seed": ("[10, 11, 12]", "[10, 1]", "seeds must be others than tuning_seeds; both have 1"),
    "search seeds": ("search_seed = 0", "search_seed = [0, 1]", "search_seed must be"),
    "arm twice": ('"cosine"\nconfig', '"hinge"\nconfig', "arms has 'hinge' twice"),
    "no such config": ("digits:noised_balanced", "digit", "(did you mean 'digits'?)"),
    "the seed": ("num_epochs = 2", "seed = 2", "seed cannot be a field: seeds and tuning_seeds of"),
    "bad value": ("num_epochs = 2", "num_epochs = 0", "config.num_epochs must be"),
    "both": (
        "[arms.space]",
        "[arms.fields]\nloss.epsilon = 1\n[arms.space]",
        "is in fields and in",
    ),
    "no range": ("{from = 0.2, to = 1.2, scale", "{scale", "space.loss.epsilon must be"),
    "text": ("to = 1.2", 'to = "1"', "space.loss.epsilon.to must be a number; got '1'"),
    "least": ("least = 0.1", "least = 0.3", "space.loss.epsilon.least must be"),
    "log of zero": ("from = 1e-3", "from = 0", "learning_rate.from must be"),
    "extended to nothing": ("least = 0.1, ", "", "space.loss.epsilon needs another least"),
    "choice twice": (
        '"loss.epsilon" = {',
        'loss.num_samples = {values = [3, 3]}\n"loss.epsilon" = {',
        "space.loss.num_samples.values has 3 twice",
    ),
    "itself": ('second = "cosine"', 'second = "hinge"', "first and second are the same arm"),
    "equivalence": ("equivalence = 0.5", "equivalence = 0", "equivalence must be"),
    "metric of another k": (
        'metric = "top_1_accuracy"',
        'metric = "top_2_accuracy"',
        "arm 'cosine': its runs have no top_2_accuracy",
    ),
    "votes": (
        'name = "untuned"\nconfig = "digits:cross_entropy"',
        'name = "untuned"\nconfig = "features:cross_entropy"\n'
        'fields = {"dataset.path" = "a.npz", "dataset.labels" = "votes"}',
        "arm 'untuned': dataset.labels must be one: a study counts single classes; got 'votes'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_file_that_is_no_study_is_refused(tmp_path, mistake):
    old, new, message = MISTAKES[mistake]
    assert old in STUDY
    with pytest.raises(UserError) as raised:
        read(tmp_path, STUDY.replace(old, new, 1))
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / "study.toml"))
    assert "\n" not in str(raised.value)


def test_the_study_of_the_docs_is_one(tmp_path):
    page = (Path(__file__).parents[4] / "docs" / "train.md").read_text()
    (block,) = (one for one in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "arms" in one)
    assert len(read(tmp_path, block).arms) == 2
