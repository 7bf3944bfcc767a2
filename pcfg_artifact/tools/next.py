"""Rank what can come next after the first words of a sentence, with exact probabilities under a grammar.

[END] is the end of the sentence.  Without words, the first word is predicted.  Unknown words are read by their
signature, which is said; among the words to come, a signature stands for all unknown words of its shape.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.prefix.left_to_right import NextWords, next_words
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    add_text_arguments,
    load_grammar,
    read_sentences,
    refuse_counts,
)

EXAMPLE = 'run_all.sh next --grammar my_grammar "the company"'
END = "[END]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    add_text_arguments(parser, "prefixes", default="")
    parser.add_argument("-n", type=int, default=10, help="how many continuations to list (10)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("-n", args.n, 1))
    grammar = load_grammar(args.grammar, weights=args.weights)
    if not args.json:
        print(f"{'probability':>12}  next word")
    for words in read_sentences(args.sentences):
        found = continuations(grammar, words, args.n)
        if args.json:
            print(json.dumps(found, ensure_ascii=False))
            continue
        print(f"after {' '.join(words)!r} (log probability {found['log_prob']:.4f} nats, {found['open']:.2f} "
              f"constituents open, entropy {found['entropy']:.2f} bits)")
        for word, signature in found["read_as"].items():
            print(f"  {word!r} is unknown, read as {signature}")
        for word, probability in found["next"].items():
            print(f"{probability:12.6f}  {word}")
    return 0


def continuations(grammar: PCFG, words: list[str], n: int) -> dict[str, Any]:
    """What a line of JSON holds: log_prob in nats, entropy in bits, open constituents, the n likeliest next words."""
    found = next_words(grammar, words)
    if found.impossible_at is not None:
        t = found.impossible_at
        raise UsageError(f"word {t + 1} of the prefix, {words[t]!r}: {why_impossible(grammar, found, t)}; "
                         f"leave it out or give other words")
    row = found.next_word[-1]
    names = (*grammar.words, END)
    return {"words": words,
            "read_as": {word: grammar.words[w] for word, w in zip(words, found.ids, strict=True)
                        if grammar.words[w] != word},
            "log_prob": float(found.log_prefix[-1]), "entropy": float(found.entropy[-1]) / math.log(2) + 0.0,
            "open": float(found.n_open[-1]),
            "next": {names[w]: float(row[w]) for w in np.argsort(-row, kind="stable")[:n] if row[w] > 0}}


def why_impossible(grammar: PCFG, found: NextWords, t: int) -> str:
    """Why word t (0-based) of a sentence, or its end, has no probability."""
    if found.impossible_at is not None and t > found.impossible_at:
        return f"the words up to word {found.impossible_at + 1} have no probability, so nothing follows"
    if t == len(found.ids):
        return "the sentence cannot end here" if t else "no sentence of the grammar is empty"
    if found.ids[t] < 0:
        return "the grammar has no word and no signature for it"
    return "no sentence of the grammar goes on with it" if t else "no sentence of the grammar begins with it"
