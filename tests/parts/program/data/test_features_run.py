"""A run on features, from a file to sets of classes, a page and an exported program."""

import json
import shutil

import jax
import jax.export
import numpy as np
import pytest

from configs import features as recipe
from tests.parts.program.data import matrices, page
from tests.parts.program.forked import check_mistakes, start, start_each
from tests.parts.program.sealed import unsealed
from train import experiment
from train.prediction import exported_program, inference, trained
from train.prediction.calibrated_rule import CalibratedRule

pytestmark = pytest.mark.usefixtures("standard_promotion")
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
TOP = CalibratedRule("top_k", 2.0, None)


def small(path, **fields):
    """The recipe for a run that takes a few seconds."""
    config = recipe.get_config("cross_entropy")
    config.dataset.path = str(path)
    config.dataset.batch_size = 24
    config.num_epochs = 3
    # A few steps are enough.
    config.optimizer.learning_rate = 0.3
    config.eval.ks = (1, 2)
    config.select_by = "top_1_accuracy"
    config.update_from_flattened_dict(fields)
    return json.loads(config.to_json())


@pytest.fixture(scope="module")
def content():
    return matrices.arrays(60)


@pytest.fixture(scope="module")
def finished(content, tmp_path_factory, run_seed):
    """The folder of a finished run, `run`, without the features that it was trained on."""
    folder = tmp_path_factory.mktemp("features")
    with jax.numpy_dtype_promotion("standard"):
        config = small(matrices.write(folder / "a.npz", **content), seed=run_seed)
        experiment.run(config, folder / "run")
        scores = trained.load(folder / "run").predict("test").scores
        np.save(folder / "scores.npy", scores)
    (folder / "a.npz").rename(folder / "moved.npz")
    return folder


@pytest.fixture
def workdir(finished, tmp_path):
    """A copy of the run, to write into."""
    return shutil.copytree(finished / "run", tmp_path / "run")


def test_the_run_keeps_what_it_needs_of_the_features(finished, content):
    results = json.loads((finished / "run" / "results.json").read_text())
    assert results["num_parameters"] == 4 * 3 + 3
    # The classes lie apart. One of nine may be wrong; guessing has three right.
    assert results["test"]["top_1_accuracy"] > 0.8
    kept = json.loads((finished / "run" / "data.json").read_text())
    assert kept["image_shape"] == [4]
    classifier = trained.load(finished / "run")
    assert classifier.classes.names == matrices.CLASSES
    # The scores of the network with standardized features, in 64 bits.
    features = content["features"][:5].astype(np.float64)
    head = classifier.params["head"]["Dense_0"]
    logits = (features - kept["mean"]) / kept["std"] @ head["kernel"] + head["bias"]
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    # Float32 rounding of a few sums.
    for dtype in (np.float16, np.float32):
        found = classifier.scores()(features.astype(dtype))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_exported_program_says_what_the_classifier_says(finished, content):
    classifier = trained.load(finished / "run")
    program = jax.export.deserialize(bytearray(exported_program.serialize(classifier, TOP)))
    features = content["features"][:7].astype(np.float32)
    expected = jax.jit(inference.make(classifier, TOP))(features)
    # The same operations on the same machine: to the last bit.
    jax.tree.map(np.testing.assert_array_equal, tuple(program.call(features)), expected)
    described = exported_program.describe(classifier, TOP)
    assert "images" not in described
    assert described["features"]["shape"] == ["n", 4]
    assert described["features"]["dtype"] == "float32"


@pytest.fixture(scope="module")
def rows(content, tmp_path_factory):
    """A folder with rows to predict for: 300 in each kind of file, of which one has names."""
    folder = tmp_path_factory.mktemp("rows")
    features = np.tile(content["features"], (2, 1))[:300]
    np.save(folder / "alone.npy", features)
    names = np.array([f"tree <{row}>" for row in range(300)])
    matrices.write(folder / "named.npz", features=features.astype(np.float32), names=names)
    matrices.write(folder / "other.npz", features=features[:, :3])
    bad = features.copy()
    bad[7, 1] = np.nan
    matrices.write(folder / "bad.npz", features=bad)
    (folder / "image.png").touch()
    return folder


