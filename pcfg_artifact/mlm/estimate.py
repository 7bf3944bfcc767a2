"""What training a model will cost, counted from its sizes: operations, memory, and from them seconds.

tests/mlm/test_estimate.py compares operations and memory with those of the real training step on tensors without data.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import GPT2Config

from pcfg_artifact.mlm.model import LanguageModelConfig, count_parameters
from pcfg_artifact.system.gpus import Gpu

CPU_OPERATIONS_PER_SECOND = 3e10  # of one core, measured at widths 64 and 128
CPU_SECONDS_PER_LAYER = 3e-3  # of a step, however small the layer; measured likewise
SHARE_OF_PEAK = 0.55  # of a GPU's half-precision peak; assumed: no GPU has run this
LAUNCH_SECONDS = 4e-4  # of one layer of one micro-batch, forward and back; assumed: some sixty kernels
# A process before it has a model: on the CPU the libraries, as measured; on a GPU those of CUDA and NCCL, a guess.
PROCESS_MEGABYTES = {"cpu": 700, "cuda": 900}


@dataclass(frozen=True)
class Batching:
    """How rows reach a process."""

    batch_size: int  # rows of a global batch
    batch_tokens: int  # of a micro-batch
    row_tokens: float  # of a row, with its marks
    mask_rate: float
    n_processes: int = 1

    def predicted(self, config: LanguageModelConfig, n_tokens: float) -> float:
        """Predictions in n_tokens; a causal model predicts every word."""
        return n_tokens * (1.0 if isinstance(config, GPT2Config) else self.mask_rate)


@dataclass(frozen=True)
class TrainingCost:
    """Of one model: operations of a step over all processes, seconds of a step, megabytes of one process."""

    operations: float
    seconds: float
    megabytes: float


def estimate(config: LanguageModelConfig, batching: Batching, gpu: Gpu | None = None) -> TrainingCost:
    """gpu: None on the CPU."""
    operations = step_operations(config, batching)
    each = operations / batching.n_processes
    if gpu is None:
        seconds = each / CPU_OPERATIONS_PER_SECOND + CPU_SECONDS_PER_LAYER * config.num_hidden_layers
    else:
        n_micro = -(-batching.batch_size * batching.row_tokens // (batching.n_processes * batching.batch_tokens))
        launches = LAUNCH_SECONDS * n_micro * config.num_hidden_layers
        seconds = max(each / (SHARE_OF_PEAK * gpu.half_tflops * 1e12), launches)
    megabytes = training_bytes(config, batching, is_half=gpu is not None) / 1e6
    return TrainingCost(operations, seconds, PROCESS_MEGABYTES["cpu" if gpu is None else "cuda"] + megabytes)


def step_operations(config: LanguageModelConfig, batching: Batching) -> float:
    """Two operations a parameter and token forward, four back; attention scores and sums twice four a pair."""
    layers, _ = count_parameters(config)
    n_tokens, width = batching.batch_size * batching.row_tokens, config.hidden_size
    head = config.vocab_size * width + (0 if isinstance(config, GPT2Config) else width**2)
    attention = 4 * config.num_hidden_layers * width * batching.row_tokens
    # Flash attention computes the scores once more on the way back: 3.5 times its forward pass in all.
    return n_tokens * (6 * layers + 3.5 * attention) + 6 * head * batching.predicted(config, n_tokens)


def training_bytes(config: LanguageModelConfig, batching: Batching, *, is_half: bool) -> float:
    """The most that one process holds: weights, moments, what the backward pass needs, and the scores' gradients."""
    n_tokens, total = batching.batch_tokens, count_parameters(config)[1]
    n_predicted = batching.predicted(config, n_tokens)
    state = 12 * total + (4 * total if batching.n_processes > 1 else 0)  # processes share gradients in one buffer
    at_the_scores = 2 * 4 * n_predicted * config.vocab_size
    return max(state + kept_bytes(config, n_tokens, n_predicted, is_half=is_half) + at_the_scores, 16 * total)


def kept_bytes(config: LanguageModelConfig, n_tokens: float, n_predicted: float, *, is_half: bool) -> float:
    """What a micro-batch keeps for the backward pass.

    A layer: the input of both layer norms in single precision (8 bytes a unit) and their outputs, query, key and value,
    the mixed values twice, the inner layer before and after its activation (15 numbers a unit), two dropout masks;
    of each head the log normaliser.  In half precision a copy of the weights.
    """
    size, width = (2 if is_half else 4), config.hidden_size
    layers, _ = count_parameters(config)
    in_layer = (8 + 15 * size + 2) * width + 4 * config.num_attention_heads + 16
    is_causal = isinstance(config, GPT2Config)
    below_and_above = (5 if is_causal else 9) * width  # sums that layer norms read, one dropout mask
    head = (size if is_causal else 4 * size) * width + 4 * config.vocab_size
    copies = 2 * (layers + config.vocab_size * width) if is_half else 0
    return n_tokens * (config.num_hidden_layers * in_layer + below_and_above) + n_predicted * head + copies


def batch_tokens_that_fit(config: LanguageModelConfig, batching: Batching, megabytes: float) -> int:
    """The largest micro-batch of whole rows, in tokens, that a GPU with so much memory holds; 0: not even one row."""
    def needed(batch_tokens: int) -> float:
        tried = Batching(batching.batch_size, batch_tokens, batching.row_tokens, batching.mask_rate,
                         batching.n_processes)
        return PROCESS_MEGABYTES["cuda"] + training_bytes(config, tried, is_half=True) / 1e6

    row = int(batching.row_tokens)
    largest = -(-batching.batch_size // batching.n_processes)  # rows: more would lie idle
    fitting = (rows for rows in range(largest, 0, -1) if needed(rows * row) <= megabytes)
    return next(fitting, 0) * row
