"""What one does with several runs, and beside them: their numbers, computed again.

All runs train one layer on features of a few classes. Eight classes are rare: each has one row for
validation. Two have rows for the test alone. The rows for validation are rows of the test, too, so
that some scores are thresholds.
"""

import csv
import json
import re

import numpy as np
import pytest
import scipy.stats

from tests import reference
from tests.promises.commands import line, ok, run

COMMON, RARE, UNKNOWN, WIDTH = 6, 8, 2, 5
KNOWN = COMMON + RARE
SEEDS = {"cross_entropy": (0, 1, 2), "focal": (0, 1)}
COVERAGE = 0.8
SAYS_NEW = f"coverage={COVERAGE}, new_score=probability"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The rows of the runs, and what else is written."""
    folder = tmp_path_factory.mktemp("jobs")
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(KNOWN + UNKNOWN, WIDTH))

    def draw(labels):
        return (centres[labels] + rng.normal(size=(len(labels), WIDTH))).astype(np.float32)

    common, rare = np.arange(COMMON), np.arange(COMMON, KNOWN)
    labels = {
        "train": np.concatenate([np.tile(common, 24), np.tile(rare, 6)]),
        "val": np.concatenate([np.tile(common, 18), rare]),
        "test": np.concatenate(
            [np.tile(common, 10), np.tile(np.arange(KNOWN, KNOWN + UNKNOWN), 15)]
        ),
    }
    rows = {split: draw(of_split) for split, of_split in labels.items()}
    for arrays in (labels, rows):
        arrays["test"] = np.concatenate([arrays["val"], arrays["test"]])
    names = np.array([f"class {label:02}" for label in np.concatenate([*labels.values()])])
    split = np.repeat([*labels], [len(one) for one in labels.values()])
    np.savez(
        folder / "rows.npz", features=np.concatenate([*rows.values()]), labels=names, split=split
    )
    # All rows of the test, also as if they were of one class, so that all have scores.
    known = np.full(len(rows["test"]), "class 00")
    np.savez(folder / "test_rows.npz", features=rows["test"], labels=known)
    np.savez(folder / "new.npz", features=rows["test"], labels=names[-len(known) :])
    np.save(folder / "test_labels.npy", labels["test"])
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    """Finished runs of two losses, one of them with a seed more."""
    for loss, seeds in SEEDS.items():
        for seed in seeds:
            fields = {
                "dataset.path": folder / "rows.npz",
                "dataset.batch_size": 48,
                "dataset.unseen_classes": "leave_out",
                "eval.ks": "(1,2)",
                "select_by": "top_1_accuracy",
                "num_epochs": 5,
                "optimizer.learning_rate": 0.1,
                "seed": seed,
            }
            workdir = folder / "runs" / f"{loss}-{seed}"
            ok(line("main", config=f"configs/features.py:{loss}", workdir=workdir, fields=fields))
    return folder / "runs"


def test_runs_are_compared_by_means_and_paired_differences(folder, runs):
    ended = ok(
        line(
            "compare",
            runs=runs,
            metrics="top_2_accuracy,average_1_accuracy",
            baseline="loss=cross_entropy",
            csv=folder / "compared.csv",
        )
    )
    lines = list(csv.DictReader((folder / "compared.csv").read_text().splitlines()))
    assert len(lines) == sum(map(len, SEEDS.values()))
    for name, hits_of in (
        ("top_2_accuracy", lambda outcomes: outcomes["ranks"] < 2),
        ("average_1_accuracy", lambda outcomes: outcomes["in_average_sets"][0]),
    ):
        values = {}
        for told in lines:
            loss, seed = told["loss.name"], int(told["seed"])
            with np.load(runs / f"{loss}-{seed}" / "outcomes_test.npz") as outcomes:
                values[loss, seed] = hits_of(outcomes).mean()
            assert float(told[name]) == pytest.approx(values[loss, seed], abs=1e-6)
        # The baseline's third seed is not the other loss's.
        pairs = [values["focal", seed] - values["cross_entropy", seed] for seed in SEEDS["focal"]]
        assert interval(pairs, "+") in ended.out
        for loss, seeds in SEEDS.items():
            assert interval([values[loss, seed] for seed in seeds]) in ended.out


def interval(values, sign=""):
    """The mean of one value a seed, and half of Student's 95 % interval, as they are printed."""
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{100 * np.mean(values):{sign}.2f} ± {100 * half:.2f}"


