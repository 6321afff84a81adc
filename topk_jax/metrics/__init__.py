"""Metrics of scores and of sets: hits, accuracies, several labels, votes, new classes, trees.

Means are computed from masked and weighted sums and counts (`Tally`), which add up over batches and
devices. A mean of batch means would give padded batches and rare classes a wrong weight.
"""

from topk_jax import _anytime, _intervals, _label_quality
from topk_jax._anytime import *
from topk_jax._intervals import *
from topk_jax._label_quality import *
from topk_jax.metrics import (
    _accuracies,
    _determinations,
    _hits,
    _open_sets,
    _precision,
    _several_labels,
    _shots,
    _tally,
    _taxonomic,
    _votes,
)
from topk_jax.metrics._accuracies import *
from topk_jax.metrics._determinations import *
from topk_jax.metrics._hits import *
from topk_jax.metrics._open_sets import *
from topk_jax.metrics._precision import *
from topk_jax.metrics._several_labels import *
from topk_jax.metrics._shots import *
from topk_jax.metrics._tally import *
from topk_jax.metrics._taxonomic import *
from topk_jax.metrics._votes import *

# Each family lists what it makes public.
__all__: list[str] = []
__all__ += _accuracies.__all__
__all__ += _anytime.__all__
__all__ += _determinations.__all__
__all__ += _hits.__all__
__all__ += _intervals.__all__
__all__ += _label_quality.__all__
__all__ += _open_sets.__all__
__all__ += _precision.__all__
__all__ += _several_labels.__all__
__all__ += _shots.__all__
__all__ += _tally.__all__
__all__ += _taxonomic.__all__
__all__ += _votes.__all__
