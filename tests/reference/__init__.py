"""Float64 references in NumPy and SciPy that import nothing of ours: slow, short, plain.

One function or class for each public name, with the same arguments, and `<name>_gradient` if the
gradient has a closed form; those of heads are in `heads`. They do not know devices: `axis_name` is
ignored. Most know one axis of examples.
"""

from tests.reference import heads as heads
from tests.reference._batch_losses import *
from tests.reference._conformal import *
from tests.reference._determinations import *
from tests.reference._drift import *
from tests.reference._entmax import *
from tests.reference._groups import *
from tests.reference._label_quality import *
from tests.reference._long_tail import *
from tests.reference._losses import *
from tests.reference._metrics import *
from tests.reference._new_classes import *
from tests.reference._operators import *
from tests.reference._relaxed_ranks import *
from tests.reference._rows import *
from tests.reference._set_losses import *
from tests.reference._sets import *
from tests.reference._several_labels import *
from tests.reference._soft_top_k import *
from tests.reference._taxonomies import *
