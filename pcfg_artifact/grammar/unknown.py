"""Unknown-word signatures: the shape and suffix that stand for a rare word (the Berkeley parser's level 5)."""

from collections.abc import Container

UNKNOWN = "UNK"
SUFFIXES = ("ed", "ing", "ion", "er", "est", "ly", "ity", "y", "al")


def signature(word: str, position: int, vocabulary: Container[str]) -> str:
    """The signature of `word` at `position` (0 = sentence-initial), e.g. `UNK-LC-ing` for `zapping`."""
    n_capitals = sum(c.isupper() for c in word)
    has_digit = any(c.isdigit() for c in word)
    has_dash = "-" in word
    parts = [UNKNOWN]
    if word[:1].isupper():
        if position == 0 and n_capitals == 1:
            parts.append("INITC")
            if word.lower() in vocabulary:
                parts.append("KNOWNLC")
        else:
            parts.append("CAPS")
    elif not word[:1].isalpha() and n_capitals:
        parts.append("CAPS")
    elif any(c.islower() for c in word):
        parts.append("LC")
    if has_digit:
        parts.append("NUM")
    if has_dash:
        parts.append("DASH")
    lower = word.lower()
    if lower.endswith("s") and len(lower) >= 3 and lower[-2] not in "siu":
        parts.append("s")
    elif len(lower) >= 5 and not has_dash and not (has_digit and n_capitals):
        parts.extend([suffix for suffix in SUFFIXES if lower.endswith(suffix)][:1])
    return "-".join(parts)
