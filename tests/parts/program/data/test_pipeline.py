"""Batches are functions of their number: any workers, any processes, any first step."""

import io
import threading

import numpy as np
import pytest
from PIL import Image

from train.data import images, photographs
from train.data.batches import epoch_order
from train.data.pipeline import Pipeline
from train.data.records import Records, Split
from train.foundation.errors import UserError

NUM_EXAMPLES = 21
BATCH_SIZE = 8
# Seconds; a worker that hangs has to fail the test, not hold up all of them.
TIME_LIMIT = 240
READER = photographs.READER


def encode(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def make_records(unreadable=()):
    """Photographs of noise, some of them cut off."""
    rng = np.random.default_rng(0)
    source = []
    for index in range(NUM_EXAMPLES):
        encoded = encode(rng.integers(0, 256, (230, 260, 3)).astype(np.uint8))
        encoded = encoded[:3000] if index in unreadable else encoded
        source.append({"image": encoded, "file_name": f"{index}.png".encode()})
    return Split(
        Records(source, np.arange(NUM_EXAMPLES), "train in a folder", READER),
        np.arange(NUM_EXAMPLES, dtype=np.int32),
    )


@pytest.fixture(scope="module")
def streamed():
    return make_records()


@pytest.fixture(scope="module")
def in_memory():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (NUM_EXAMPLES, 4, 4, 3)).astype(np.uint8)
    return Split(pixels, np.arange(NUM_EXAMPLES, dtype=np.int32))


@pytest.fixture(params=["streamed", "in_memory"])
def split(request):
    return request.getfixturevalue(request.param)


def assert_same(batches, others):
    for batch, other in zip(batches, others, strict=True):
        assert batch.keys() == other.keys()
        for name, array in batch.items():
            assert array.dtype == other[name].dtype
            np.testing.assert_array_equal(array, other[name])


