"""Commands in several processes, some of them killed: the files of one process, byte for byte."""

import json
import os
import shutil
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.parts.program.forked import Started, start
from tests.parts.program.sealed import unsealed

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
NUMBER = 4
# Digits of each class.
EACH = 60


@pytest.fixture(scope="module")
def workdir(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("shards") / "run")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Photographs of digits, two of each plant, and two files that cannot be read."""
    folder = tmp_path_factory.mktemp("photos")
    digits = load_digits()
    for label in range(10):
        (folder / str(label)).mkdir()
        chosen = np.flatnonzero(digits.target == label)[:EACH]
        for place, index in enumerate(chosen.tolist()):
            pixels = (digits.images[index] * 15).astype(np.uint8)
            Image.fromarray(pixels).save(folder / str(label) / f"plant{place // 2}_{place}.png")
    for name in ("0/plant0_broken.png", "7/plant9_broken.png"):
        (folder / name).write_text("no image")
    return folder


def run(command, *arguments, environment=None, code=0):
    ended = start(
        "tests.parts.program.sharing.killed",
        *arguments,
        environment=ENVIRONMENT | {"SHARED_COMMAND": command} | (environment or {}),
    )
    assert ended.returncode == code, ended
    return ended


def share(command, *arguments, code=0):
    """Runs the command in four processes, kills two of them, starts these again, and merges.

    Args:
        command: the command.
        arguments: its arguments.
        code: the exit code of the merge.
    """
    kills = (0, NUMBER - 1)
    started = {
        index: Started(
            "tests.parts.program.sharing.killed",
            *arguments,
            f"--shard={index}/{NUMBER}",
            environment=ENVIRONMENT
            | {"SHARED_COMMAND": command}
            | ({"KILL_AFTER": "1"} if index in kills else {}),
        )
        for index in range(NUMBER)
    }
    for index, one in started.items():
        ended = one.end()
        assert ended.returncode == (-9 if index in kills else 0), ended
    # Before all parts are complete.
    assert "--shard=" in run(command, *arguments, "--merge", code=2).stderr
    for index in kills:
        assert "continuing after" in run(command, *arguments, f"--shard={index}/{NUMBER}").stdout
    return run(command, *arguments, "--merge", code=code)


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def compare(tmp_path, write_alone, write_shared):
    """What is written into two folders of one name is the same."""
    found = []
    for name, write in (("alone", write_alone), ("shared", write_shared)):
        folder = tmp_path / name
        folder.mkdir()
        write(folder)
        found.append(files_of(folder))
    for one, other in pairwise(found):
        assert one.keys() == other.keys()
        assert one
        for name, content in one.items():
            assert content == other[name], name


@pytest.mark.parametrize("rule", ["--top_k=3", "--coverage=0.9", "--top_k=2 --group=(plant\\d+)_"])
def test_sets(workdir, images, tmp_path, rule):
    arguments = (f"--workdir={workdir}", f"--images={images}", *rule.split())

    def outputs(folder):
        return f"--out={folder}/sets.jsonl", f"--html={folder}/page.html"

    alone = []
    compare(
        tmp_path,
        lambda folder: alone.append(run("predict", *arguments, *outputs(folder), code=1)),
        lambda folder: alone.append(share("predict", *arguments, *outputs(folder), code=1)),
    )
    # The files that cannot be read are told by whoever writes the sets.
    assert alone[0].stderr == alone[1].stderr
    assert "2 of 602 images could not be read" in alone[0].stderr


def test_sets_of_rows(workdir, images, tmp_path):
    def outputs(folder):
        return (
            "--weights=" + str(weights),
            f"--images={images}",
            "--image_size=16",
            "--skip_unreadable",
            f"--out={folder}/features.npz",
        )

    import safetensors.numpy  # noqa: PLC0415

    from tests.parts.program.prediction import small_network  # noqa: PLC0415

    weights = tmp_path / "resnet50.pth"
    safetensors.numpy.save_file(small_network.weights()[1], weights)
    compare(
        tmp_path,
        lambda folder: run("embed", *outputs(folder)),
        lambda folder: share("embed", *outputs(folder)),
    )


def test_evaluation_of_new_images(workdir, images, tmp_path):
    arguments = (
        f"--workdir={workdir}",
        f"--images={images}",
        "--allow_new",
        "--group=(plant\\d+)_",
    )

    def outputs(folder):
        return (
            f"--out={folder}/report.json",
            f"--scores={folder}/scores.npz",
            f"--examples={folder}/page.html",
        )

    compare(
        tmp_path,
        lambda folder: run("evaluate", *arguments, *outputs(folder)),
        lambda folder: share("evaluate", *arguments, *outputs(folder)),
    )


def test_evaluation_of_a_split(workdir, tmp_path):
    arguments = (f"--workdir={workdir}", "--rules=all")

    def outputs(folder):
        return (
            f"--out={folder}/report.json",
            f"--scores={folder}/scores.npz",
            f"--examples={folder}/page.html",
            f"--figure={folder}/figure.svg",
        )

    compare(
        tmp_path,
        lambda folder: run("evaluate", *arguments, *outputs(folder)),
        lambda folder: share("evaluate", *arguments, *outputs(folder)),
    )


def test_evaluation_of_a_program(workdir, images, tmp_path):
    program = tmp_path / "program.jax"
    ended = start("train.export", f"--workdir={workdir}", "--top_k=2", f"--out={program}")
    assert ended.returncode == 0, ended
    arguments = (f"--program={program}", f"--images={images}")
    compare(
        tmp_path,
        lambda folder: run("evaluate", *arguments, f"--out={folder}/report.json"),
        lambda folder: share("evaluate", *arguments, f"--out={folder}/report.json"),
    )


def test_a_job_array_shares_without_a_flag(workdir, images, tmp_path):
    out = tmp_path / "sets.jsonl"
    arguments = (f"--workdir={workdir}", f"--images={images}", "--top_k=2", f"--out={out}")
    for index in (1, 4):
        task = {"SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_TASK_MIN": "1"}
        task |= {"SLURM_ARRAY_TASK_MAX": "4", "SLURM_ARRAY_TASK_COUNT": "2"}
        told = run("predict", *arguments, environment=task).stdout
        assert f"this is task {index // 4} of 2, from 0, of a Slurm job array" in told
    assert not out.exists()
    run("predict", *arguments, "--merge", code=1)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 10 * EACH + 2
    # In one task, if that is asked for.
    shared = out.read_bytes()
    out.unlink()
    run("predict", *arguments, "--nocluster", environment=task, code=1)
    assert out.read_bytes() == shared


def test_changes_between_the_shards_are_refused(workdir, images, tmp_path):
    photos = shutil.copytree(images, tmp_path / "photos")
    arguments = (f"--workdir={workdir}", f"--images={photos}", f"--out={tmp_path}/sets.jsonl")
    run("predict", *arguments, "--top_k=2", "--shard=0/2")
    others = run("predict", *arguments, "--top_k=3", "--shard=1/2", code=2).stderr
    assert "has results of other flags (--top_k)" in others
    # As many bytes, at another time.
    changed = photos / "5" / "plant0_0.png"
    os.utime(changed, (0, 0))
    others = run("predict", *arguments, "--top_k=2", "--shard=1/2", code=2).stderr
    assert "has results of other inputs: files were added, removed or changed since" in others
    shutil.copystat(images / "5" / "plant0_0.png", changed)
    (photos / "5" / "new.png").write_bytes(changed.read_bytes())
    others = run("predict", *arguments, "--top_k=2", "--shard=1/2", code=2).stderr
    assert "has results of other inputs" in others
    (photos / "5" / "new.png").unlink()
    run("predict", *arguments, "--top_k=2", "--shard=1/2")
    # Another run, whose probabilities are others.
    other = shutil.copytree(workdir, tmp_path / "other")
    results = unsealed(other / "results.json") | {"temperature": 2.0}
    (other / "results.json").write_text(json.dumps(results))
    merged = (f"--workdir={other}", *arguments[1:], "--top_k=2", "--merge")
    assert (
        "has results of another run, network or program" in run("predict", *merged, code=2).stderr
    )
    run("predict", *arguments, "--top_k=2", "--merge", code=1)
