"""Sizes of the constructions: what the paper claims, beside what was built."""

from __future__ import annotations

from pcfg_artifact.constructions.transformer import ConstructedTransformer


def built(model: ConstructedTransformer) -> dict[str, int]:
    return {"layers": model.n_layers, "heads": model.n_heads, "dimensions": model.embedding_dim}


def claimed_hard(n: int, L: int) -> dict[str, int]:
    """Theorem 3.1 for n non-terminals and sentences of up to L words."""
    return {"layers": 2 * L - 1, "heads": 4 * n, "dimensions": (4 * n + 1) * L}


def claimed_relative(n: int, L: int) -> dict[str, int]:
    """Theorem 3.2."""
    return {"layers": 2 * L - 1, "heads": n, "dimensions": 2 * n * L + 1}


def claimed_approximate(n_interminals: int, rank: int | None, L: int) -> dict[str, int]:
    """Few non-terminals, and Theorem 3.4; the paper's 275 + 40L for its 20 in-terminals and 45 pre-terminals."""
    return {"layers": 2 * L + 1, "heads": rank or n_interminals, "dimensions": 275 + 2 * n_interminals * L}
