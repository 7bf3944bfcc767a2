"""Named random streams: one seed, and an independent generator for every purpose."""

import hashlib

import numpy as np


def derive_seed(seed: int, *names: object) -> int:
    """A 64-bit seed that depends on every name and on nothing else (not on rank, order of calls or platform)."""
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def stream(seed: int, *names: object) -> np.random.Generator:
    """The random generator of one purpose, e.g. `stream(0, "probe", "A12L12", 3)`."""
    return np.random.default_rng(derive_seed(seed, *names))
