"""Code for the CPU and for accelerators in one program."""

import jax
import jax.export
import jax.numpy as jnp
import pytest

from topk_jax import _platforms


def nested(traced):
    """A choice inside of a choice, which notes the parts that are traced."""

    def inner(x):
        def on_cpu(x):
            traced.append("cpu")
            return jnp.sin(x)

        def elsewhere(x):
            traced.append("default")
            return jnp.cos(x)

        return _platforms.choose(x, cpu=on_cpu, default=elsewhere)

    return lambda x: inner(_platforms.choose(x, cpu=inner, default=lambda x: inner(2 * x)))


def test_inside_of_a_choice_only_its_part_is_traced():
    traced = []
    jax.eval_shape(nested(traced), 0.5)
    # The two parts of the first choice have one each; after it, both are traced.
    assert traced == ["cpu", "default", "cpu", "default"]


@pytest.mark.parametrize(
    ("platform", "kept", "left_out"), [("cpu", "sine", "cosine"), ("tpu", "cosine", "sine")]
)
def test_each_platform_gets_its_part(platform, kept, left_out):
    exported = jax.export.export(jax.jit(nested([])), platforms=[platform])(jnp.float32(0.5))
    module = exported.mlir_module()
    assert f"stablehlo.{kept} " in module
    assert f"stablehlo.{left_out} " not in module
