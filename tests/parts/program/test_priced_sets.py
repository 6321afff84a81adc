"""Sets of a utility and of a bounded cost by the commands: evaluated, predicted, exported."""

import json
import shutil

import jax.export
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.parts.program.forked import start
from tests.parts.program.sealed import unsealed
from topk_jax import sets
from train.evaluation import named_costs, utility_sets


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("priced") / "run")


@pytest.fixture(scope="module")
def costs(workdir):
    """A table: a digit costs less if the set has the next one."""
    path = workdir.parent / "costs.csv"
    rows = [f"{digit},,1\n{digit},{(digit + 1) % 10},0.25" for digit in range(10)]
    path.write_text("\n".join(["label,chosen,cost", *rows]))
    return path


def run(module, *arguments):
    done = start(module, *arguments)
    assert done.returncode == 0, done
    return done


def test_sets_of_a_utility_are_evaluated_and_exported(workdir, tmp_path):
    flags = (f"--workdir={workdir}", "--utility=u65")
    run("train.evaluate", *flags, f"--scores_out={workdir}/test.npz")
    report = unsealed(workdir / "evaluation_test.json")
    with np.load(workdir / "test.npz") as file:
        scores = file["scores"]
    program = tmp_path / "program.stablehlo"
    run("train.export", *flags, f"--out={program}")
    description = json.loads((tmp_path / "program.stablehlo.json").read_text())
    assert description["rule"] == "utility=u65"
    call = jax.export.deserialize(program.read_bytes()).call
    shape = description["images"]["shape"][1:]
    images = np.random.default_rng(0).integers(0, 255, (5, *shape)).astype(np.uint8)
    probabilities, chosen = call(images)
    worth = sets.set_utilities("u65", num_classes=10)
    np.testing.assert_array_equal(chosen, sets.utility_set(probabilities, utilities=worth))
    best = sets.utility_set(scores, utilities=worth)
    assert report["utilities"]["u65"]["set_size"] == pytest.approx(float(best.sum(-1).mean()))


def test_new_data_and_programs_are_evaluated_by_them(workdir, costs, tmp_path):
    digits = load_digits()
    for index in range(60):
        folder = tmp_path / "new" / f"{digits.target[index]}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[index] * 15).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    program, images = tmp_path / "top_3.stablehlo", f"--images={tmp_path}/new"
    (tmp_path / "ranks.csv").write_text(
        "\n".join(["class,parity", *(f"{digit},{digit % 2}" for digit in range(10))])
    )
    run("train.export", f"--workdir={workdir}", "--top_k=3", f"--out={program}")
    run(
        *("train.evaluate", f"--program={program}", images, "--utility=u65"),
        *(f"--taxonomy={tmp_path}/ranks.csv", f"--out={tmp_path}/program.json"),
    )
    run(
        *("train.evaluate", f"--workdir={workdir}", images, "--utility=u65", "--coverages="),
        *("--risks=0.2", f"--costs={costs}", f"--out={tmp_path}/run.json"),
        f"--scores_out={tmp_path}/scores.npz",
    )
    with np.load(tmp_path / "scores.npz") as file:
        scores, labels = file["scores"], file["labels"]
    rows, worth = np.arange(len(labels)), utility_sets.of_sizes("u65", 10)
    report = json.loads((tmp_path / "run.json").read_text())
    best = np.asarray(sets.utility_set(scores, utilities=worth))
    value = (worth[best.sum(axis=-1) - 1] * best[rows, labels]).mean()
    assert report["utilities"]["u65"]["utility"] == pytest.approx(value)
    values = report["risks"]["0.2"]
    chosen = scores >= np.float32(values["threshold"])
    table = named_costs.named(str(costs), [str(digit) for digit in range(10)], None)
    assert values["mean_cost"] == pytest.approx(table.of_sets(chosen, labels).mean())
    # The threshold of the run, from its validation examples.
    kept = unsealed(workdir / "calibration.json")
    assert values["threshold"] in [kept[name] for name in kept if name.startswith("risk_0.2_")]
    top = np.asarray(sets.top_k_set(scores, k=3))
    report = json.loads((tmp_path / "program.json").read_text())
    # Probabilities of another compilation.
    assert report["utilities"]["u65"]["utility"] == pytest.approx(value, abs=0.02)
    found = report["utilities"]["u65"]["utility_of"]
    assert found["program"] == found["top_3"] == pytest.approx(worth[2] * top[rows, labels].mean())
    is_odd = np.arange(10) % 2 == 1
    has_parity = [top[row, is_odd == is_odd[label]].any() for row, label in enumerate(labels)]
    of_rank = report["sets"]["ranks"]["parity"]
    assert of_rank["coverage"] == pytest.approx(np.mean(has_parity))
    numbers = [len({*is_odd[row]}) for row in top]
    assert of_rank["set_size"] == pytest.approx(np.mean(numbers))
    assert "parity" in report["ranks"]
