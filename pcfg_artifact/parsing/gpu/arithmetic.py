"""What the gpu engine has to do for a sentence, by counting, and from that which engine is the faster one.

Nothing here has been measured on a GPU: `bench parsing --device cuda` prints what is beside what is expected here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import n_cells
from pcfg_artifact.parsing.cpu_kernels.rule_index import RuleIndex, compiled
from pcfg_artifact.parsing.engine import EngineOptions
from pcfg_artifact.system.gpus import Gpu, gpu_of

SECTOR = 32  # bytes that a load moves at least
WARP = 32  # threads that load together
SECTORS_PER_CYCLE = 4  # that the first-level cache of a multiprocessor delivers
LAUNCH_SECONDS = 20e-6  # of a Triton kernel with some forty arguments, by the host; kernels of full batches hide it
BATCH = 512  # sentences
# One thread of the cpu engine on the terms of all pairs and rules, of which it visits the possible ones: measured 0.26,
# 0.16 and 0.18 at 20, 40 and 80 words of CRAFT (docs/dev/performance.md), 0.6 on a dense grammar.
CPU_SECONDS = 0.2e-9
DOUBT = 2.0  # the GPU must be expected to be this much faster, because nobody has measured it


class Counters(NamedTuple):
    """Of one sentence, inside and outside with span scores: terms of sums, bytes that must come from the memory of the
    GPU (each row once for each program's cell), sectors that go through first-level caches; launches of a batch.
    """

    launches: int
    terms: int
    memory_bytes: int
    sectors: int

    def seconds(self, gpu: Gpu, batch: int = BATCH) -> float:
        """Expected of a sentence: the slower one of memory and caches, and its share of the launches."""
        memory = self.memory_bytes / (gpu.gigabytes_per_second * 1e9)
        caches = self.sectors / (SECTORS_PER_CYCLE * gpu.multiprocessors * gpu.gigahertz * 1e9)
        return max(memory, caches) + self.launches * LAUNCH_SECONDS / batch


def n_launches(grammar: RuleIndex, length: int) -> int:
    """Kernels of a batch whose longest sentence has this length."""
    has_pairs, has_word_pairs = len(grammar.inner.left) > 0, len(grammar.leaf_pairs.other) > 0
    has_right, has_left = len(grammar.right_edges.parent) > 0, len(grammar.left_edges.parent) > 0
    count = has_right + has_left  # what words give their edges
    for width in range(2, length + 1):
        is_inner = width >= 4 and has_pairs
        count += 2 + (has_word_pairs if width == 2 else is_inner)  # inside: sums, their scale, products of pairs
        count += 2 + (length - width >= 2 and has_pairs) + is_inner + (width == 2 and has_word_pairs)  # outside
    return count + 2 + (length > 1) * ((has_right or has_left) + has_word_pairs) + length  # words; span scores


def count(grammar: RuleIndex, length: int, itemsize: int = 8) -> Counters:
    cells, words = n_cells(length) - length, length
    splits = sum((length - width + 1) * (width - 3) for width in range(4, length + 1))  # both children wider than 1
    beside = 2 * sum(length - width + 1 for width in range(3, length + 1))  # cells next to a word
    pairs, rules = len(grammar.inner.left), len(grammar.inner.parent)
    word_pairs, word_rules = len(grammar.leaf_pairs.other), len(grammar.two_leaves.parent)
    edges = (len(grammar.right_edges.parent) + len(grammar.left_edges.parent)) / 2
    leaf_rules = len(grammar.right_leaf.parent) + len(grammar.left_leaf.parent)
    symbols = max(grammar.n_interminals, grammar.n_preterminals)
    row = symbols * itemsize
    gathered = sectors_of(grammar.left_pairs.right, itemsize) + sectors_of(grammar.left_pairs.left, itemsize)
    straight = pairs * itemsize / SECTOR  # numbers one after the other
    # Terms: products of pairs, sums over rules, edges of both sides; the outside pass has most of them twice.
    terms = splits * pairs * 3 + cells * rules * 2 + beside * edges * 3 + words * (3 * word_pairs + 2 * leaf_rules) \
        + words * word_rules * 2
    # Memory: rows of both children; what is given and rows of siblings; edges with their words; charts.
    memory = splits * 2 * row + splits * 2 * (row + pairs * itemsize) + beside * 3 * (edges * itemsize + row) \
        + cells * (2 * pairs * 3 * itemsize + 10 * row) + words * (6 * edges * itemsize + 10 * row)
    # Caches: a gather touches a sector for most of its threads; weights and indices of rules are read by every program.
    sectors = splits * gathered + splits * (gathered + 2 * straight) \
        + cells * 2 * rules * (1 + (itemsize + 2) / SECTOR) + beside * 3 * edges * (1 + (itemsize + 4) / SECTOR) \
        + cells * 10 * row / SECTOR + words * 3 * (word_pairs + leaf_rules)
    return Counters(n_launches(grammar, length), int(terms), int(memory), int(sectors))


def sectors_of(index: np.ndarray, itemsize: int) -> int:
    """Sectors that warps touch when thread n of all takes entry index[n] of a row."""
    sector = np.asarray(index, np.int64) * itemsize // SECTOR
    warp = np.arange(len(sector)) // WARP
    return len(np.unique(warp * (int(sector.max(initial=0)) + 1) + sector))


def is_gpu_faster(grammar: PCFG, lengths: Iterable[int], gpu: Gpu, n_threads: int) -> bool:
    """Whether a GPU is expected to be DOUBT times as fast as the cpu engine on these sentences."""
    rules, itemsize = compiled(grammar), 8 if gpu.has_double else 4
    found, numbers = np.unique(np.asarray(list(lengths), np.int64), return_counts=True)
    on_gpu = on_cpu = 0.0
    for length, n in zip(found.tolist(), numbers.tolist(), strict=True):
        counters = count(rules, length, itemsize)
        on_gpu += n * counters.seconds(gpu, min(BATCH, int(numbers.sum())))
        on_cpu += n * counters.terms * CPU_SECONDS / n_threads
    return DOUBT * on_gpu < on_cpu


def stage_options(grammar: PCFG, lengths: Iterable[int], device: str, n_threads: int, backend: str = "auto"
                  ) -> EngineOptions:
    """The engine of a stage: the one that is named, or the faster one where the device is a GPU."""
    options = EngineOptions(n_threads=n_threads)
    if backend == "auto" and device != "cpu":
        import torch  # here, because without a GPU nobody needs it

        if not torch.cuda.is_available():
            return EngineOptions("gpu", device)  # it says what is missing
        gpu = gpu_of(torch.cuda.get_device_name(device))
        backend = "gpu" if is_gpu_faster(grammar, lengths, gpu, n_threads) else "cpu"
    if backend == "gpu":
        return EngineOptions("gpu", device, n_threads=n_threads)
    if backend not in ("auto", "cpu"):
        raise UsageError(f"backend {backend!r} is unknown to stages; expected auto, cpu or gpu")
    return options
