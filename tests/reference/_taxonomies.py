"""Nodes of a taxonomy: sets, metrics and losses, by walks from each class to the root.

Of a taxonomy only `parents` is used, where the root is its own parent and classes come first.
"""

import itertools

import numpy as np

from tests.reference._draws import uniform
from tests.reference._metrics import label_ranks
from tests.reference._rows import each_example, float64, log_softmax, one_hot


def num_classes(taxonomy):
    """The nodes that are above no other."""
    return len(taxonomy.parents) - len(set(taxonomy.parents))


def way(taxonomy, leaf):
    """The nodes from the root down to a class."""
    nodes = [leaf]
    while taxonomy.parents[nodes[-1]] != nodes[-1]:
        nodes.append(taxonomy.parents[nodes[-1]])
    return nodes[::-1]


def members(taxonomy, node):
    """Which classes are below a node, [L]."""
    return np.array([node in way(taxonomy, leaf) for leaf in range(num_classes(taxonomy))])


def height(taxonomy, node):
    """How many nodes are below a node on the longest way to a class."""
    ways = [way(taxonomy, leaf) for leaf in np.flatnonzero(members(taxonomy, node))]
    return max(len(one) - 1 - one.index(node) for one in ways)


def common_height(taxonomy, *leaves):
    """The height of the lowest node that has all of some classes."""
    return min(
        height(taxonomy, node)
        for node in way(taxonomy, leaves[0])
        if members(taxonomy, node)[list(leaves)].all()
    )


def node_at(taxonomy, leaf, depth):
    """The node of a class at a depth; the class itself if it hangs higher."""
    nodes = way(taxonomy, leaf)
    return nodes[min(depth, len(nodes) - 1)]


class Taxonomy:
    """The nodes of paths: the classes, then the others as they come, then the root."""

    def __init__(self, names, parents):
        self.names, self.parents = names, parents
        self.num_nodes, self.num_classes = len(parents), num_classes(self)
        ways = [way(self, leaf) for leaf in range(self.num_classes)]
        self.depth = max(map(len, ways)) - 1
        self.ancestors = np.array([one + [one[-1]] * (self.depth + 1 - len(one)) for one in ways])
        self.heights = np.array([height(self, node) for node in range(self.num_nodes)])
        self.sizes = np.array([members(self, node).sum() for node in range(self.num_nodes)])

    @classmethod
    def from_paths(cls, paths):
        paths = [tuple(path) for path in paths]
        above = dict.fromkeys(path[:end] for path in paths for end in range(1, len(path)))
        nodes = [*paths, *above, ()]
        return cls(
            (*(path[-1] for path in nodes[:-1]), "all"),
            (*(nodes.index(path[:-1]) for path in nodes),),
        )


def node_probabilities(probabilities, taxonomy):
    """The sum over the classes of each node."""
    nodes = np.stack([members(taxonomy, node) for node in range(len(taxonomy.parents))])
    values = float64(probabilities)
    return np.stack([values[:, below].sum(axis=-1) for below in nodes], axis=-1)


def node_scores(probabilities, taxonomy, *, key=None):
    """The probability of the largest node with the likeliest class, but not the class of the score
    (Mortier et al. 2025); 0 for the likeliest class. With a key, a part of the next node is added.
    """
    probabilities = float64(probabilities)
    part = np.zeros(len(probabilities)) if key is None else uniform(key, (len(probabilities),))
    scores = np.full(probabilities.shape, np.nan)
    for example, row in enumerate(probabilities):
        if np.isnan(row).any():
            continue
        for label in range(len(row)):
            lower = 0.0
            for node in way(taxonomy, int(row.argmax()))[::-1]:
                below = members(taxonomy, node)
                if below[label]:
                    scores[example, label] = lower + part[example] * (row[below].sum() - lower)
                    break
                lower = row[below].sum()
    return scores


def node_set(nodes, taxonomy):
    """The classes below any of the nodes."""
    below = np.stack([members(taxonomy, node) for node in range(len(taxonomy.parents))])
    return (np.asarray(nodes)[:, :, None] & below).any(axis=1)


def fewest_names(members, taxonomy, *, names):
    """Of all choices of nodes that have a set, one of the fewest classes, then of the fewest."""
    number = len(taxonomy.parents)
    choices = np.array(
        [
            [node in chosen for node in range(number)]
            for size in range(names + 1)
            for chosen in itertools.combinations(range(number), size)
        ]
    )
    unions = node_set(choices, taxonomy)
    costs = unions.sum(axis=1) + choices.sum(axis=1) / (names + 1)
    return np.stack(
        [
            choices[np.where((unions | ~row).all(axis=1), costs, np.inf).argmin()]
            for row in np.asarray(members)
        ]
    )


def _groups(taxonomy, depth):
    """The classes of each node at a depth, `[G, L]`, and the number of the node of each class."""
    nodes = [node_at(taxonomy, leaf, depth) for leaf in range(num_classes(taxonomy))]
    order = sorted(set(nodes))
    below = np.stack([members(taxonomy, node) for node in order])
    return below, np.array([order.index(node) for node in nodes])


def _groups_of(labels, groups):
    """The group of each label; -1 out of range."""
    inside = range(len(groups))
    return np.array([groups[label] if label in inside else -1 for label in labels])


