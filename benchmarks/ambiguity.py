r"""Two kinds of doubt: what an example leaves open, and what a classifier has not learned yet.

    for seed in 0 1 2; do
        train() {
            python -m train.main --config=configs/place_names.py --config.dataset.labels=votes \
                --config.dataset.fewest_names=200 --config.seed=$seed --config.num_epochs=$1 \
                "${@:3}" --workdir=runs/doubt/$2_$seed
        }
        train 48 10 --config.dataset.train_size=10000
        train 12 40 --config.dataset.train_size=40000
        train 3 all
    done
    python -m benchmarks.ambiguity runs/doubt/* --figure=docs/figures/ambiguity.png \
        --output=benchmarks/results/ambiguity-cpu.json

The truth of a name is the share of each country in the places of that name. The names of the test
that several countries have are measured. They are not in the training set. The members of an
ensemble are the runs with the same number of names. The entropy of their mean is a sum of two
parts. The mean of their entropies is the doubt that the members share. Their mutual information is
what they disagree about.

The figure shows handwritten digits of the test. The command trains its ensembles of small networks,
on few and on all digits. Without runs, the command draws only the figure:

    python -m benchmarks.ambiguity --figure=docs/figures/ambiguity.png
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from benchmarks import command, markdown
from topk_jax import losses
from train.prediction import trained

_KS = (1, 5)
# For the digits: the members, the images of the small training set, and the width of a network.
_MEMBERS, _FEW, _WIDTH, _STEPS = 10, 50, 64, 400
# The figure, in inches: a phone shows its text in some ten pixels. A wider one has smaller text.
_SHOWN, _WIDTH_OF_FIGURE, _HEIGHT_OF_FIGURE, _TEXT = 3, 4.0, 3.35, 8
# The least probability of a class that the figure names below a digit.
_LEAST = 0.1


def main() -> None:
    """Measures the runs and draws the digits."""
    made = command.parser(__doc__, repetitions=None)
    made.add_argument(
        "workdirs", type=Path, nargs="*", help="runs with config.dataset.labels=votes"
    )
    made.add_argument("--figure", type=command.output_file, help="a PNG file for the digits")
    given = made.parse_args()
    if given.figure is not None:
        given.figure.write_bytes(draw(*digits()))
    if given.workdirs:
        command.write(measure(given.workdirs), given.output)


def measure(workdirs: Sequence[Path]) -> dict[str, Any]:
    """The numbers of each ensemble, and of the best answers that can be given."""
    by_names: dict[int, list[np.ndarray]] = {}
    truth = np.zeros(0)
    for workdir in workdirs:
        classifier = trained.load(workdir)
        scores, truth = _scores_and_truth(classifier, workdir)
        by_names.setdefault(len(classifier.load_dataset().train), []).append(scores)
    best = {f"top_{k}": best_share(truth, truth, k) for k in _KS}
    return {
        "names": len(truth),
        "members": sorted({len(one) for one in by_names.values()}),
        "best": best | {"entropy": float(entropy(truth).mean())},
        "trained_on": [
            {"names": number, **of_ensemble(np.stack(by_names[number]), truth)}
            for number in sorted(by_names)
        ],
    }


def of_ensemble(members: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """What an ensemble finds: accuracies of its mean, and the parts of the entropy in nats.

    Args:
        members: the probabilities of each member, [m, n, L].
        truth: the shares of the classes, [n, L].
    """
    agreed, disagreement = parts_of_entropy(members)
    found = {f"top_{k}": best_share(members.mean(axis=0), truth, k) for k in _KS}
    return found | {"agreed": float(agreed.mean()), "disagreement": float(disagreement.mean())}


def parts_of_entropy(members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean entropy of the members, [n], and their mutual information, [n], in nats."""
    agreed = entropy(members).mean(axis=0)
    return agreed, np.maximum(entropy(members.mean(axis=0)) - agreed, 0)


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """The entropy of probabilities [..., L], in nats."""
    exact = probabilities.astype(np.float64)
    found: np.ndarray = -(exact * np.log(np.where(exact > 0, exact, 1))).sum(axis=-1)
    return found


def best_share(scores: np.ndarray, truth: np.ndarray, k: int) -> float:
    """The mean share of the truth that is in the k classes of the largest scores."""
    chosen = np.argpartition(-scores, k - 1, axis=-1)[:, :k]
    return float(np.take_along_axis(truth, chosen, axis=-1).sum(axis=-1).mean())


def tables(results: Mapping[str, Any]) -> str:
    """The table, in Markdown."""
    best = results["best"]
    rows = [
        [
            f"an ensemble, {one['names']:,} names",
            *(f"{one[f'top_{k}']:.1%}" for k in _KS),
            f"{one['agreed']:.2f}",
            f"{one['disagreement']:.2f}",
        ]
        for one in results["trained_on"]
    ]
    known = [*(f"{best[f'top_{k}']:.1%}" for k in _KS), f"{best['entropy']:.2f}", "0"]
    head = ["answers by", *(f"top-{k}" for k in _KS), "doubt in each member", "disagreement"]
    return markdown.table(head, [*rows, ["the truth", *known]])


def _scores_and_truth(classifier: Any, workdir: Path) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of the test names that several countries have, and their shares, [n, L]."""
    found = classifier.predict("test")
    if found.truths is None:
        raise SystemExit(f"{workdir} must be a run with config.dataset.labels=votes")
    truth = np.zeros(found.scores.shape, np.float32)
    places = np.arange(len(truth))[:, None]
    np.add.at(truth, (places, found.truths.classes), found.truths.shares)
    several = (truth > 0).sum(axis=1) > 1
    return np.asarray(found.scores[np.flatnonzero(several)]), truth[several]


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
    from train.workdir import figure_style  # noqa: PLC0415

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
