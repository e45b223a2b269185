"""Logits against the published implementation on the same weights (needs the `transformers` extra)."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from batchspec.engine.model import Model  # noqa: E402
from batchspec.engine.runner import Runner  # noqa: E402
from batchspec.engine.sequence import Plan, Request, Sequence  # noqa: E402

TOLERANCE = 2e-4
"""Largest difference of a float32 logit; logits of these models spread over about 1."""

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES = {
    "llama": ("LlamaConfig", {}),
    "llama-head-dim": ("LlamaConfig", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    "llama3-rope": ("LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "linear-rope": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    name, options = CASES[case]
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**SHAPE, **options))
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2 if parameter.dim() > 1 else 0.5)
    theirs.eval().save_pretrained(tmp_path)
    prompt = torch.randint(0, SHAPE["vocab_size"], (100,)).tolist()
    with torch.no_grad():
        expected = theirs(torch.tensor([prompt])).logits[0]

    runner = Runner(Model.from_folder(tmp_path), slots=1, num_blocks=16, block_size=8)
    sequence = Sequence(Request("a", tuple(prompt), 1), arrived=0)
    sequence.slot, sequence.blocks = 0, [5, 3, 9, 1, 0, 2, 4, 6, 7, 8, 10, 11, 12]
    # Whole chunk, chunk with a context, single tokens: each form of attention at once.
    for start, count in ((0, 60), (60, 33), *((at, 1) for at in range(93, 100))):
        plan = Plan(1)
        plan.add(sequence, start, count)
        plan.grants.append(sequence)
        logits = _logits(runner, plan)
        torch.testing.assert_close(logits, expected[start : start + count], atol=TOLERANCE, rtol=TOLERANCE)


def _logits(runner: Runner, plan: Plan) -> "torch.Tensor":
    with torch.inference_mode():
        batch = runner._packer.pack(plan)
        attend = runner._attention.over(batch)
        return runner.model.forward(batch.tokens, batch.positions, None, attend)
