"""The account of a loss counts selections and loops, and the parts of a step follow from it."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import account

BATCH, NUM_CLASSES = 4, 32
ARRAY = 4 * BATCH * NUM_CLASSES


def squares(logits, _labels):
    return (logits**2).sum(axis=-1)


def test_a_pass_forward_and_one_backward_are_counted():
    found = account.account(squares, BATCH, NUM_CLASSES)
    # The logits are read at least once, and their gradient is written.
    assert 2 * ARRAY <= found["bytes"] <= 8 * ARRAY
    assert found["logit_arrays"] == found["bytes"] / ARRAY
    assert found["operations"] >= 2 * BATCH * NUM_CLASSES
    assert found["loops"] == 0


def test_a_selection_reads_what_it_selects_from():
    def selected(logits):
        values, _ = jax.lax.top_k(logits + 1, 3)
        return jax.lax.optimization_barrier(values).sum(axis=-1)

    program = jax.jit(selected).lower(jnp.zeros((BATCH, NUM_CLASSES))).compile().as_text()
    assert account.selected_bytes(program) == ARRAY


def test_loops_are_counted():
    def looped(logits, _labels):
        return jax.lax.fori_loop(0, 3, lambda _, values: jnp.sin(values), logits).sum(axis=-1)

    assert account.account(looped, BATCH, NUM_CLASSES)["loops"] > 0


def test_parts_are_those_of_the_slower_of_memory_and_arithmetic():
    machine = account.Machine(matrix=100.0, elementwise=10.0, memory=4.0)
    row = {
        "losses": {
            "cross_entropy": {"bytes": 4.0, "operations": 5.0},
            "by memory": {"bytes": 12.0, "operations": 10.0},
            "by arithmetic": {"bytes": 4.0, "operations": 50.0},
        },
        "steps": {"network": 400.0},
    }
    parts = [account.part_of_step(machine, row, name, "network") for name in row["losses"]]
    assert parts == pytest.approx([0, 50, 100])
    slow = account.Machine(matrix=100.0, elementwise=None, memory=4.0)
    assert account.part_of_step(slow, row, "by arithmetic", "network") == 0
