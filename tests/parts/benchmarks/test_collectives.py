"""The collectives of a program are counted by their kinds and sizes."""

from benchmarks import collectives

PROGRAM = """
  %sum = f32[32]{0} all-reduce(%values), channel_id=1, metadata={op_name="jit(f)/psum"}
  %both = (f32[32]{0}, f32[32,4]{1,0}) all-reduce(%one, %other), channel_id=2
  %all = (f32[32,5]{1,0}, f32[32,40]{1,0}) all-gather-start(%part), channel_id=3
  %next = f32[64]{0} all-reduce(%more), metadata={op_name="jit(f)/while/body/psum"}
  %moved = f32[32]{0} collective-permute(%sum)
"""


def test_collectives_are_counted():
    found = collectives.counted(PROGRAM, 1.5)
    assert found == collectives.Account(
        reductions=3,
        reduced=(32 + 32 + 4 * 32 + 64) / collectives.BATCH,
        gathers=1,
        gathered=32 * 40 / collectives.BATCH / collectives.DEVICES,
        others=1,
        in_loops=1,
        arrays=1.5,
    )
