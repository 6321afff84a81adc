"""A network starts from a file of weights, makes features, and gets a head: each beside NumPy."""

import functools
import io
import json
import pickle
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

from tests.promises import commands, own_data, small_resnet, torch_files

NETWORK = "tests.promises.small_resnet:NETWORK"
CLASSES = small_resnet.CLASSES
EACH = 30
# 32-bit sums of some hundred terms, in another order in batches of another size.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def arrays_of(path):
    with np.load(path) as arrays:
        return dict(arrays)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    small_resnet.photographs(root, EACH)
    return root


@pytest.fixture(scope="module")
def weights():
    return small_resnet.weights()


def saved(arrays, write=torch_files.zip_file):
    return write(torch_files.checkpoint(arrays))


@pytest.fixture(scope="module")
def folder(photos, weights, tmp_path_factory):
    """A folder with the weights in a file of torch.save, and the features of the photographs."""
    root = tmp_path_factory.mktemp("weights")
    (root / "weights.pth").write_bytes(saved(weights))
    embed(root / "weights.pth", photos, root / "features.npz")
    return root


def embed(weights, images, out, **more):
    given = {"weights": weights, "images": images, "out": out} | more
    size = small_resnet.IMAGE_SIZE
    commands.ok(commands.line("embed", model=NETWORK, image_size=size, **given))
    return arrays_of(out)


def pixels_of(photos, names):
    """The pixels of photographs, which have the size that the network gets."""
    return np.stack([np.asarray(Image.open(photos / name)) for name in names])


def test_features_are_those_of_the_network_below_its_head(photos, weights, folder):
    found = arrays_of(folder / "features.npz")
    pixels = pixels_of(photos, found["names"])
    np.testing.assert_allclose(found["features"], small_resnet.features(weights, pixels), **CLOSE)
    # With the labels, the names and the splits of a run on the photographs.
    dataset = own_data.load({"name": "images", "path": photos})
    assert sorted(found["names"]) == sorted(f"{n}/{i:02}.png" for n in CLASSES for i in range(EACH))
    for split, part in dataset.splits.items():
        of_split = np.isin(found["names"], part.names.tolist())
        assert set(found["split"][of_split]) == {"val" if split == "validation" else split}
        assert of_split.sum() == len(part)
    of_names = [name.split("/")[0] for name in found["names"]]
    assert np.array(CLASSES)[found["labels"]].tolist() == of_names


def test_a_folder_with_the_files_of_all_shares_is_the_data_set(photos, folder, tmp_path):
    for index in (1, 2, 3):
        embed(folder / "weights.pth", photos, tmp_path / f"{index}.npz", shard=f"{index}/3")
    joined, whole = (
        own_data.load({"name": "features", "path": path}).splits
        for path in (tmp_path, folder / "features.npz")
    )
    for split, part in whole.items():
        ours, theirs = (np.argsort(one.names.tolist()) for one in (joined[split], part))
        assert joined[split].names[ours].tolist() == part.names[theirs].tolist()
        np.testing.assert_array_equal(joined[split].labels[ours], part.labels[theirs])
        np.testing.assert_allclose(joined[split].rows(ours), part.rows(theirs), **CLOSE)


def test_unreadable_images_stop_embed_or_are_left_out(photos, folder, tmp_path):
    photos = shutil.copytree(photos, tmp_path / "photos")
    broken = photos / CLASSES[0] / "00.png"
    broken.write_bytes(broken.read_bytes()[:-30])
    given = {"weights": folder / "weights.pth", "model": NETWORK, "images": photos}
    given |= {"image_size": small_resnet.IMAGE_SIZE, "out": tmp_path / "a.npz"}
    refused(commands.line("embed", **given), f"{CLASSES[0]}/00.png")
    commands.ok(commands.line("embed", **given, skip_unreadable=True))
    found, whole = arrays_of(tmp_path / "a.npz"), arrays_of(folder / "features.npz")
    assert sorted(found["names"]) == sorted({*whole["names"]} - {f"{CLASSES[0]}/00.png"})


def as_halves(arrays, dtype):
    return {name: array.astype(dtype) for name, array in arrays.items()}


