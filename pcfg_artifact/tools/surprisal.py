"""Surprisal of every word under a grammar, exactly, as a table with tabs.  One line a word, and a last line [END]:

  sentence           its number, from 1
  position           of the word, from 1
  word               as it was written
  surprisal_bits     minus the binary log of its probability given the words before
  tree_bits          of the surprisal: what the word tells of the tree, the relative entropy of the belief in trees
                     (down to pre-terminals, without words) after the word to that before it
  word_bits          of the surprisal: which word of its pre-terminal it is; both add up to surprisal_bits
  entropy_bits       of the next-word distribution before the word: the surprisal to be expected there
  open_constituents  expected number of constituents begun and not complete after the word (binarised tree)
  note               an unknown word's signature; why a surprisal is inf

A word that cannot follow has surprisal inf, and so has all that comes after it, with all other numbers nan.
With --model, before the note: model_surprisal_bits, model_entropy_bits and model_pieces of a causal Hugging Face model;
pieces are summed, and how word borders are found is said on standard error.  With --json, inf and nan are null.

--border says to which word a border counts, where the model's pieces begin with the blank before them.  `next`: to the
word that it begins, so that a word's pieces are simply summed.  A word then does not pay for ending: of `run`, followed
by ` away`, the model has said nothing yet against `runner`.  `previous`: to the word that it ends; the probability of a
word is that of its pieces, times that of a border after them, over that of the border before them, which the word
before has paid for.  Only these are probabilities of words, which sum to 1 after every prefix, as the grammar's do.  A
sentence has the same surprisal either way.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.prefix.left_to_right import next_words
from pcfg_artifact.parsing.prefix.prefix_grammar import prefix_grammar
from pcfg_artifact.tools.arguments import add_grammar_argument, add_text_arguments, load_grammar, read_sentences
from pcfg_artifact.tools.next import END, why_impossible

EXAMPLE = "run_all.sh surprisal --grammar my_grammar sentences.txt > surprisal.tsv"
COLUMNS = ("word", "surprisal_bits", "tree_bits", "word_bits", "entropy_bits", "open_constituents")
ALL_FINITE = 1e-9  # from 1: grammars whose trees all end differ from it by rounding only


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    add_text_arguments(parser)
    parser.add_argument("--model", type=Path, metavar="DIR",
                        help="the folder of a causal Hugging Face model, whose surprisal is added")
    parser.add_argument("--border", choices=("next", "previous"), default="next",
                        help="--model: the word that the border between two words counts to (next)")


def run(args: argparse.Namespace) -> int:
    grammar = load_grammar(args.grammar, weights=args.weights)
    total = math.exp(prefix_grammar(grammar).log_total)
    if abs(total - 1.0) > ALL_FINITE:
        print(f"the finite trees of this grammar have probability {total:.6g} in all; every number is given that the "
              f"tree is finite", file=sys.stderr)
    model = None
    columns = [*COLUMNS, "note"]
    if args.model is not None:
        from pcfg_artifact.tools import causal  # here, so that nobody else pays for torch

        model = causal.CausalModel(args.model, border=args.border)
        columns[-1:-1] = causal.COLUMNS
        print(model.description(), file=sys.stderr)
    if not args.json:
        print("\t".join(["sentence", "position", *columns]))
    for number, words in enumerate(read_sentences(args.sentences), start=1):
        rows = sentence_rows(grammar, words)
        if model:
            read_as = [grammar.words[w] if w >= 0 else word
                       for word, w in zip(words, grammar.encode(words), strict=True)]
            for row, score in zip(rows, model.scores(words, read_as), strict=True):
                row |= zip(causal.COLUMNS, (score.surprisal, score.entropy, score.n_pieces), strict=True)
                row["note"] = "; ".join(filter(None, [row["note"], score.reason]))
        if args.json:
            print(json.dumps({"words": words, "surprisals": [
                {name: finite(row[name]) for name in columns} for row in rows]}, ensure_ascii=False, allow_nan=False))
            continue
        for position, row in enumerate(rows, start=1):
            print("\t".join([str(number), str(position), *(text(row[name]) for name in columns)]))
    return 0


def sentence_rows(grammar: PCFG, words: list[str]) -> list[dict[str, Any]]:
    """The columns and the note of every word and of the end."""
    found = next_words(grammar, words)
    n_open = np.append(found.n_open[1:], 0.0)  # after the end, nothing is open
    rows = []
    for t, word in enumerate([*words, END]):
        notes = []
        if t < len(words) and found.ids[t] >= 0 and grammar.words[found.ids[t]] != word:
            notes.append(f"unknown, read as {grammar.words[found.ids[t]]}")
        is_possible = found.log_probs[t] > -np.inf
        if not is_possible:
            notes.append(why_impossible(grammar, found, t))
        rows.append({"word": word, "surprisal_bits": -float(found.log_probs[t]) / math.log(2),
                     "tree_bits": float(found.tree_update[t]) / math.log(2),
                     "word_bits": float(found.word_choice[t]) / math.log(2),
                     "entropy_bits": float(found.entropy[t]) / math.log(2),
                     "open_constituents": float(n_open[t]) if is_possible else math.nan, "note": "; ".join(notes)})
    return rows


def text(value: float | str) -> str:
    """Enough digits to add up a sentence to 1e-9; no minus before 0."""
    return value if isinstance(value, str) else f"{value + 0.0:.12g}"


def finite(value: float | str) -> float | str | None:
    """A value as JSON has it."""
    return value if isinstance(value, str | int) else value + 0.0 if math.isfinite(value) else None
