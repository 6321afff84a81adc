"""The account of a compiled program counts what takes time, what is sent, and memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from train.foundation.errors import UserError
from train.planning import accounts, targets
from train.planning.targets import Target

# As a TPU's compiler writes it: a start names its operands, too.
TEXT = """HloModule step

%body (parameter: f32[8]) -> f32[8] {
  %inner = f32[8]{0} fusion(%parameter), kind=kLoop
}

ENTRY %main {
  %one = f32[256,1000]{1,0:T(8,128)} fusion(%logits), kind=kLoop, calls=%fused
  %two = (f32[256,5]{1,0}, s32[256,5]{1,0}) custom-call(%one), custom_call_target="TopK"
  %three = (f32[256,1000]{1,0}, s32[256,1000]{1,0}) sort(%one, %iota), dimensions={1}
  %four = (s32[], f32[8]{0}) while(%tuple), condition=%condition, body=%body
  %five = (f32[2,8]{1,0}, f32[16,8]{1,0}) all-gather-start(%part), dimensions={0}
  %six = f32[16,8]{1,0} all-gather-done(%five)
  %seven = (f32[10]{0}, bf16[4]{0}) all-reduce-start(%first, %second), to_apply=%add
  %eight = pred[3]{0} all-reduce(%flags), to_apply=%or, metadata={op_name="jit(f)/while/body/psum"}
  %nine = (f32[6]{0}, f32[6]{0}, u32[], u32[]) collective-permute-start(%third)
  %ten = ((f32[2]{0}, bf16[3]{0}), (f32[16]{0}, bf16[24]{0})) all-gather-start(%both)
}
"""


class Memory:
    argument_size_in_bytes, temp_size_in_bytes, peak_memory_in_bytes = 3, 2, 5


def test_the_text_of_a_program_is_counted():
    found = accounts.account(TEXT, Memory, 7, 1.234)
    assert (found.sorts, found.loops, found.kernels) == (1, 1, 1)
    assert found.calls == {"TopK": 1}
    assert found.messages == 5
    assert found.collectives == {
        "all-gather": 4 * 16 * 8 + 4 * 16 + 2 * 24,
        "all-reduce": 4 * 10 + 2 * 4 + 3,
        "collective-permute": 4 * 6,
    }
    assert [message.numbers for message in accounts.messages(TEXT)] == [16 * 8, 14, 3, 6, 40]
    assert [message.in_loop for message in accounts.messages(TEXT)] == [False] * 2 + [True] + [
        False
    ] * 2
    assert (found.arguments, found.temporary, found.peak) == (3, 2, 5)
    assert (found.moved, found.seconds) == (7, 1.23)


def test_a_program_is_compiled_for_its_devices():
    devices = jax.devices()[:4]
    target = Target("four", "cpu", 2**30, devices)

    def mean(values):
        return jax.lax.pmean(values, "devices")

    split = PartitionSpec("devices")
    mapped = jax.jit(
        jax.shard_map(
            mean, mesh=Mesh(np.array(devices), ("devices",)), in_specs=split, out_specs=split
        )
    )
    found = accounts.compile_for(mapped, target, jax.ShapeDtypeStruct((4, 10), jnp.float32))
    assert found.collectives == {"all-reduce": 40}
    of_one = accounts.compile_on_one(jnp.sort, target, jax.ShapeDtypeStruct((5,), jnp.float32))
    assert (of_one.sorts, of_one.messages, of_one.arguments) == (1, 0, 20)
    # At least read once and written once.
    assert of_one.moved is not None
    assert of_one.moved >= 40


@pytest.mark.parametrize(
    "name",
    ["v5e:100x100", "v5p:2x2", "h100:257", "v5e:", f"h100:{'1' * 5000}"],
)
def test_chips_that_there_are_not_are_refused(name):
    with pytest.raises(UserError, match=rf"v5e, v5p, v6e, h100, .*; got '{name}'$"):
        targets.find_target(name)