def test_every_row_has_a_line_in_order(finished, rows, tmp_path):
    run, out = f"--workdir={finished}/run", tmp_path / "out.jsonl"
    ended = start_each(
        "train.predict",
        [
            (run, f"--features={rows}/alone.npy", "--top_k=2", f"--out={out}"),
            (run, f"--features={rows}/named.npz", "--top_k=1", f"--html={tmp_path}/page.html"),
        ],
        ENVIRONMENT,
    )
    # Standard output has the lines of the second.
    told = ["", f"first of 2 pages  {tmp_path}/page.html\n"]
    assert [(done.returncode, done.stderr) for done in ended] == [(0, one) for one in told]
    assert ended[0].stdout == f"sets  {out}\n"
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["row"] for line in found] == list(range(300))
    scores = trained.load(finished / "run").scores()(np.load(rows / "alone.npy"))
    for line, row in zip(found, np.asarray(scores), strict=True):
        assert set(line) == {"row", "set", "size", "threshold", "rule"}
        order = [member["index"] for member in line["set"]]
        assert order == np.argsort(-row)[:2].tolist()
        probabilities = [member["probability"] for member in line["set"]]
        # Another size of batches may round otherwise.
        np.testing.assert_allclose(probabilities, row[order], rtol=1e-5)
    named = [json.loads(line) for line in ended[1].stdout.splitlines()]
    assert [line["name"] for line in named] == [f"tree <{row}>" for row in range(300)]
    assert [line["set"] for line in named] == [line["set"][:1] for line in found]
    first, second = (
        (tmp_path / name).read_text(encoding="utf-8") for name in ("page.html", "page.2.html")
    )
    for one in (first, second):
        assert "<h1>Sets of classes for 300 rows</h1>" in one
        assert "Of the test rows, " in one
        assert "<img" not in one
    assert "rows 201 to 300 of 300" in second
    assert [one.count('<li class="card"') for one in (first, second)] == [200, 100]
    assert "tree &lt;17&gt;" in first
    assert "tree &lt;217&gt;" in second


# The folder of the rows stands for @, the run on features for %, one on images for &.
MISTAKES = {
    "--workdir=% --features=@/other.npz --top_k=1": "must have the 4 features",
    "--workdir=% --features=@/bad.npz --top_k=1": "row 7, ",
    "--workdir=% --images=@/image.png --top_k=1": "--features is needed, not --images",
    "--workdir=& --features=@/alone.npy --top_k=1": "--images is needed, not --features",
    "--workdir=% --features=@/bad.npz --top_k=1 --out=@/bad.npz": "--out must not be",
}


def test_a_mistake_is_one_line_and_exit_code_two(finished, finished_run, rows):
    before = {file: file.read_bytes() for file in rows.rglob("*.n*")}
    places = {"@": rows, "%": finished / "run", "&": finished_run}
    starts = ["".join(str(places.get(letter, letter)) for letter in text) for text in MISTAKES]
    check_mistakes(
        "train.predict",
        [(text.split(), message) for text, message in zip(starts, MISTAKES.values(), strict=True)],
    )
    assert {file: file.read_bytes() for file in rows.rglob("*.n*")} == before


def test_what_the_run_was_trained_on_is_not_written_to(finished, workdir, tmp_path):
    features = tmp_path / "a.npz"
    shutil.copy(finished / "moved.npz", features)
    config = unsealed(workdir / "config.json")
    config["dataset"]["path"] = str(features)
    (workdir / "config.json").write_text(json.dumps(config))
    (tmp_path / "link.npz").hardlink_to(features)
    before = features.read_bytes()
    for module, flags in (
        ("train.evaluate", ("--scores=@",)),
        ("train.predict", (f"--features={finished}/moved.npz", "--top_k=1", "--html=@")),
        ("train.export", ("--top_k=1", "--out=@")),
    ):
        mistakes = [
            (
                [f"--workdir={workdir}", *(flag.replace("@", str(out)) for flag in flags)],
                f"must not be config.dataset.path of the run in {workdir}",
            )
            for out in (features, tmp_path / "link.npz")
        ]
        check_mistakes(module, mistakes)
    assert features.read_bytes() == before


def test_evaluation_and_calibration_use_the_features_where_they_are(finished, workdir, tmp_path):
    config = unsealed(workdir / "config.json")
    shutil.copy(finished / "moved.npz", tmp_path / "a.npz")
    config["dataset"]["path"] = str(tmp_path / "a.npz")
    (workdir / "config.json").write_text(json.dumps(config))
    rows = f"--features={tmp_path}/a.npz"
    start = (f"--workdir={workdir}", rows, "--coverage=0.9")
    (predicted,) = start_each("train.predict", [start], ENVIRONMENT)
    assert (predicted.returncode, predicted.stderr) == (0, "")
    assert len(predicted.stdout.splitlines()) == 180
    # From then on the features are not needed.
    (tmp_path / "a.npz").rename(tmp_path / "b.npz")
    start = (start[0], f"--features={tmp_path}/b.npz", start[2])
    (again,) = start_each("train.predict", [start], ENVIRONMENT)
    assert again == predicted


def test_the_commands_of_the_page_run(tmp_path, monkeypatch):
    section = page.section("A matrix of features")
    monkeypatch.chdir(tmp_path)
    page.run_block(section)
    commands = page.commands(section)
    assert [module for module, _ in commands] == ["train.main", "train.predict", "train.export"]
    for module, arguments in commands:
        done = start(module, *arguments, environment=ENVIRONMENT, folder=str(tmp_path))
        assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "sets.jsonl").read_text().splitlines()) == 100
    assert (tmp_path / "features.stablehlo").exists()
