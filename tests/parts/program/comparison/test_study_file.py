"""What a study file describes, and which files are not studies."""

import hashlib
import re
from pathlib import Path

import pytest

from tests.parts.program.comparison.made_up_study import STUDY, read
from train.comparison import study_file
from train.evaluation.metric import Metric
from train.foundation.errors import UserError
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


RATE = 'optimizer.learning_rate = {from = 1e-3, to = 0.1, scale = "log"}\n"loss'
# What is replaced, by what, and the message.
MISTAKES = {
    "not toml": ("[fields]", "[fields", "study.toml is not TOML: "),
    "unknown key": ("finalists", "finalist", "'finalist' is not one of select_by, split, cand"),
    "no metric": ('select_by = "macro_top_3_accuracy"', "", "study.toml: select_by is missing"),
    "a loss": ("macro_top_3_accuracy", "loss", "select_by must be an accuracy, such as"),
    "shots": ("macro_top_3_accuracy", "few_top_3_accuracy", "select_by must be an accuracy"),
    "no such metric": ("macro_top_3_accuracy", "f1", "a metric must have a name such as"),
    "metric of no k": (
        'select_by = "macro_top_3_accuracy"',
        'select_by = "top_4_accuracy"',
        "arm 'hinge': configs/digits.py:noised_balanced: config.select_by must be one of",
    ),
    "split": ('"test"', '"tset"', "split must be one of balanced_test, test (did you mean 'test'"),
    "candidates": ("candidates = 6", "candidates = 0", "candidates must be an integer from 1"),
    "many candidates": (
        "candidates = 6",
        "candidates = 10_000_000_000",
        "candidates must be an integer from 1 to 1000; got 10000000000",
    ),
    "many candidates of all arms": (
        "candidates = 6",
        "candidates = 1000",
        "a study must have at most 2,000 candidates of all arms; got 3,000",
    ),
    "many seeds": ("[10, 11, 12]", str(list(range(10, 2000))), "seeds must have at most 1,000 v"),
    "finalists": (
        "finalists = 2",
        "finalists = 7",
        "finalists must be at most candidates, 6; got 7",
    ),
    "no seeds": ("\nseeds = [10, 11, 12]", "", "seeds is missing"),
    "one seed": ("seeds = [10, 11, 12]", "seeds = 10", "seeds must be at least 2, for intervals"),
    "seed twice": ("[10, 11, 12]", "[10, 10]", "seeds has 10 twice"),
    "old seed": ("[10, 11, 12]", "[10, 1]", "seeds must be others than tuning_seeds; both have 1"),
    "search seeds": (
        "search_seed = 0",
        "search_seed = [0, 1]",
        "search_seed must be one integer",
    ),
    "negative seed": (
        "search_seed = 0",
        "search_seed = -1",
        "search_seed must be an integer f",
    ),
    "no arms": (STUDY[STUDY.index("[[arms]]") :], "", "arms are missing"),
    "no contrasts": (STUDY[STUDY.index("[[contrasts]]") :], "", "contrasts are missing"),
    "several arms": ('first = "hinge"', 'first = ["hinge"]', "first must be the name of an arm"),
    "a table": ('second = "cosine"', "second = {x = 1}", "second must be the name of an arm"),
    "no tables": (
        STUDY[STUDY.index("[[arms]]") :],
        "[arms]\nx = 1",
        "arms must be tables, each bel",
    ),
    "arm twice": ('"cosine"\nconfig', '"hinge"\nconfig', "arms has 'hinge' twice"),
    "no name": ('name = "hinge"', "", "arms must have a name each; got None"),
    "arm's key": (
        'config = "digits:noised_balanced"',
        'recipe = "digits"',
        "arms: 'recipe' is not",
    ),
    "no config": ('config = "digits:noised_balanced"', "", "arm 'hinge': config must be a file as"),
    "no such config": ("digits:noised_balanced", "digit", "(did you mean 'digits'?)"),
    "the seed": ("num_epochs = 2", "seed = 2", "seed cannot be a field: seeds and tuning_seeds of"),
    "no field": ("num_epochs = 2", "num_epoch = 2", "has no field 'num_epoch'; did you mean 'num_"),
    "several values": (
        "num_epochs = 2",
        "num_epochs = [2]",
        "fields.num_epochs must be a number, a",
    ),
    "bad value": (
        "num_epochs = 2",
        "num_epochs = 0",
        "config.num_epochs must be an integer of",
    ),
    "both": (
        "[arms.space]",
        "[arms.fields]\nloss.epsilon = 1\n[arms.space]",
        "is in fields and in",
    ),
    "no tuned field": ('"loss.epsilon"', '"loss.epsilo"', "did you mean 'loss.epsilon'?"),
    "tuned seed": ('"loss.epsilon"', '"seed"', "seed cannot be a field"),
    "no range": (
        "{from = 0.2, to = 1.2, scale",
        "{scale",
        "space.loss.epsilon must be a table with",
    ),
    "range's key": (
        "least = 0.1",
        "lest = 0.1",
        "space.loss.epsilon: 'lest' is not one of from, to",
    ),
    "no end": ("to = 1.2, ", "", "space.loss.epsilon.to is missing"),
    "text": ("to = 1.2", 'to = "1"', "space.loss.epsilon.to must be a finite number; got '1'"),
    "no scale": (
        'scale = "linear", ',
        "",
        "space.loss.epsilon.scale must be one of linear, log; go",
    ),
    "empty range": (
        "to = 1.2",
        "to = 0.2",
        "space.loss.epsilon.from must be less than to, 0.2; got",
    ),
    "least": (
        "least = 0.1",
        "least = 0.3",
        "space.loss.epsilon.least must be at most from, 0.2; g",
    ),
    "most": ("most = 1.4", "most = 1", "space.loss.epsilon.most must be at least to, 1.2; got 1"),
    "log of zero": (
        "from = 1e-3",
        "from = 0",
        "learning_rate.from must be positive on a log scale",
    ),
    "log of next to nothing": (
        "from = 1e-3",
        "from = 1e-150",
        "learning_rate.from must be a number from 1e-37 to 1e+38 on a log scale; got 1e-150",
    ),
    "extended to nothing": (
        "least = 0.1, ",
        "",
        "space.loss.epsilon needs another least: extensions can reach -2.175, and "
        "configs/digits.py:noised_balanced: config.loss.epsilon must be a finite number",
    ),
    "an integer": (
        '"loss.epsilon"',
        '"loss.num_samples"',
        "loss.num_samples is an integer",
    ),
    "a text": ('"loss.epsilon"', '"model.name"', "model.name is not a number"),
    "bad choice": (
        '"loss.epsilon" = {',
        'loss.num_samples = {values = [3, 0]}\n"loss.epsilon" = {',
        "config.loss.num_samples must be an integer from 1 to 10000; got 0",
    ),
    "choice twice": (
        '"loss.epsilon" = {',
        'loss.num_samples = {values = [3, 3]}\n"loss.epsilon" = {',
        "space.loss.num_samples.values has 3 twice",
    ),
    "no such arm": (
        'second = "cosine"',
        'second = "cosin"',
        "contrast 'loss': second must be the n",
    ),
    "itself": (
        'second = "cosine"',
        'second = "hinge"',
        "first and second are the same arm, 'hinge'",
    ),
    "primary": ("primary = true", "primary = 1", "primary must be true or false; got 1"),
    "equivalence": (
        "equivalence = 0.5",
        "equivalence = 0",
        "equivalence must be a finite number gre",
    ),
    "metric": ('metric = "top_1_accuracy"', "", "contrast 'head': metric is missing"),
    "metric of another k": (
        'metric = "top_1_accuracy"',
        'metric = "top_2_accuracy"',
        "arm 'cosine': its runs have no top_2_accuracy for the contrast 'head'; eval.ks has 1, 3",
    ),
    "votes": (
        'name = "untuned"\nconfig = "digits:cross_entropy"',
        'name = "untuned"\nconfig = "features:cross_entropy"\n'
        'fields = {"dataset.path" = "a.npz", "dataset.labels" = "votes"}',
        "arm 'untuned': dataset.labels must be one: a study counts single classes; got 'votes'",
    ),
    "metric that the second arm lacks": (
        'name = "untuned"',
        'name = "untuned"\nfields = {"eval.ks" = [3]}',
        "arm 'untuned': its runs have no top_1_accuracy for the contrast 'head'; eval.ks has 3",
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


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=f"--study must be a file; there is no file {tmp_path}"):
        study_file.read(tmp_path)


def test_the_study_of_the_docs_is_one(tmp_path):
    page = (Path(__file__).parents[4] / "docs" / "train.md").read_text()
    (block,) = (one for one in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "arms" in one)
    assert len(read(tmp_path, block).arms) == 2
