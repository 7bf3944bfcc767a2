"""Texts that probes are fitted and tested on, and the settings that pair them."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Text(NamedTuple):
    """A named set of sentences, and the split of the stages grammar, sample and marginals that holds it."""

    name: str
    split: str
    is_sampled: bool
    is_training: bool


class Setting(NamedTuple):
    """What a probe is fitted on and tested on."""

    name: str
    training: Text
    test: Text


SAMPLED_TRAIN = Text("sampled train", "probe_train", is_sampled=True, is_training=True)
SAMPLED_TEST = Text("sampled test", "probe_test", is_sampled=True, is_training=False)
TREEBANK_TRAIN = Text("treebank train", "train", is_sampled=False, is_training=True)
TREEBANK_TEST = Text("treebank test", "test", is_sampled=False, is_training=False)
TEXTS = (SAMPLED_TRAIN, SAMPLED_TEST, TREEBANK_TRAIN, TREEBANK_TEST)

SAMPLED = Setting("sampled", SAMPLED_TRAIN, SAMPLED_TEST)
OUT_OF_DISTRIBUTION = Setting("ood", SAMPLED_TRAIN, TREEBANK_TEST)
TREEBANK = Setting("treebank", TREEBANK_TRAIN, TREEBANK_TEST)
SETTINGS = (SAMPLED, OUT_OF_DISTRIBUTION, TREEBANK)



def settings_of(texts: Container[str]) -> tuple[Setting, ...]:
    """The settings whose texts there are, by name; what is shown of one setting alone is shown of the last."""
    return tuple(s for s in SETTINGS if s.training.name in texts and s.test.name in texts)


# What a probe of trees reads beside a word: the state of EOS, or those of the words next to it.
EOS, ADJACENT = "EOS", "ADJ"  # wider windows than of one word on each side: "ADJ 2", "ADJ 3"
NARY = "n-ary"  # labels of the treebank's own tree instead of the binarised one
# The paper shows one probe where both would be too much: its linear one for trees, its 2-layer one for marginals.
TREE_PROBE, MARGINAL_PROBE = "linear", "2-layer"
WIDEST = 20  # words: F1 by span width goes up to here
