"""Which tokens are punctuation: by the tags of the Penn Treebank, or by the form of the word in any other treebank."""

from __future__ import annotations

from collections.abc import Sequence

from pcfg_artifact.errors import UsageError
from pcfg_artifact.treebank.tree import Tree

# Tags of words; by the rule `penn` every other tag is punctuation.
WORD_TAGS = frozenset((
    "CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNS", "NNP", "NNPS", "PDT", "POS",
    "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP",
    "WP$", "WRB", "AFX"))
PENN, FORM, AUTO = "penn", "form", "auto"
RULES = {PENN: "every tag but the Penn Treebank's tags of words", FORM: "words without a letter or a digit"}
LARGEST_SHARE = 0.3  # of tokens dropped: twice what newspapers and scientific prose have
BRACKETS = frozenset(("-LRB-", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-"))


def is_punctuation(tag: str, word: str, rule: str = PENN) -> bool:
    if rule == PENN:
        return tag not in WORD_TAGS
    return word in BRACKETS or not any(character.isalnum() for character in word)


def has_word_tags(trees: Sequence[Tree]) -> bool:
    """Whether any word has one of the Penn Treebank's tags of words, so that other tags are telling."""
    return any(leaf.label in WORD_TAGS for tree in trees for leaf in tree.preterminals())


def dropped_share(trees: Sequence[Tree], rule: str) -> float:
    """The share of tokens that the rule calls punctuation."""
    found = [is_punctuation(leaf.label, leaf.word or "", rule) for tree in trees for leaf in tree.preterminals()]
    return sum(found) / len(found) if found else 0.0


def choose_rule(trees: Sequence[Tree], rule: str = AUTO) -> tuple[str, float]:
    """The rule for a treebank and the share of its tokens that it drops; one that drops too many is refused.

    auto: by Penn's tags where they are the treebank's, which shows in how many tokens they would drop.
    """
    tried = (PENN, FORM) if rule == AUTO else (rule,)
    for name in tried:
        share = dropped_share(trees, name)
        if share <= LARGEST_SHARE:
            return name, share
    advice = "--punctuation form, which looks at words" if name == PENN else "--conventions PB PN, which drop none"
    raise UsageError(f"punctuation by the rule {name!r} ({RULES[name]}) would drop {100 * share:.1f}% of the tokens, "
                     f"expected at most {100 * LARGEST_SHARE:.0f}%: a score would say little about the rest; "
                     f"use {advice}")
