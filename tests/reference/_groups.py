"""Groups of examples that have one answer, one group after the other."""

import numpy as np
from scipy import optimize, special, stats

from tests.reference._conformal import calibration
from tests.reference._rows import exact, float64, valid

__all__ = ["cluster_interval", "combine", "group_labels", "group_weights", "hierarchical_quantile"]


def combine(
    log_probabilities, groups, *, num_groups, by="log_probabilities", weights=None, where=None
):
    """The logarithmic pool, the mean of the probabilities, or the largest of each class."""
    logs, groups = float64(log_probabilities), np.asarray(groups)
    result = np.full((num_groups, logs.shape[-1]), np.nan)
    for group in range(num_groups):
        rows = logs[(groups == group) & (True if where is None else where)]
        if not len(rows) or not (rows < np.inf).all():
            continue
        pooled = {
            "log_probabilities": lambda rows: rows.mean(axis=0),
            "probabilities": lambda rows: special.logsumexp(rows, axis=0) - np.log(len(rows)),
            "maximum": lambda rows: rows.max(axis=0),
        }[by](rows)
        if weights is not None:
            weight = weights[0] + weights[1] * np.log2(len(rows))
            pooled = np.array([weight * one if one > -np.inf else one for one in pooled])
        if pooled.max() > -np.inf:
            result[group] = pooled - special.logsumexp(pooled)
    return result


def group_labels(labels, groups, *, num_groups, where=None):
    """The label that all examples of a group have; -1 if there is none."""
    found = []
    for group in range(num_groups):
        of_group = {
            int(label)
            for index, label in np.ndenumerate(labels)
            if np.asarray(groups)[index] == group and (where is None or where[index])
        }
        found.append(max(*of_group, -1) if len(of_group) == 1 else -1)
    return np.array(found)


def group_weights(log_probabilities, sizes, labels):
    """The minimum by SciPy's search within bounds, from several starts."""
    logs, doublings = float64(log_probabilities), np.log2(float64(sizes))
    if not all(valid(row, label) for row, label in zip(logs, labels, strict=True)):
        return np.full(2, np.nan)

    def loss(weights):
        scaled = (weights[0] + weights[1] * doublings)[:, None] * logs
        return -special.log_softmax(scaled, axis=-1)[np.arange(len(logs)), labels].mean()

    found = [
        optimize.minimize(loss, start, bounds=[(0, None)] * 2, tol=1e-13)
        for start in ([1, 0], [0.1, 0.1], [3, 1])
    ]
    return min(found, key=lambda one: one.fun).x


def hierarchical_quantile(scores, labels, groups, *, error, num_groups):
    """The smallest score with enough of the groups' shares at or below it, in exact fractions."""
    groups = np.asarray(groups)
    scores, _, _, valid = calibration(scores, labels, None)
    if not valid:
        return np.nan
    present = [group for group in range(num_groups) if (groups == group).any()]
    required = (len(present) + 1) * (1 - exact(error))
    for score in sorted(scores[np.isin(groups, present)]):
        shares = (
            exact(int(((groups == group) & (scores <= score)).sum())) / int((groups == group).sum())
            for group in present
        )
        if sum(shares) >= required:
            return score
    return np.inf


def cluster_interval(hits, groups, *, num_groups, level=0.95, counted="examples", where=None):
    """Wilson's interval of the effective number of examples, with SciPy's quantile of Student."""
    included = np.ones(np.shape(hits), bool) if where is None else np.asarray(where)
    hits, groups = np.asarray(hits)[included], np.asarray(groups)[included]
    sums = [
        (float64(hits[groups == group]).sum(), (groups == group).sum())
        for group in range(num_groups)
        if (groups == group).any()
    ]
    if len(sums) < 2:
        return (0.0, 1.0) if sums else (np.nan, np.nan)
    number = sum(size for _, size in sums)
    if counted == "groups":
        sums = [(found / size, 1) for found, size in sums]
    total = sum(size for _, size in sums)
    share = sum(found for found, _ in sums) / total
    many = len(sums)
    squares = sum((found - share * size) ** 2 for found, size in sums)
    variance = many / (many - 1) * squares / total**2
    z = stats.norm.ppf((1 + level) / 2)
    scale = (z / stats.t.ppf((1 + level) / 2, many - 1)) ** 2
    # The rounded residuals of equal shares need not be 0; equal quotients are rounded alike.
    are_alike = len({found / size for found, size in sums}) == 1
    effective = min(number, scale * (many if are_alike else share * (1 - share) / variance))
    ratio = z**2 / effective
    half = np.sqrt(ratio * share * (1 - share) + ratio**2 / 4)
    return tuple((share + ratio / 2 + sign * half) / (1 + ratio) for sign in (-1, 1))
