"""The benchmark of losses of sets makes every number of its table."""

import jax

from benchmarks import set_sizes


def test_sets_of_digits_are_measured_for_two_losses(monkeypatch):
    monkeypatch.setattr(set_sizes, "EPOCHS", 1)
    chosen = {name: set_sizes.LOSSES[name] for name in ("cross_entropy", "size_at_average_error")}
    monkeypatch.setattr(set_sizes, "LOSSES", chosen)
    # As of users: the optimizer mixes types.
    with jax.numpy_dtype_promotion("standard"):
        results = set_sizes.measure(2)
    for measured in ("data_sets", "temperatures"):
        for by_choice in results[measured]["digits"].values():
            # The guarantee needs no training; 4 standard deviations of a tenth on 180 examples that
            # as many others calibrate.
            assert all(min(found["coverage"]) > 0.77 for found in by_choice.values())
    rows = set_sizes.tables(results).split("\n\n")
    assert [len(table.splitlines()) for table in rows] == [2 + 2 * 2, 2 + 2 * 3]
