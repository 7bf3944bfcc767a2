"""Sign rules: where negative entries, which a projection W+ W can put into probabilities, are set to 0.

An attention head applies ReLU to its key but not to its query, so the paper's low-rank transformer does not compute
the projected recursion as written.  There are three readings, for the algorithm and the transformer alike:

    clip      negative entries become 0 when they are stored (a ReLU feed-forward part)
    literal   they become 0 only where a value is used as a key
    signed    they stay (every head twice, once for each sign of its key)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcfg_artifact.errors import UsageError


class SignRule(NamedTuple):
    """Where negative values are clipped: when they are stored, and when they are used as a key.

    Used as a key are: the left child in the inside recursion; in the outside recursion the parent (outside) where the
    sibling is on the left, and the sibling (inside) where it is on the right.
    """

    name: str
    clips_stored: bool
    clips_keys: bool

    def stored(self, values: np.ndarray) -> np.ndarray:
        return values.clip(min=0) if self.clips_stored else values

    def key(self, values: np.ndarray) -> np.ndarray:
        return values.clip(min=0) if self.clips_keys else values


clip = SignRule("clip", clips_stored=True, clips_keys=True)
literal = SignRule("literal", clips_stored=False, clips_keys=True)
signed = SignRule("signed", clips_stored=False, clips_keys=False)

SIGN_RULES = {rule.name: rule for rule in (clip, literal, signed)}


def rule_named(name: str) -> SignRule:
    if name not in SIGN_RULES:
        raise UsageError(f"sign rule {name!r} is unknown; expected one of {', '.join(SIGN_RULES)}")
    return SIGN_RULES[name]
