"""A run on features, from a file to sets of classes, a page and an exported program."""

import json
import shutil

import jax
import jax.export
import numpy as np
import pytest

from configs import features as recipe
from tests.parts.program.data import matrices
from tests.parts.program.forked import check_mistakes, start_each
from train.classifiers import trained
from train.package import program
from train.reports.rules import parse
from train.run import experiment

pytestmark = pytest.mark.usefixtures("standard_promotion")
ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
TOP = parse("top_k=2")


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
    (folder / "a.npz").rename(folder / "moved.npz")
    return folder


def test_the_run_keeps_what_it_needs_of_the_features(finished, content):
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
    exported = jax.export.deserialize(bytearray(program.serialize(classifier, TOP)))
    features = content["features"][:7].astype(np.float32)
    expected = jax.jit(program.make(classifier, TOP))(features)
    # The same operations on the same machine: to the last bit.
    jax.tree.map(np.testing.assert_array_equal, tuple(exported.call(features)), expected)
    described = program.describe(classifier, TOP)
    assert described["features"]["shape"] == ["n", 4]


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
            (run, f"--features={rows}/named.npz", "--top_k=1"),
            (run, f"--features={rows}/named.npz", "--top_k=1", f"--html={tmp_path}/page.html"),
        ],
        ENVIRONMENT,
    )
    assert [(done.returncode, done.stderr) for done in ended] == 3 * [(0, "")]
    # Only without a file standard output has the lines.
    for done, told in ((ended[0], f"sets  {out}"), (ended[2], f"page  {tmp_path}/page.html")):
        *_, size, _, last = done.stdout.splitlines()
        assert size.startswith("300 sets: ")
        assert last == told
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["row"] for line in found] == list(range(300))
    scores = trained.load(finished / "run").scores()(np.load(rows / "alone.npy"))
    for line, row in zip(found, np.asarray(scores), strict=True):
        order = [member["index"] for member in line["set"]]
        assert order == np.argsort(-row)[:2].tolist()
        probabilities = [member["probability"] for member in line["set"]]
        # Another size of batches may round otherwise.
        np.testing.assert_allclose(probabilities, row[order], rtol=1e-5)
    named = [json.loads(line) for line in ended[1].stdout.splitlines()]
    assert [line["name"] for line in named] == [f"tree <{row}>" for row in range(300)]
    assert [line["set"] for line in named] == [line["set"][:1] for line in found]
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count('<li class="card"') == 300
    assert "tree &lt;217&gt;" in page


# The folder of the rows stands for @, the run on features for %, one on images for &.
MISTAKES = {
    "--workdir=% --features=@/other.npz --top_k=1": "must have 4 features a row",
    "--workdir=% --features=@/bad.npz --top_k=1": "row 7, ",
    "--workdir=% --images=@/image.png --top_k=1": "--features is needed, not --images",
    "--workdir=& --features=@/alone.npy --top_k=1": "--images is needed, not --features",
}


def test_a_mistake_is_one_line_and_exit_code_two(finished, finished_run, rows):
    places = {"@": rows, "%": finished / "run", "&": finished_run}
    starts = ["".join(str(places.get(letter, letter)) for letter in text) for text in MISTAKES]
    check_mistakes(
        "train.predict",
        [(text.split(), message) for text, message in zip(starts, MISTAKES.values(), strict=True)],
    )


def test_calibration_uses_the_features_where_they_are(finished, tmp_path):
    workdir = shutil.copytree(finished / "run", tmp_path / "run")
    features, moved = tmp_path / "a.npz", finished / "moved.npz"
    shutil.copy(moved, features)
    config = json.loads((workdir / "config.json").read_text())
    config["dataset"]["path"] = str(features)
    (workdir / "config.json").write_text(json.dumps(config))
    asked = (f"--workdir={workdir}", f"--features={moved}", "--coverage=0.9")
    (predicted,) = start_each("train.predict", [asked], ENVIRONMENT)
    assert (predicted.returncode, predicted.stderr) == (0, "")
    assert len(predicted.stdout.splitlines()) == 180
    # From then on the features are not needed.
    features.unlink()
    (again,) = start_each("train.predict", [asked], ENVIRONMENT)
    assert again == predicted


def test_sets_miss_the_part_of_several_labels_that_is_allowed(tmp_path):
    rng, error = np.random.default_rng(0), 0.1
    features = rng.normal(size=(900, 4)).astype(np.float32)
    # Each class is present by a law of its own, and every row has a label.
    chances = 1 / (1 + np.exp(1 - 2 * features @ rng.normal(size=(4, 5))))
    present = rng.random(chances.shape) < chances
    present[np.arange(900), chances.argmax(axis=1)] |= ~present.any(axis=1)
    content = {"features": features, "labels": present, "class_names": np.array([*"abcde"])}
    path, new = (matrices.write(tmp_path / name, **content) for name in ("a.npz", "new.npz"))
    fields = {"dataset.labels": "several", "loss.name": "sparse_top_loss", "num_epochs": 4}
    experiment.run(small(path, **fields), tmp_path / "run")
    workdir, out = f"--workdir={tmp_path}/run", tmp_path / "new.json"
    asked = (workdir, f"--features={new}", f"--coverage={1 - error}", f"--out={out}")
    (evaluated,) = start_each("train.evaluate", [asked], ENVIRONMENT)
    assert evaluated.returncode == 0, evaluated.stderr
    found = json.loads(out.read_text())["sets"][f"coverage={1 - error}"]
    # Of 135 rows to calibrate on and at least 135 others, whose rates vary by less than those of
    # one label each: four standard deviations.
    assert abs(found["missed_labels"] - error) < 4 * np.sqrt(error * 2 / 135)
    asked = (workdir, f"--features={new}", f"--coverage={1 - error}")
    (predicted,) = start_each("train.predict", [asked], ENVIRONMENT)
    assert predicted.returncode == 0, predicted.stderr
    sets = [json.loads(line)["set"] for line in predicted.stdout.splitlines()]
    # What the command says of the rows is what their sets miss.
    chosen = np.zeros_like(present)
    for row, members in zip(chosen, sets, strict=True):
        row[[member["index"] for member in members]] = True
    missed = 1 - ((chosen & present).sum(axis=1) / present.sum(axis=1)).mean()
    assert missed == pytest.approx(found["missed_labels"], abs=1e-6)
