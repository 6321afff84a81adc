"""One rate fits the features of every network once they are normalized."""

import jax
import numpy as np

from benchmarks import frozen_heads


def test_the_scale_of_features_matters_as_they_are_alone(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(frozen_heads, "RATES", (0.1,))
    labels = np.arange(90) % 3
    features = rng.normal(size=(90, 8)) + 2 * np.eye(8)[labels]
    # A power of two: no rounding.
    scaled = {1: features, 64: 64 * features}
    for scale, rows in scaled.items():
        np.savez(tmp_path / f"{scale}.npz", features=rows.astype(np.float32), labels=labels)
    paths = {str(scale): tmp_path / f"{scale}.npz" for scale in scaled}
    # As of users: the optimizer's schedule mixes types.
    with jax.numpy_dtype_promotion("standard"):
        results = frozen_heads.measure(paths, repetitions=1)
    small, large = (results["networks"][name]["forms"] for name in paths)
    for form in ("standardized", "normalized"):
        # Rounding of float32, in some steps.
        np.testing.assert_allclose(small[form]["0.1"], large[form]["0.1"], rtol=1e-3)
    assert large["as they are"]["0.1"][0][0] > 10 * small["as they are"]["0.1"][0][0]
    assert len(frozen_heads.tables(results).splitlines()) == 2 + 2 * 3
