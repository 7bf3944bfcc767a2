"""Rank the words that fit a masked position of a sentence, with their exact probabilities under a grammar.

Every [MASK] in the sentence is one masked word; the others are read as they stand, unknown ones by their signature.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.parsing.masking import masked_word_distribution
from pcfg_artifact.tools.arguments import add_grammar_argument, load_grammar, refuse_counts

EXAMPLE = 'run_all.sh mask --grammar my_grammar "the [MASK] was approved"'
MASK = "[MASK]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    parser.add_argument("sentence", help=f"words separated by blanks, at least one of them {MASK}")
    parser.add_argument("-n", type=int, default=10, help="how many words to list (10)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    words = args.sentence.split()
    masked = [t for t, word in enumerate(words) if word == MASK]
    if not masked:
        raise UsageError(f"no {MASK} in {args.sentence!r}; write {MASK} where a word is to be predicted")
    refuse_counts(("-n", args.n, 1))
    grammar = load_grammar(args.grammar)
    ids = grammar.encode(words)
    strange = [words[t] for t in range(len(words)) if ids[t] < 0 and t not in masked]
    if strange:
        raise UsageError(f"the grammar has no word and no signature for {strange[0]!r}; use words it knows")
    distribution = masked_word_distribution(grammar, ids, masked)
    if not distribution.any():
        raise UsageError(f"the grammar gives no probability to {args.sentence!r}, whatever the masked words are")
    found = {}
    for row, t in zip(distribution, masked, strict=True):
        likeliest = np.argsort(-row, kind="stable")[:args.n]
        found[t] = [(grammar.words[w], float(row[w])) for w in likeliest if row[w] > 0]
    if args.json:
        print(json.dumps([{"position": t, "words": dict(ranked)} for t, ranked in found.items()]))
        return 0
    for t, ranked in found.items():
        print(f"position {t} ({' '.join(words[max(t - 2, 0):t + 3])})")
        for word, probability in ranked:
            print(f"  {probability:10.6f}  {word}")
    return 0