def planned(ended):
    """The commands of a plan, as lines for this process."""
    lines = ended.out.splitlines()
    assert all(one.startswith("python -m train.main ") for one in lines)
    return [one.removeprefix("python -m ") for one in lines]


def test_a_grid_plans_each_combination_once(folder):
    fields = {
        "num_epochs": 1,
        "dataset.path": json.dumps(str(folder / "rows.npz")),
        "dataset.batch_size": 48,
        "dataset.unseen_classes": '"leave_out"',
        "eval.ks": [[1]],
        "select_by": '"top_1_accuracy"',
        "loss.label_smoothing": [0.0, 0.1],
    }
    text = 'config = "configs/features.py"\nseeds = [3, 4]\n[fields]\n'
    text += "\n".join(f"{name} = {value}" for name, value in fields.items())
    (folder / "study.toml").write_text(text)
    ended = ok(line("compare", study=folder / "study.toml", runs=folder / "swept", plan=True))
    found = [re.findall(r"(?:smoothing|config\.seed|workdir)=(\S+)", one) for one in planned(ended)]
    assert len({workdir for *_, workdir in found}) == 4
    assert {tuple(values) for *values, _ in found} == {
        (smoothing, seed) for smoothing in ("0.0", "0.1") for seed in ("3", "4")
    }


def test_a_table_plans_the_runs_that_it_then_collects(folder):
    # The row of the digits in a table of the thesis, by a network that is trained in a second.
    table = "train.compare --table=5.1 --on=digits --rows=cross_entropy --columns=K=5 --seeds=0"
    given = f"{table} --runs={folder}/tables --override=num_epochs=1 --override=model.name=linear"
    given += f" --override=dataset.data_dir={folder}/data"
    (command,) = planned(ok(f"{given} --plan"))
    ok(command)
    ended = ok(given)
    (results,) = (folder / "tables").glob("*/results.json")
    accuracy = 100 * json.loads(results.read_text())["test"]["average_5_accuracy"]
    assert re.search(rf"^ *cross_entropy +{accuracy:.2f}\b", ended.out, re.M)


def test_a_figure_has_the_numbers_of_the_run(folder, runs):
    workdir, out = runs / "focal-0", folder / "curves.svg"
    ok(line("compare", figure="curves", runs=workdir, out=out))
    drawn = [
        np.array(re.findall(r"[-\d.]+", path), float).reshape(-1, 2)
        for path in re.findall(r'<path d="(M[^"z]*)" clip-path', out.read_text())
    ]
    lines = [json.loads(one) for one in (workdir / "metrics.jsonl").read_text().splitlines()]
    for split, name in (
        ("train", "loss"),
        ("validation", "top_1_accuracy"),
    ):
        values = np.array([one[name] for one in lines if one["split"] == split])
        assert len(values) == 5
        # A file counts from its upper edge.
        assert any(is_line_of(path, -values) for path in drawn if len(path) == 5), (split, name)


def is_line_of(path, values):
    """Whether the heights of a path are the values, but for a unit and an origin."""
    (unit, _), residuals, *_ = np.polyfit(values, path[:, 1], 1, full=True)
    return unit > 0 and np.all(residuals < 1e-6) and np.all(np.diff(path[:, 0], n=2) < 1e-3)


@pytest.fixture(scope="module")
def scored(folder, runs):
    """A report of new classes; the scores of validation and of all test rows."""
    workdir = runs / "cross_entropy-0"
    given = {"workdir": workdir, "features": folder / "new.npz", "sets": SAYS_NEW}
    ok(line("evaluate", **given, out=folder / "report.json"))
    for name, source in (
        ("validation", {"split": "validation"}),
        ("test", {"features": folder / "test_rows.npz"}),
    ):
        ok(line("evaluate", workdir=workdir, **source, out=folder / f"{name}.npz"))
    scores = {name: np.load(folder / f"{name}.npz") for name in ("validation", "test")}
    labels = np.load(folder / "test_labels.npy")
    report = json.loads((folder / "report.json").read_text())
    validation = scores["validation"]["scores"], scores["validation"]["labels"]
    return report, validation, scores["test"]["scores"], labels


