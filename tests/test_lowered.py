"""Faults of programs are found: each kind in a program that has it."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from tests import lowered

SQUARE = jax.ShapeDtypeStruct((3, 3), np.float32)


def test_a_plain_program_has_no_faults():
    program = lowered.lowered(
        lambda table: table.at[0, jnp.argmax(table)].set(1), SQUARE, platforms=["tpu"]
    )
    assert lowered.faults(program) == []


def test_custom_calls_of_one_platform_are_found():
    program = lowered.lowered(lambda table: jnp.linalg.eigh(table)[1], SQUARE, platforms=["cuda"])
    (fault,) = lowered.faults(program)
    assert fault == "the custom call cusolver_syevd_ffi"


def test_a_callback_to_the_host_is_refused_or_found():
    def called(table):
        return jax.pure_callback(np.sin, SQUARE, table)

    try:
        program = lowered.lowered(called, SQUARE, platforms=["cuda"])
    except (NotImplementedError, ValueError):
        return
    assert lowered.faults(program)


def test_float64_is_found():
    with jax.enable_x64(True):
        program = lowered.lowered(
            lambda table: table.astype(jnp.float64), SQUARE, platforms=["cuda"]
        )
    assert lowered.faults(program) == ["float64"]


def test_dynamic_shapes_are_found():
    (number,) = jax.export.symbolic_shape("n")
    rows = jax.ShapeDtypeStruct((number, 3), np.float32)
    inner = lowered.lowered(lambda table: jnp.concatenate([table, table]), rows, platforms=["cuda"])
    assert lowered.faults(inner) == []
    outer = lowered.lowered(inner.call, SQUARE, platforms=["cuda"])
    assert "a dynamic shape" in lowered.faults(outer)


def test_sorts_and_selections_are_no_custom_calls():
    program = lowered.lowered(lambda table: jax.lax.top_k(jnp.sort(table), 2), SQUARE)
    assert program.platforms == ("tpu", "cuda", "rocm")
    assert lowered.custom_calls(program) == set()