def ancestor_ranks(probabilities, labels, taxonomy, *, depth):
    """The `label_ranks` of the sums of the nodes at a depth."""
    below, groups = _groups(taxonomy, depth)
    sums = np.stack([np.where(one, float64(probabilities), 0).sum(-1) for one in below], axis=-1)
    sums[np.isnan(probabilities).any(axis=-1)] = np.nan
    return label_ranks(sums, _groups_of(labels, groups))


def ancestor_hits(chosen, labels, taxonomy, *, depth):
    """Whether a set has a class of the node of the label."""
    below, groups = _groups(taxonomy, depth)
    own = _groups_of(labels, groups)
    return np.array(
        [node >= 0 and (row & below[node]).any() for row, node in zip(chosen, own, strict=True)]
    )


def node_counts(chosen, taxonomy, *, depth):
    """Of how many nodes at a depth a set has classes."""
    below, _ = _groups(taxonomy, depth)
    return np.array([(row & below).any(axis=1).sum() for row in np.asarray(chosen)])


def set_heights(chosen, taxonomy):
    """The height of the lowest node that has the set; -1 if it is empty."""
    rows = [np.flatnonzero(row) for row in np.asarray(chosen)]
    return np.array([common_height(taxonomy, *row) if len(row) else -1 for row in rows])


def name_counts(chosen, taxonomy):
    """How many nodes are inside a set while the nodes above them are not."""
    nodes = range(len(taxonomy.parents))
    inside = [[(row | ~members(taxonomy, v)).all() for v in nodes] for row in np.asarray(chosen)]
    root = nodes[-1]
    return np.array(
        [
            sum(row[v] and (v == root or not row[taxonomy.parents[v]]) for v in nodes)
            for row in inside
        ]
    )


def mistake_heights(predictions, labels, taxonomy):
    """The height of the lowest node that has both; -1 if one is out of range."""
    inside = {*range(num_classes(taxonomy))}
    pairs = zip(np.asarray(predictions), np.asarray(labels), strict=True)
    return np.array([common_height(taxonomy, *pair) if {*pair} <= inside else -1 for pair in pairs])


def sum_over_depths(logits, labels, taxonomy, *, loss, weights, where=None):
    """`sum_d w_d loss(log sum exp of the classes of each node, its number)`."""
    logits, total = float64(logits), 0.0
    for depth, weight in enumerate(weights, start=1):
        below, groups = _groups(taxonomy, depth)
        scores = np.stack([_log_sum(np.where(one, logits, -np.inf)) for one in below], axis=-1)
        scores[np.isnan(logits).any(axis=-1)] = np.nan
        if weight:
            total = total + weight * loss(scores, _groups_of(labels, groups))
    return total if where is None else np.where(where, total, 0.0)


@each_example
def hierarchical_cross_entropy(logits, label, *, taxonomy, alpha):
    """`-sum e^(-alpha h) log P(v) / P(above)` (Bertinetto et al. 2020, 3)."""
    return -sum(
        # The classes of the node as one.
        weight * log_softmax(np.append(logits[above & ~below], _log_sum(logits[below])))[-1]
        for weight, above, below in _nodes(label, taxonomy, alpha)
    )


@each_example
def hierarchical_cross_entropy_gradient(logits, label, *, taxonomy, alpha):
    """Of each term: the softmax among the classes above less that among those of the node."""
    gradient = np.zeros(len(logits))
    for weight, above, below in _nodes(label, taxonomy, alpha):
        for classes, sign in ((above, 1), (below, -1)):
            gradient[classes] += sign * weight * np.exp(log_softmax(logits[classes]))
    return gradient


def _nodes(label, taxonomy, alpha):
    """Of each node above the label and the next one below: a weight and their classes."""
    nodes = way(taxonomy, label)
    for above, node in itertools.pairwise(nodes):
        weight = np.exp(-alpha * height(taxonomy, node))
        yield weight, members(taxonomy, above), members(taxonomy, node)


def _log_sum(scores):
    return np.logaddexp.reduce(scores, axis=-1)


def soft_labels(labels, *, taxonomy, beta):
    """`e^(-beta d) / sum` with the height of the lowest common node over that of the root."""
    size = num_classes(taxonomy)
    root = height(taxonomy, len(taxonomy.parents) - 1)
    rows = []
    for label in np.asarray(labels).reshape(-1).tolist():
        if label not in range(size):
            rows.append(np.full(size, np.nan))
            continue
        distances = [common_height(taxonomy, label, other) / root for other in range(size)]
        weights = np.exp(-beta * np.array(distances))
        rows.append(weights / weights.sum())
    return np.reshape(rows, (*np.shape(labels), size))


@each_example
def soft_label_cross_entropy(logits, label, *, taxonomy, beta):
    """`-sum t log softmax(s)`; a class of -inf gives its part to the label."""
    target = _possible(logits, label, taxonomy, beta)
    return -(target[target > 0] * log_softmax(logits)[target > 0]).sum()


@each_example
def soft_label_cross_entropy_gradient(logits, label, *, taxonomy, beta):
    """`softmax(s) - t`."""
    return np.exp(log_softmax(logits)) - _possible(logits, label, taxonomy, beta)


def _possible(logits, label, taxonomy, beta):
    target = soft_labels(label, taxonomy=taxonomy, beta=beta)
    masked = np.isneginf(logits)
    return np.where(masked, 0, target) + target[masked].sum() * one_hot(label, len(logits))
