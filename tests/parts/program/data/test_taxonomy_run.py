"""A run on nested folders: what is above the classes is trained, reported, shown and exported."""

import json

import jax
import jax.export
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.parts.program.forked import check_mistakes, start_each

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
FAMILIES = {0: "round", 6: "round", 8: "round", 9: "round"}
COVERAGE = 0.8
SETS = (f"--sets=taxonomic={COVERAGE}",)


def start(module, *starts):
    ended = start_each(f"train.{module}", starts, ENVIRONMENT)
    for one in ended:
        assert one.returncode == 0, one
    return ended


def path_of(digit):
    family = FAMILIES.get(digit, "straight")
    return family, f"{family} {'even' if digit % 2 == 0 else 'odd'}", f"digit {digit}"


# The classes of nested folders have paths as names.
CLASSES = ["/".join(path_of(digit)) for digit in range(10)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images in nested folders, tables of their classes, and a run."""
    folder = tmp_path_factory.mktemp("taxonomy")
    digits = load_digits()
    for index in range(500):
        place = folder / "nested" / CLASSES[digits.target[index]]
        place.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[index] * 15).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{index}.png")
    rows = [
        "class,genus,family",
        *(f"{','.join((one, *one.split('/')[1::-1]))}" for one in CLASSES),
    ]
    (folder / "ranks.csv").write_text("\n".join(rows))
    start(
        "main",
        [
            *("--config=configs/images.py", f"--workdir={folder}/run"),
            *("--config.model.name=small_cnn", "--config.num_epochs=2"),
            *(f"--config.dataset.path={folder}/nested", "--config.dataset.nested=True"),
            "--config.loss.rank_weights=(0.25,0.5,1.0)",
        ],
    )
    return folder


def test_accuracies_and_sets_are_reported_by_rank(folder):
    scores, top = folder / "scores.npz", "--top_k=1"
    start(
        "evaluate",
        [f"--workdir={folder}/run", top, f"--coverage={COVERAGE}", *SETS, f"--out={scores}"],
    )
    report = json.loads((folder / "run" / "evaluation_test.json").read_text())
    assert [*report["ranks"]] == ["level-1 folder", "level-2 folder"]
    assert [one["nodes"] for one in report["ranks"].values()] == [2, 4]
    assert report["sets"][f"coverage={COVERAGE}, rule=taxonomic"]["names"] == 1.0
    for values in report["sets"].values():
        coverages = [one["coverage"] for one in values["ranks"].values()]
        assert coverages[0] >= coverages[1] >= values["coverage"] - 1e-6
    # The same of the scores alone.
    given, out = (f"--scores={scores}", f"--taxonomy={folder}/ranks.csv"), folder / "again.json"
    start("evaluate", [*given, *SETS, top, f"--out={out}"])
    again = json.loads(out.read_text())
    assert [*again["ranks"]] == ["family", "genus"]
    assert [*again["ranks"].values()] == [*report["ranks"].values()]


def test_sets_have_names_in_lines_on_the_page_and_in_the_export(folder):
    workdir, images = f"--workdir={folder}/run", f"--images={folder}/nested/round"
    other = ("--sets=top_k=3, max_names=2", f"--taxonomy={folder}/ranks.csv")
    start(
        "predict",
        [workdir, images, *SETS, f"--out={folder}/sets.jsonl", f"--html={folder}/sets.html"],
        [workdir, images, *other, f"--out={folder}/few.jsonl"],
    )
    lines, few = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("sets", "few")
    )
    for line in lines:
        (name,) = line["names"]
        assert name["classes"] == line["size"]
    named = next(line["names"][0] for line in lines if line["size"] > 1)
    assert f"{named['name']} ({named['classes']} classes)" in (folder / "sets.html").read_text()
    assert {len(line["names"]) for line in few} <= {1, 2}
    assert {name["rank"] for line in few for name in line["names"]} > {"genus", "class"}
    start("export", [workdir, *SETS, f"--out={folder}/program.jax"])
    program = jax.export.deserialize(bytearray((folder / "program.jax").read_bytes()))
    pixels = np.stack([np.asarray(Image.open(line["path"]).convert("L")) for line in lines])
    _, chosen, nodes = program.call(pixels[..., None])
    assert [line["size"] for line in lines] == np.asarray(chosen).sum(axis=-1).tolist()
    assert (np.asarray(nodes).sum(axis=-1) == 1).all()


def test_weights_of_ranks_need_ranks_as_many_numbers_and_a_loss_that_has_them(folder):
    given = [f"--workdir={folder}/none", f"--config.dataset.path={folder}/nested"]
    given.append("--config.loss.rank_weights=(1.0,)")
    nested, field = "--config.dataset.nested=True", "config.loss.rank_weights"
    check_mistakes(
        "train.main",
        [
            (["--config=configs/images.py", *given], f"{field} needs"),
            (["--config=configs/images.py", *given, nested], f"{field} must be 3 numbers"),
            (["--config=configs/images.py:ldam", *given, nested], f"{field} must be "),
        ],
    )
