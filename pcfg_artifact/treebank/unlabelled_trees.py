"""Trees without labels, as text."""

from __future__ import annotations


def bracketed(words: list[str], spans: list[tuple[int, int]]) -> str:
    """The tree without labels; parents come before their children in `spans`."""
    opens = [sum(j - i > 1 for i, j in spans if i == t) for t in range(len(words))]
    closes = [sum(j - i > 1 for i, j in spans if j == t + 1) for t in range(len(words))]
    return " ".join("(" * a + word + ")" * b for word, a, b in zip(words, opens, closes, strict=True))
