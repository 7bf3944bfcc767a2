"""Shards of sampled sentences: drawn by threads, written block by block."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pcfg_artifact.grammar.sampling import SampledTrees, TreeSampler, id_dtype
from pcfg_artifact.run.stage_folder import RaggedWriter
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.threads import ordered_map

BLOCK = 20_000  # sentences drawn at once: about 2 MB of rules


@dataclass
class Drawn:
    """Facts about one shard."""

    n_sentences: int = 0
    n_tokens: int = 0
    longest: int = 0
    n_rejected: int = 0


def write_shard(folder: Path, sampler: TreeSampler, first: int, n: int, *, with_rules: bool, n_workers: int = 1
                ) -> Drawn:
    """Write sentences first .. first + n - 1 to folder/tokens (and folder/rules), streaming block by block."""
    drawn = Drawn()

    def draw(start: int) -> tuple[SampledTrees, Ragged]:
        trees = sampler.draw(start, min(BLOCK, first + n - start))
        return trees, trees.tokens

    with ExitStack() as stack:
        tokens = stack.enter_context(RaggedWriter(folder / "tokens", id_dtype(sampler.grammar.n_words)))
        rules = stack.enter_context(RaggedWriter(folder / "rules", sampler.rule_dtype)) if with_rules else None
        starts = range(first, first + n, BLOCK)
        blocks = ordered_map(draw, starts, n_workers, n_ahead=2)  # so that memory does not grow with n
        for block, words in progress(blocks, total=len(starts), desc=f"sampling {folder.name}"):
            tokens.append(words)
            if rules is not None:
                rules.append(block.rules)
            drawn.n_sentences += len(block)
            drawn.n_tokens += len(words.values)
            drawn.longest = max(drawn.longest, int(words.lengths.max()))
            drawn.n_rejected += block.n_rejected
    return drawn
