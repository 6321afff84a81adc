r"""What sets promise of the complete truth, on names of places that several countries have.

    python -m train.main --config=configs/place_names.py --config.dataset.labels=votes \
        --config.num_epochs=3 --workdir=runs/shares
    python -m benchmarks.votes runs/shares --output=benchmarks/results/votes-cpu.json

The truth of a name is the share of each country in the places of that name. Each repetition
calibrates on one half of the names of the validation and test splits, and measures the other half:
the expected share of the truth that is in the sets.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import command, markdown
from topk_jax import metrics, sets
from train.prediction import trained

_ERROR = 0.1
_IN_WORDS = {
    "most_common": "the most common country of each name",
    "one_draw": "one country of each name, drawn from its shares",
    "five_draws": "five countries of each name, drawn from its shares",
    "shares": "all countries, by their shares",
}


def main() -> None:
    """Measures a run."""
    made = command.parser(__doc__, repetitions=200, what="random halves", least=2)
    made.add_argument("workdir", type=Path, help="a finished run with config.dataset.labels=votes")
    given = made.parse_args()
    scores, votes = _scores_and_votes(given.workdir)
    halves = [_measure(scores, votes, seed) for seed in range(given.repetitions)]
    of_kinds = {
        kind: {
            "share": float(np.mean([half[kind][0] for half in halves])),
            "deviation": float(np.std([half[kind][0] for half in halves], ddof=1)),
            "size": float(np.mean([half[kind][1] for half in halves])),
        }
        for kind in _IN_WORDS
    }
    written = {"asked": 1 - _ERROR, "names": len(scores), "calibrated_on": of_kinds}
    command.write({"repetitions": given.repetitions, **written}, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """The table, in Markdown."""
    return markdown.table(
        ["calibrated on", "share of the truth in the sets", "mean size"],
        [
            [
                _IN_WORDS[kind],
                f"{found['share']:.4f} ± {found['deviation']:.4f}",
                f"{found['size']:.2f}",
            ]
            for kind, found in results["calibrated_on"].items()
        ],
    )


def _scores_and_votes(workdir: Path) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of the names that have several countries, and their shares, [n, L]."""
    classifier = trained.load(workdir)
    scores, votes = [], []
    for split in ("validation", "test"):
        found = classifier.predict(split)
        truths = found.truths
        if truths is None:
            raise SystemExit(f"{workdir} must be a run with config.dataset.labels=votes")
        rows = np.zeros(found.scores.shape, np.float32)
        np.add.at(rows, (np.arange(len(rows))[:, None], truths.classes), truths.shares)
        several = (rows > 0).sum(axis=1) > 1
        scores.append(np.asarray(found.scores[np.flatnonzero(several)]))
        votes.append(rows[several])
    return np.concatenate(scores), np.concatenate(votes)


def _measure(scores: np.ndarray, votes: np.ndarray, seed: int) -> dict[str, tuple[float, float]]:
    """The share of the truth in sets and their mean size, by what they are calibrated on."""
    order = np.random.default_rng(seed).permutation(len(scores))
    known, new = np.split(order, [len(order) // 2])
    of_labels, shares = 1 - scores[known], votes[known]
    key = jax.random.key(seed)
    quantiles = {
        "most_common": sets.conformal_quantile(of_labels, shares.argmax(axis=1), error=_ERROR),
        "one_draw": sets.vote_quantile(of_labels, shares, error=_ERROR, num_samples=1, key=key),
        "five_draws": sets.vote_quantile(of_labels, shares, error=_ERROR, num_samples=5, key=key),
        "shares": sets.vote_quantile(of_labels, shares, error=_ERROR),
    }
    found = {}
    for kind, quantile in quantiles.items():
        chosen = sets.score_set(1 - scores[new], quantile)
        hits, sizes = metrics.expected_hits(chosen, votes[new]), metrics.set_sizes(chosen)
        found[kind] = float(hits.mean()), float(sizes.mean())
    return found


if __name__ == "__main__":
    main()
