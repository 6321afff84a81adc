"""What the long tests share."""

from collections.abc import Iterator

import pytest

from tests.compilation import optimized


@pytest.fixture(autouse=True, scope="module")
def optimized_after_all(unoptimized: None) -> Iterator[None]:
    """Numbers are compared here after hundreds of steps, in which a last digit grows."""
    with optimized(True):
        yield
