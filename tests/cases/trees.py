"""Taxonomies of a number of classes, or of nodes."""

from topk_jax.taxonomy import Taxonomy


def genera(num_classes: int) -> Taxonomy:
    """Genera of up to three species."""
    return Taxonomy.from_paths(
        [(f"genus {label // 3}", f"species {label}") for label in range(num_classes)]
    )


def of_nodes(num_nodes: int) -> Taxonomy:
    """A tree of this number of nodes: classes in two genera, and the root."""
    return Taxonomy.from_paths(
        [(f"genus {label % 2}", f"species {label}") for label in range(num_nodes - 3)]
    )


def families(num_classes: int) -> Taxonomy:
    """Genera of two species in families of two genera; the last class is its own family."""
    paths = [
        (f"family {label // 4}", f"genus {label // 2}", f"species {label}")
        for label in range(num_classes - 1)
    ]
    return Taxonomy.from_paths([*paths, (f"species {num_classes - 1}",)])


def weights(num_classes: int) -> list[float]:
    """A weight for each depth of `families`."""
    del num_classes
    return [0.25, 0.0, 1.5]
