"""What training will cost, from sizes alone: for the plan that --dry-run prints."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import GPT2Config

from pcfg_artifact.mlm.model import LanguageModelConfig, count_parameters

# Per process: sustained floating-point operations per second of a CPU core and of a data-centre GPU in bfloat16, and
# seconds that a layer of one step takes however small it is.  The CPU's are measured at widths 64 and 128.
OPERATIONS_PER_SECOND = {"cpu": 3e10, "cuda": 8e13}
SECONDS_PER_LAYER = {"cpu": 3e-3, "cuda": 2e-3}
SOURCE = {"cpu": "measured on narrow models", "cuda": "assumed: no GPU has run this"}
# What a process takes before it has a model: on the CPU the libraries, as measured; on a GPU CUDA's own, a guess.
PROCESS_MEGABYTES = {"cpu": 700, "cuda": 500}


@dataclass(frozen=True)
class Estimate:
    """Steps, seconds, and memory of one process in megabytes."""

    steps: int
    seconds: float
    megabytes: float


def estimate(config: LanguageModelConfig, *, steps: int, batch_size: int, batch_tokens: int, mean_length: float,
             mask_rate: float, packing: int | None = None, device: str = "cpu", n_processes: int = 1) -> Estimate:
    """Arithmetic of all steps at a sustained rate; weights, gradients and moments, and the largest micro-batch."""
    layers, total = count_parameters(config)
    width, tokens = config.hidden_size, packing or mean_length + 2  # of a row
    mask_rate = 1.0 if isinstance(config, GPT2Config) else mask_rate  # a causal model predicts every word
    # Forward and backward are 6 operations per parameter and token; attention scores and sums are 12 per pair of words.
    per_token = 6 * layers + 12 * config.num_hidden_layers * width * tokens
    per_token += 6 * mask_rate * width * (config.vocab_size + width)
    seconds = batch_size * tokens * per_token / (OPERATIONS_PER_SECOND[device] * n_processes)
    seconds = steps * (seconds + SECONDS_PER_LAYER[device] * config.num_hidden_layers)
    # Kept for the backward pass: about 18 vectors of the model's width per layer and token; scores of masked words.
    activations = batch_tokens * (18 * width * config.num_hidden_layers + 3 * mask_rate * config.vocab_size)
    return Estimate(steps, seconds, PROCESS_MEGABYTES[device] + 4 * (4 * total + activations) / 1e6)
