"""Two kinds of doubt: what an image leaves open, and what a classifier has not learned yet.

    python -m benchmarks.ambiguity --figure=docs/figures/ambiguity.png

The figure shows handwritten digits of the test. The command trains its ensembles of small networks,
on few and on all digits. The entropy of the mean of an ensemble is a sum of two parts. The mean of
the entropies of the members is the doubt that they share. Their mutual information is what they
disagree about.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax

from benchmarks import command
from topk_jax import losses

# The members, the images of the small training set, and the width of a network.
_MEMBERS, _FEW, _WIDTH, _STEPS = 10, 50, 64, 400
# The figure, in inches: a phone shows its text in some ten pixels. A wider one has smaller text.
_SHOWN, _WIDTH_OF_FIGURE, _HEIGHT_OF_FIGURE, _TEXT = 3, 4.0, 3.35, 8
# The least probability of a class that the figure names below a digit.
_LEAST = 0.1


def main() -> None:
    """Draws the digits."""
    made = command.parser(__doc__, repetitions=None)
    made.add_argument(
        "--figure", type=command.output_file, required=True, help="a PNG file for the digits"
    )
    made.parse_args().figure.write_bytes(draw(*digits()))


def parts_of_entropy(members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean entropy of the members, [n], and their mutual information, [n], in nats."""
    agreed = entropy(members).mean(axis=0)
    return agreed, np.maximum(entropy(members.mean(axis=0)) - agreed, 0)


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """The entropy of probabilities [..., L], in nats."""
    exact = probabilities.astype(np.float64)
    found: np.ndarray = -(exact * np.log(np.where(exact > 0, exact, 1))).sum(axis=-1)
    return found


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The test digits [n, 8, 8], and the members trained on few and on all digits, [m, n, 10]."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 (it takes long to import)

    found = load_digits()
    images, labels = found.images.astype(np.float32) / 16, found.target
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[:500], order[500:]
    few, every = (
        np.stack(
            [
                np.asarray(_probabilities(images[chosen], labels[chosen], images[test], seed))
                for seed in range(_MEMBERS)
            ]
        )
        for chosen in (train[:_FEW], train)
    )
    return images[test], few, every


@jax.jit
def _probabilities(
    images: jax.Array, labels: jax.Array, asked: jax.Array, seed: jax.Array
) -> jax.Array:
    """What a network with one hidden layer makes of images, after training on others."""
    first, second = jax.random.split(jax.random.key(seed))
    pixels = images.shape[1] * images.shape[2]
    params = {
        "first": jax.random.normal(first, (pixels, _WIDTH)) * (2 / pixels) ** 0.5,
        "second": jax.random.normal(second, (_WIDTH, 10)) * _WIDTH**-0.5,
    }

    def logits(params: Any, images: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(images.reshape(len(images), -1) @ params["first"])
        found: jax.Array = hidden @ params["second"]
        return found

    def loss(params: Any) -> jax.Array:
        return losses.cross_entropy(logits(params, images), labels).mean()

    optimizer = optax.adamw(0.01, weight_decay=1e-3)

    def step(state: Any, _: None) -> tuple[Any, None]:
        params, of_optimizer = state
        updates, of_optimizer = optimizer.update(jax.grad(loss)(params), of_optimizer, params)
        return (optax.apply_updates(params, updates), of_optimizer), None

    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=_STEPS)
    return jax.nn.softmax(logits(params, asked))


def draw(images: np.ndarray, few: np.ndarray, every: np.ndarray) -> bytes:
    """The digits about which the members are most in doubt, and disagree most, as a PNG file.

    The first row has digits that each member still doubts after all training images. The second row
    has digits about which the members disagree after few images.
    """
    from train.reports import figure_style  # noqa: PLC0415

    agreed, disagreement = parts_of_entropy(every)
    open_ones = np.argsort(disagreement - agreed)[:_SHOWN]
    unlearned = np.argsort(-parts_of_entropy(few)[1])[:_SHOWN]
    figure = figure_style.new_figure(_WIDTH_OF_FIGURE, _HEIGHT_OF_FIGURE)
    rows = figure.subplots(2, _SHOWN)
    for axes, place in zip(rows[0], open_ones, strict=True):
        _show(axes, images[place], {"all": every.mean(axis=0)[place]})
    for axes, place in zip(rows[1], unlearned, strict=True):
        of_both = {str(_FEW): few.mean(axis=0)[place], "all": every.mean(axis=0)[place]}
        _show(axes, images[place], of_both)
    rows[0, 0].set_ylabel("in doubt", fontsize=_TEXT)
    rows[1, 0].set_ylabel("not learned", fontsize=_TEXT)
    return figure_style.encode(figure, ".png")


def _show(axes: Any, image: np.ndarray, probabilities: Mapping[str, np.ndarray]) -> None:
    axes.imshow(image, cmap="gray", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    lines = (f"{what}: {_in_words(found)}" for what, found in probabilities.items())
    axes.set_xlabel("\n".join(lines), fontsize=_TEXT)


def _in_words(probabilities: np.ndarray) -> str:
    """The likely classes with their probabilities."""
    order = np.argsort(-probabilities)
    likely = [one for one in order.tolist() if probabilities[one] >= _LEAST][:2]
    return ", ".join(f"{one} {probabilities[one]:.0%}" for one in likely)


if __name__ == "__main__":
    main()
