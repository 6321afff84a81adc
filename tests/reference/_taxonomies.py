"""Nodes of a taxonomy: scores, losses and heights, by walks from each class to the root.

Of a taxonomy only `parents` is used, where the root is its own parent and classes come first.
"""

import itertools

import numpy as np

from tests.reference._rows import each_example, float64, log_softmax, one_hot


def way(taxonomy, leaf):
    """The nodes from the root down to a class."""
    nodes = [leaf]
    while taxonomy.parents[nodes[-1]] != nodes[-1]:
        nodes.append(taxonomy.parents[nodes[-1]])
    return nodes[::-1]


def members(taxonomy, node):
    """Which classes are below a node, [L]."""
    size = len(taxonomy.parents) - len(set(taxonomy.parents))
    return np.array([node in way(taxonomy, leaf) for leaf in range(size)])


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


def node_scores(probabilities, taxonomy):
    """The probability of the largest node with the likeliest class, but not the class of the score
    (Mortier et al. 2025); 0 for the likeliest class.
    """
    probabilities = float64(probabilities)
    scores = np.zeros(probabilities.shape)
    for position in np.ndindex(probabilities.shape):
        row, label = probabilities[position[:-1]], position[-1]
        for node in way(taxonomy, int(row.argmax()))[::-1]:
            below = members(taxonomy, node)
            if below[label]:
                break
            scores[position] = row[below].sum()
    return scores


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
    return np.logaddexp.reduce(scores)


def soft_labels(labels, *, taxonomy, beta):
    """`e^(-beta d) / sum` with the height of the lowest common node over that of the root."""
    size = len(taxonomy.parents) - len(set(taxonomy.parents))
    root = height(taxonomy, len(taxonomy.parents) - 1)
    rows = []
    for label in np.asarray(labels).reshape(-1).tolist():
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
