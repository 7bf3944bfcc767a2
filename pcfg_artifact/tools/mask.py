"""Rank the words that fit a masked position of a sentence, with their exact probabilities under a grammar.

Every [MASK] in a sentence is one masked word; the others are read as they stand, unknown ones by their signature.
Positions are counted from 0.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.masking import masked_word_distribution
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    add_text_arguments,
    load_grammar,
    masked_positions,
    read_sentences,
    refuse_counts,
)

EXAMPLE = 'run_all.sh mask --grammar my_grammar "the [MASK] was approved"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    add_text_arguments(parser)
    parser.add_argument("-n", type=int, default=10, help="how many words to list (10)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("-n", args.n, 1))
    grammar = load_grammar(args.grammar, weights=args.weights)
    if not args.json:
        print(f"{'probability':>12}  word")
    for words in read_sentences(args.sentences):
        found = likeliest_words(grammar, words, args.n)
        if args.json:
            print(json.dumps({"words": words, "masked": [{"position": t, "words": ranked}
                                                         for t, ranked in found.items()]}, ensure_ascii=False))
            continue
        for t, ranked in found.items():
            print(f"position {t} ({' '.join(words[max(t - 2, 0):t + 3])})")
            for word, probability in ranked.items():
                print(f"{probability:12.6f}  {word}")
    return 0


def likeliest_words(grammar: PCFG, words: list[str], n: int) -> dict[int, dict[str, float]]:
    """Masked position -> its n likeliest words with their probabilities; impossible ones are left out."""
    masked = masked_positions(grammar, words)
    distribution = masked_word_distribution(grammar, grammar.encode(words), masked)
    if not distribution.any():
        raise UsageError(f"the grammar gives no probability to {' '.join(words)!r}, whatever the masked words are")
    return {t: {grammar.words[w]: float(row[w]) for w in np.argsort(-row, kind="stable")[:n] if row[w] > 0}
            for row, t in zip(distribution, masked, strict=True)}