def test_none_of_these_is_said_by_limits_of_validation_scores(runs, scored):
    report, (scores, labels), test_scores, test_labels = scored
    error, outliers = 1 - COVERAGE, 1 - test_scores.max(axis=1)
    of_validation = 1 - scores.max(axis=1)
    known_to = reference.conformal_quantile(of_validation, error=0.05)
    once = np.bincount(labels)[labels] == 1
    new_from = reference.new_class_threshold(of_validation, once, error=0.05)
    threshold = reference.conformal_threshold(scores, labels, error=0.1)
    assert (once.sum(), error) == (RARE, pytest.approx(0.2))
    told, row = report["none_of_these"], report["sets"][SAYS_NEW]
    kept = json.loads((runs / "cross_entropy-0" / "sets.json").read_text())["rules"][SAYS_NEW]
    limits = [kept["known_to"], kept["new_from"]]
    assert limits == pytest.approx([known_to, new_from], abs=1e-6)
    sets = reference.open_set(
        test_scores >= np.float32(threshold), outliers, known_to=known_to, new_from=new_from
    )
    chosen, says_new = sets[:, :-1].astype(bool), sets[:, -1].astype(bool)
    says_new |= ~chosen.any(axis=1)
    is_new = test_labels >= KNOWN
    hits = ~is_new & chosen[np.arange(len(chosen)), np.where(is_new, 0, test_labels)]
    # 1 less a probability: one row may be at a limit.
    one = 1.5 / is_new.sum()
    assert row["coverage"] == pytest.approx(hits[~is_new].mean(), abs=one)
    for rates, rows in ((row, ~is_new), (row["unknown"], is_new)):
        assert rates["none_of_these"] == pytest.approx(says_new[rows].mean(), abs=one)
        assert rates["set_size"] == pytest.approx(chosen[rows].sum(axis=1).mean(), abs=one)
    right = np.where(is_new, says_new, hits).mean()
    assert row["coverage_of_all"] == pytest.approx(right, abs=one)
    likeliest = test_scores.argmax(axis=1) == test_labels
    assert told["auroc"] == pytest.approx(reference.auroc(outliers, is_new), abs=1e-3)
    area = reference.oscr_area(1 - outliers, likeliest, is_new)
    assert told["oscr_area"] == pytest.approx(area, abs=1e-3)


@pytest.mark.parametrize("what", ["rows", "observations"])
def test_a_share_has_every_third_set_of_the_whole(what, folder, runs, monkeypatch):
    rng, out = np.random.default_rng(0), folder / f"shares_of_{what}"
    out.mkdir()
    features = np.load(folder / "test_rows.npz")["features"]
    plants = np.array([f"plant {one}" for one in rng.integers(0, 20, len(features))])
    np.savez(out / "plants.npz", features=features, plant=plants)
    given = {"workdir": runs / "cross_entropy-0", "features": out / "plants.npz", "top_k": 2}
    given |= {"group": "plant"} if what == "observations" else {}
    ok(line("predict", **given, out=out / "whole.jsonl"))
    whole = sets_in(out / "whole.jsonl")
    assert len(whole) == len(features if what == "rows" else {*plants})
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "3")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    early = run(line("predict", **given, out=out / "whole.jsonl"))
    assert (early.code, "--shard" in early.err) == (2, True)
    for index in (1, 2, 3):
        given |= {"shard": f"{index}/3", "out": out / f"{index}.jsonl"}
        ok(line("predict", **given))
        found = sets_in(given["out"])
        assert len(found) == len(whole[index - 1 :: 3])
        for one, other in zip(found, whole[index - 1 :: 3], strict=True):
            assert one[0] == other[0]
            # In batches of another size.
            np.testing.assert_allclose(one[1], other[1], rtol=1e-5)
    given |= {"shard": f"{len(whole) + 1}/9999", "out": f"{len(whole) + 1}.jsonl"}
    lost = run(line("predict", **given))
    assert (lost.code, f"at most {len(whole)}" in lost.err) == (2, True)


def sets_in(path):
    """What each line of a file is of, with its classes; and their probabilities."""
    lines = [json.loads(one) for one in path.read_text().splitlines()]
    of = ("row", "group", "examples", "size")
    return [
        (
            [*map(one.get, of), *(member["class"] for member in one["set"])],
            [member["probability"] for member in one["set"]],
        )
        for one in lines
    ]