WRITERS = {
    "legacy.pth": functools.partial(saved, write=torch_files.legacy_file),
    "weights.safetensors": safetensors.numpy.save,
    "data_parallel.tar": lambda arrays: saved(
        {f"module.{name}": array for name, array in arrays.items()}
        | {"module.bn1.num_batches_tracked": np.array(7)}
    ),
    "transposed.pth": lambda arrays: saved(
        arrays | {"conv1.weight": np.asfortranarray(arrays["conv1.weight"])}
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_has_the_same_numbers_bit_for_bit(photos, weights, folder, tmp_path, name):
    (tmp_path / name).write_bytes(WRITERS[name](weights))
    found = embed(tmp_path / name, photos, tmp_path / "a.npz")
    np.testing.assert_array_equal(found["features"], arrays_of(folder / "features.npz")["features"])


@pytest.fixture(scope="module")
def frozen(photos, folder):
    """A run that starts from weights of 16 bits, and trains only the head."""
    halves = as_halves(small_resnet.weights(), jnp.bfloat16)
    (folder / "halves.pth").write_bytes(saved(halves))
    changes = {
        "model.name": NETWORK,
        "model.pretrained": folder / "halves.pth",
        "model.freeze": True,
    }
    where = {"name": "images", "path": photos}
    return own_data.train(where, folder / "frozen", **changes), halves


def test_a_frozen_network_keeps_the_weights_of_the_file_bit_for_bit(photos, frozen, folder):
    run, halves = frozen
    out = folder / "trained.safetensors"
    commands.ok(commands.line("export", workdir=run.workdir, format="safetensors", out=out))
    found = safetensors.numpy.load_file(out)
    assert found.keys() == halves.keys()
    for name, array in halves.items():
        if name.startswith("fc"):
            assert len(found[name]) == len(CLASSES)
        else:
            np.testing.assert_array_equal(found[name], array.astype(np.float32), err_msg=name)
    # The head of the run, on the features of the network.
    pixels = pixels_of(photos, run.scores["names"])
    logits = small_resnet.features(found, pixels) @ found["fc.weight"].T + found["fc.bias"]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run.scores["scores"], expected, rtol=1e-3, atol=1e-5)


def test_a_run_starts_from_the_classifier_of_another(photos, frozen, tmp_path):
    earlier, _ = frozen
    changes = {
        "model.name": NETWORK,
        "model.start_from": earlier.workdir,
        "model.freeze": True,
        # Rounded away.
        "optimizer.learning_rate": 1e-30,
        "num_epochs": 1,
    }
    found = own_data.train({"name": "images", "path": photos}, tmp_path / "run", **changes)
    np.testing.assert_array_equal(found.scores["scores"], earlier.scores["scores"])


# A head on features, and the network below it.


@pytest.fixture(scope="module")
def head(folder):
    where = {"name": "features", "path": folder / "features.npz"}
    return own_data.train(where, folder / "head", **{"optimizer.learning_rate": 0.5})


def test_a_head_on_the_features_is_trained_and_told_of_its_test(head, folder):
    features = arrays_of(folder / "features.npz")
    of_test = features["split"] == "test"
    assert head.scores["names"].tolist() == features["names"][of_test].tolist()
    assert head.scores["labels"].tolist() == features["labels"][of_test].tolist()
    right = (head.scores["scores"].argmax(axis=1) == head.scores["labels"]).mean()
    assert head.results["test"]["top_1_accuracy"] == pytest.approx(right)
    assert right > 0.5


def test_network_and_head_say_of_images_what_the_head_says_of_their_features(
    photos, head, folder, tmp_path
):
    new = tmp_path / "new"
    new.mkdir()
    rng = np.random.default_rng(1)
    for number in range(12):
        pixels = rng.integers(0, 256, (5, 6, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((40 + number, 33)).save(new / f"{number:02}.png")
    embed(folder / "weights.pth", new, tmp_path / "new.npz")
    asked = {"workdir": head.workdir, "coverage": 0.9}
    commands.ok(commands.line("predict", images=new, out=tmp_path / "images.jsonl", **asked))
    commands.ok(
        commands.line(
            "predict", features=tmp_path / "new.npz", out=tmp_path / "rows.jsonl", **asked
        )
    )
    of_images, of_rows = lines_of(tmp_path / "images.jsonl"), lines_of(tmp_path / "rows.jsonl")
    assert len(of_images) == 12
    for image, row in zip(of_images, of_rows, strict=True):
        assert image["path"].endswith(row["name"])
        assert image["calibrated_on"] == row["calibrated_on"]
        first, second = (
            {one["class"]: one["probability"] for one in line["set"]} for line in (image, row)
        )
        assert first.keys() == second.keys()
        np.testing.assert_allclose([*first.values()], [*second.values()], **CLOSE)
    # The same for the photographs with labels, as they are evaluated.
    out = tmp_path / "scores.npz"
    commands.ok(commands.line("evaluate", workdir=head.workdir, images=photos, out=out))
    found = arrays_of(out)
    chosen = [found["names"].tolist().index(name) for name in head.scores["names"]]
    np.testing.assert_allclose(found["scores"][chosen], head.scores["scores"], **CLOSE)


def test_other_weights_do_not_take_the_place_of_those_of_the_features(
    weights, head, photos, tmp_path
):
    other = {name: 2 * array for name, array in weights.items()}
    (tmp_path / "other.safetensors").write_bytes(safetensors.numpy.save(other))
    ended = commands.run(
        commands.line(
            "predict",
            workdir=head.workdir,
            weights=tmp_path / "other.safetensors",
            images=photos / "ash",
            coverage=0.75,
        )
    )
    assert ended.code == 2
    assert "other.safetensors" in ended.err


# What does not fit is refused, and code in a file never runs.


def refused(line, name):
    ended = commands.run(line)
    assert ended.code == 2, ended
    assert name in ended.err


CHANGES = {
    "a missing array": lambda arrays: {
        name: array for name, array in arrays.items() if name != "layer2.0.bn2.bias"
    },
    "an array too many": lambda arrays: arrays | {"layer3.0.conv1.weight": arrays["conv1.weight"]},
    "another shape": lambda arrays: arrays | {"bn1.bias": arrays["layer2.0.bn1.bias"]},
    "integers": lambda arrays: arrays | {"bn1.bias": np.arange(4)},
    "a swapped axis": lambda arrays: (
        arrays
        | {"layer2.0.conv1.weight": np.swapaxes(arrays["layer2.0.conv1.weight"], 0, 1).copy()}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_do_not_fit_are_refused(weights, photos, tmp_path, change):
    (tmp_path / "a.pth").write_bytes(saved(CHANGES[change](weights)))
    changes = {"model.name": NETWORK, "model.pretrained": tmp_path / "a.pth"}
    line = own_data.line({"name": "images", "path": photos}, tmp_path / "run", **changes)
    refused(line, "a.pth")
    assert not (tmp_path / "run").exists()


def of_numpy(value):
    file = io.BytesIO()
    np.save(file, np.array([value], object), allow_pickle=True)
    return file.getvalue()


def of_scores(value):
    file = io.BytesIO()
    np.savez(file, logits=np.array([value], object), labels=np.arange(1))
    return file.getvalue()


HIDDEN = {
    "zip.pth": lambda evil: torch_files.zip_file({"fc.weight": evil}),
    "legacy.pth": lambda evil: torch_files.legacy_file({"fc.weight": evil}),
    "pickle.bin": lambda evil: pickle.dumps(evil, protocol=2),
    "features.npy": of_numpy,
    "scores.npz": of_scores,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_code_in_a_file_never_runs(photos, weights, tmp_path, name):
    marker, path = tmp_path / "ran", tmp_path / "given" / name
    path.parent.mkdir()
    path.write_bytes(HIDDEN[name](torch_files.Makes(marker)))
    if name == "features.npy":
        np.save(path.parent / "labels.npy", np.arange(1))
        refused(own_data.line({"name": "features", "path": path.parent}, tmp_path / "run"), "given")
    elif name == "scores.npz":
        refused(commands.line("evaluate", scores=path, out=tmp_path / "report.json"), name)
    else:
        flags = {"model": NETWORK, "images": photos, "out": tmp_path / "a.npz"}
        refused(commands.line("embed", weights=path, **flags), name)
    assert not marker.exists()
    # Otherwise nothing was shown.
    pickle.loads(pickle.dumps(torch_files.Makes(marker)))
    assert marker.exists()