def in_time(function):
    """What the function returns, or a failure if it takes too long."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(TIME_LIMIT)
    assert results, "no result in time, or an error in the thread"
    return results[0]


def training(split, first_step=0, last_step=5, **options):
    pipeline = Pipeline(BATCH_SIZE, seed=3, **options)
    return list(pipeline.training(split, first_step=first_step, last_step=last_step))


def test_a_run_can_be_taken_up_at_any_step(split):
    whole = training(split)
    assert len(whole) == 5
    for first_step in range(5):
        assert_same(training(split, first_step), whole[first_step:])


def test_an_epoch_is_its_order_cut_into_batches(split):
    labels = np.concatenate([batch["labels"] for batch in training(split, last_step=4)])
    for epoch in range(2):
        order = epoch_order(NUM_EXAMPLES, seed=3, epoch=epoch)
        # Two batches of eight; five of the 21 are left out.
        np.testing.assert_array_equal(labels[16 * epoch :][:16], order[:16])


def test_the_order_is_that_of_every_run():
    # Pinned: a run that resumes under another release continues with the same examples.
    assert epoch_order(10, seed=0, epoch=0).tolist() == [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
    assert epoch_order(10, seed=1, epoch=2).tolist() == [8, 5, 6, 0, 9, 1, 4, 3, 7, 2]


@pytest.mark.parametrize("process_count", [2, 4])
def test_the_shares_of_processes_make_up_the_batch(split, process_count):
    shares = [
        training(split, process_index=index, process_count=process_count)
        for index in range(process_count)
    ]
    for share in shares:
        assert all(len(batch["labels"]) == BATCH_SIZE // process_count for batch in share)
    joined = [
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for parts in zip(*shares, strict=True)
    ]
    assert_same(joined, training(split))


@pytest.mark.parametrize("process_count", [1, 2, 4])
def test_evaluation_covers_every_example_once_over_processes(split, process_count):
    shares = [
        list(
            Pipeline(
                BATCH_SIZE, seed=0, process_index=index, process_count=process_count
            ).evaluation(split)
        )
        for index in range(process_count)
    ]
    # As many batches for each, full ones: they wait for each other.
    assert {len(share) for share in shares} == {3}
    labels = [
        batch["labels"][batch["mask"]] for batches in zip(*shares, strict=True) for batch in batches
    ]
    np.testing.assert_array_equal(np.concatenate(labels), np.arange(NUM_EXAMPLES))


def test_streamed_images_are_crops_of_their_own_image(streamed):
    for batch in training(streamed):
        for pixels, label in zip(batch["images"], batch["labels"], strict=True):
            image = Image.open(io.BytesIO(streamed.images.source[label]["image"]))
            resized = np.asarray(image.resize((289, 256), Image.Resampling.BILINEAR)).astype(int)
            # The places of the crop's first pixel, to the step that a crop may be off; noise has
            # it where it is and hardly elsewhere.
            candidates = np.argwhere((abs(resized[:33, :66] - pixels[0, 0]) <= 1).all(axis=-1))
            assert any(
                (abs(resized[top : top + 224, left : left + 224] - pixels) <= 1).all()
                for top, left in candidates
            )


@pytest.mark.parametrize(("batch_size", "process_count"), [(10, 4), (1, 2)])
def test_a_batch_that_processes_cannot_share_is_refused(batch_size, process_count):
    # Rounded down, the shares of evaluation would leave examples out in silence.
    message = f"batch_size must be a multiple of the {process_count} processes; got {batch_size}$"
    with pytest.raises(UserError, match=message):
        Pipeline(batch_size, seed=0, process_count=process_count)


@pytest.fixture(scope="module")
def crops():
    """The positions of the crops of a hundred steps with two seeds, [200, 8, 2]."""
    rows, columns = np.mgrid[:256, :258]
    # A pixel encodes its place; nothing is resized.
    encoded = encode(np.stack([rows, columns % 256, columns // 256], axis=-1).astype(np.uint8))
    # Two steps an epoch, so that steps and epochs differ.
    records = Records([{"image": encoded}] * NUM_EXAMPLES, np.arange(NUM_EXAMPLES), "train", READER)
    places = Split(records, np.arange(NUM_EXAMPLES, dtype=np.int32))
    corners = [
        batch["images"][:, 0, 0].astype(int)
        for seed in (0, 1)
        for batch in Pipeline(BATCH_SIZE, seed).training(places, first_step=0, last_step=100)
    ]
    return np.stack([(c[:, 0], c[:, 1] + 256 * c[:, 2]) for c in corners]).swapaxes(1, 2)


def test_streamed_crops_change_with_seed_step_and_position(crops):
    # No two steps have the eight places of one another: chances of 33 times 35, eight times over.
    assert len({step.tobytes() for step in crops}) == 200
    # Each of the 28 pairs of positions agrees in 200 / 1155 steps on average, 5 in all.
    same = (crops[:, :, None] == crops[:, None]).all(axis=-1).sum() - 200 * BATCH_SIZE
    assert same / 2 < 20


def test_every_place_of_a_crop_is_as_likely(crops):
    for axis, places in ((0, 33), (1, 35)):
        counts = np.bincount(crops[..., axis].ravel(), minlength=places)
        assert len(counts) == places
        # Pearson's statistic: more than 5 deviations above its mean once in 100,000 times.
        statistic = ((counts - 1600 / places) ** 2 / (1600 / places)).sum()
        assert statistic < places - 1 + 5 * np.sqrt(2 * (places - 1))


def test_crops_are_those_of_every_run(crops):
    # Pinned, as the order is; and they are not drawn with the numbers that order the examples.
    assert crops[0, :3].tolist() == [[14, 13], [19, 10], [5, 6]]


def test_evaluation_fills_up_with_the_last_example(in_memory):
    *_, last = Pipeline(BATCH_SIZE, seed=0).evaluation(in_memory)
    assert last["labels"].tolist() == [16, 17, 18, 19, 20, 20, 20, 20]
    assert last["mask"].tolist() == [True] * 5 + [False] * 3


def test_evaluation_takes_the_middle(streamed):
    batch = next(Pipeline(4, seed=0).evaluation(streamed))
    image = images.decode(*streamed.images.encoded(2))
    np.testing.assert_array_equal(batch["images"][2], READER.pixels(image, "a"))


def test_unreadable_images_can_be_left_out(streamed):
    skipped = []
    bad = make_records(unreadable={5, 6, 20})
    found = training(bad, on_skipped=skipped.append)
    # The next one in the split stands in, the first after the last.
    stand_ins = {5: 7, 6: 7, 20: 0}
    for batch, expected in zip(found, training(streamed), strict=True):
        labels = [stand_ins.get(label, label) for label in expected["labels"].tolist()]
        assert batch["labels"].tolist() == labels
        same = batch["labels"] == expected["labels"]
        np.testing.assert_array_equal(batch["images"][same], expected["images"][same])
    assert {one.image for one in skipped} == {"5.png", "6.png", "20.png"}
    skipped.clear()
    pipeline = Pipeline(BATCH_SIZE, seed=0, on_skipped=skipped.append)
    batches = list(pipeline.evaluation(bad))
    assert [one.image for one in skipped] == ["5.png", "6.png", "20.png"]
    assert skipped[0].source == "train in a folder"
    assert skipped[0].message.startswith("cannot decode 5.png of train in a folder: ")
    labels = np.concatenate([batch["labels"][batch["mask"]] for batch in batches])
    assert sorted({*range(NUM_EXAMPLES)} - {*labels.tolist()}) == [5, 6, 20]
    assert len(labels) == NUM_EXAMPLES - 3


def test_a_split_without_a_readable_image_is_refused():
    with pytest.raises(UserError, match="no image of train in a folder can be read"):
        training(make_records(unreadable=range(NUM_EXAMPLES)), on_skipped=print)


def test_workers_make_the_same_batches_and_errors():
    bad = make_records(unreadable={5})
    skipped, by_workers = [], []
    expected = training(bad, first_step=1, on_skipped=skipped.append)
    found = in_time(
        lambda: training(bad, first_step=1, num_workers=2, on_skipped=by_workers.append)
    )
    assert_same(found, expected)
    assert skipped == by_workers != []

    def message():
        with pytest.raises(UserError) as caught:
            training(make_records(unreadable={5}), num_workers=2)
        return str(caught.value)

    assert in_time(message).startswith("cannot decode 5.png of train in a folder")
