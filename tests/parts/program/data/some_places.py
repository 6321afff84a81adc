"""Places instead of GeoNames': in a few countries, each with an ending of its own."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

_ENDINGS = {"C1": "ville", "C2": "stad", "C3": "ovo", "C4": "ton", "C5": "burg", "C6": "ias"}
COUNTRIES = {code: {"name": f"Land of {ending}"} for code, ending in _ENDINGS.items()} | {
    "C7": {"name": "Too small"}
}
_SYLLABLES = tuple(a + b for a, b in itertools.product("bdfgklmnprst", "aeiou"))


def places(number: int) -> Iterator[dict[str, Any]]:
    """Places, most of them in the first country; a few names occur in all."""
    rng = np.random.default_rng(0)
    codes = list(_ENDINGS)
    for index in range(number):
        code = codes[int(rng.choice(len(codes), p=(0.35, 0.2, 0.15, 0.1, 0.1, 0.1)))]
        stem = "".join(rng.choice(_SYLLABLES, 3))
        yield _place(f"{stem}{_ENDINGS[code]}", code, f"R{index % 2}", index)
    for code, name in itertools.product(codes, ("Victoria", "San José")):
        yield _place(name, code, "R0", 10**6)
    yield _place("Tiny", "C7", "00", 1)


def _place(name: str, country: str, admin: str, population: int) -> dict[str, Any]:
    return {
        "name": name.capitalize(),
        "countrycode": country,
        "admin1code": admin,
        "population": population,
    }
