"""Runs in a taxonomy, from nested folders and from a table: trained, evaluated, used, exported."""

import json

import jax
import jax.export
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.parts.program.forked import check_mistakes, start_each
from topk_jax import metrics
from topk_jax.taxonomy import Taxonomy

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
NUMBER = 500
FAMILIES = {0: "round", 6: "round", 8: "round", 9: "round"}
COVERAGE = 0.8
SETS = (f"--coverage={COVERAGE}", "--rule=taxonomic")


def start(module, *starts):
    ended = start_each(f"train.{module}", starts, ENVIRONMENT)
    for one in ended:
        assert one.returncode == 0, one
    return ended


def path_of(digit):
    family = FAMILIES.get(digit, "straight")
    return family, f"{family} {'even' if digit % 2 == 0 else 'odd'}", f"digit {digit}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images in nested folders and the same with a table, and a run on each."""
    folder = tmp_path_factory.mktemp("taxonomy")
    digits = load_digits()
    for index in range(NUMBER):
        path = path_of(int(digits.target[index]))
        for place in (folder.joinpath("nested", *path), folder / "flat" / path[-1]):
            place.mkdir(parents=True, exist_ok=True)
            pixels = (digits.images[index] * 15).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{index}.png")
    rows = [",".join(reversed(path_of(digit))) for digit in range(10)]
    (folder / "ranks.csv").write_text("\n".join(["class,genus,family", *rows]))
    small = ["--config.model.name=small_cnn", "--config.num_epochs=2"]
    start(
        "main",
        [
            *("--config=configs/images.py", *small, f"--workdir={folder}/run"),
            *(f"--config.dataset.path={folder}/nested", "--config.dataset.nested=True"),
            "--config.loss.rank_weights=(0.25,0.5,1.0)",
        ],
        [
            *("--config=configs/images.py:soft_label_cross_entropy", *small),
            *(f"--workdir={folder}/table_run", f"--config.dataset.path={folder}/flat"),
            f"--config.dataset.taxonomy={folder}/ranks.csv",
        ],
    )
    return folder


def test_runs_keep_what_is_above_their_classes(folder):
    nested = json.loads((folder / "run" / "classes.json").read_text())
    assert {entry["ranks"]["level-2 folder"] for entry in nested} == {
        path_of(i)[1] for i in range(10)
    }
    of_table = json.loads((folder / "table_run" / "classes.json").read_text())
    assert of_table[3]["ranks"] == {
        "family": "straight",
        "genus": "straight odd",
        "class": "digit 3",
    }


def test_accuracies_and_sets_are_reported_by_rank(folder):
    scores = folder / "scores.npz"
    (ended,) = start(
        "evaluate",
        [
            *(f"--workdir={folder}/table_run", "--rules=lac,taxonomic", f"--scores={scores}"),
            f"--coverages={COVERAGE}",
        ],
    )
    assert "genus" in ended.stdout
    report = json.loads((folder / "table_run" / "evaluation_test.json").read_text())
    with np.load(scores) as file:
        probabilities, labels = file["scores"], file["labels"]
    tree = Taxonomy.from_paths([path_of(digit) for digit in range(10)])
    for depth, rank in ((1, "family"), (2, "genus")):
        ranks = metrics.ancestor_ranks(probabilities, labels, tree, depth=depth)
        assert report["ranks"][rank]["top_1_accuracy"] == float((np.asarray(ranks) < 1).mean())
    assert (report["ranks"]["family"]["nodes"], report["ranks"]["genus"]["nodes"]) == (2, 4)
    found = report["conformal_rules"][str(COVERAGE)]
    assert found["taxonomic"]["names"] == 1.0
    for values in found.values():
        coverages = [values["ranks"][rank]["coverage"] for rank in ("family", "genus")]
        assert coverages[0] >= coverages[1] >= values["coverage"] - 1e-6
    # The same of the scores alone.
    start(
        "evaluate",
        [
            *(f"--logits={scores}", "--rules=taxonomic", f"--coverages={COVERAGE}"),
            *(f"--taxonomy={folder}/ranks.csv", f"--out={folder}/of_scores.json"),
        ],
    )
    again = json.loads((folder / "of_scores.json").read_text())
    assert again["ranks"] == report["ranks"]


def test_sets_have_names_in_lines_on_the_page_and_in_the_export(folder):
    workdir, images = f"--workdir={folder}/run", folder / "nested" / "round"
    # The classes of nested folders have paths as names.
    rows = [f"{'/'.join(path_of(digit))},{digit % 2}" for digit in range(10)]
    (folder / "shapes.csv").write_text("\n".join(["class,shape", *rows]))
    start(
        "predict",
        [
            *(workdir, f"--images={images}", *SETS),
            *(f"--out={folder}/sets.jsonl", f"--html={folder}/sets.html"),
        ],
        [
            *(workdir, f"--images={images}", "--top_k=3", "--max_names=2"),
            *(f"--taxonomy={folder}/shapes.csv", f"--out={folder}/few.jsonl"),
        ],
    )
    lines = [json.loads(line) for line in (folder / "sets.jsonl").read_text().splitlines()]
    for line in lines:
        (name,) = line["names"]
        assert name["classes"] == line["size"]
    named = next(line["names"][0] for line in lines if line["size"] > 1)
    assert f"{named['name']} ({named['classes']} classes)" in (folder / "sets.html").read_text()
    few = [json.loads(line) for line in (folder / "few.jsonl").read_text().splitlines()]
    assert {len(line["names"]) for line in few} <= {1, 2}
    assert {name["rank"] for line in few for name in line["names"]} <= {"all", "shape", "class"}
    (ended,) = start("export", [workdir, *SETS, f"--out={folder}/program.jax"])
    assert "probabilities, chosen, nodes = program.call(images)" in ended.stdout
    program = jax.export.deserialize(bytearray((folder / "program.jax").read_bytes()))
    pixels = [np.asarray(Image.open(line["path"]).convert("L")) for line in lines]
    shape = json.loads((folder / "program.jax.json").read_text())["images"]["shape"][1:]
    batch = np.stack(pixels)[..., None]
    _, chosen, nodes = program.call(np.broadcast_to(batch, (len(batch), *shape)))
    assert [line["size"] for line in lines] == np.asarray(chosen).sum(axis=-1).tolist()
    assert (np.asarray(nodes).sum(axis=-1) == 1).all()


def test_mistakes_are_told(folder):
    recipe = [f"--workdir={folder}/none", f"--config.dataset.path={folder}/flat"]
    weighted = "--config.loss.rank_weights=(1.0,)"
    table = f"--config.dataset.taxonomy={folder}/ranks.csv"
    field = "config.loss.rank_weights must be "
    check_mistakes(
        "train.main",
        [
            (["--config=configs/images.py", *recipe, weighted], "config.loss.rank_weights needs"),
            (["--config=configs/images.py", *recipe, table, weighted], f"{field}3 numbers"),
            (["--config=configs/images.py:ldam", *recipe, table, weighted], field),
        ],
    )
