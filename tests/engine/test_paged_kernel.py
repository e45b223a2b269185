"""The Triton kernel, run by Triton's interpreter on the CPU, against the grouped operators.

The interpreter must be chosen before Triton is imported, so the comparison is a process of its own.
What the interpreter cannot show is that the kernel compiles and how fast it is: `bench/gpu.py` does.
"""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

SCRIPT = """
import random, torch
from batchspec.engine.config import ModelConfig
from batchspec.engine.engine import Engine
from batchspec.engine.model import Model
from batchspec.engine.options import engine_profile
from batchspec.engine.runner import Runner
from batchspec.engine.sequence import Request

heads, kv_heads, width = {shape}
config = ModelConfig(vocab_size=60, hidden_size=32, intermediate_size=32, num_layers=2, num_heads=heads,
                     num_kv_heads=kv_heads, head_dim=width)
model = Model.random(config, seed=1)
rng = random.Random(0)
prompts = [tuple(rng.randrange(60) for _ in range(rng.randint(1, 40))) for _ in range(7)]
requests = [Request(f"r{{i}}", prompt, rng.randint(4, 16)) for i, prompt in enumerate(prompts)]
profile = engine_profile(preempt="swap", max_seqs=3, token_budget=50, kv_blocks=18, block_size=4)
plain = Engine(model, profile)
paged = Engine(model, profile)
paged.runner = Runner(model, 3, 18, 4, 18, True, paged=True, graphs=False)
assert paged.runner._paged is not None
expected, found = plain.complete(requests), paged.complete(requests)
assert expected == found, (expected, found)
assert paged.scheduler.preemptions > 0
print("same tokens:", sum(len(item.tokens) for item in found.values()))
"""


@pytest.mark.parametrize("shape", [(4, 2, 16), (2, 2, 32), (6, 2, 16), (8, 1, 16)])
def test_the_kernel_gives_the_tokens_of_the_plain_operators(shape: tuple[int, int, int]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(shape=shape)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "same tokens" in done.stdout
