"""List grammars by name (zoo:NAME wherever a grammar is taken), with their sizes, ambiguity and exact floors.

  symbols      non-terminals of the normal form: those over symbols, and those over words
  length       expected number of words of a sentence
  ambiguous    share of the sentences that have several trees
  tree         entropy of the tree, words included, in nats a word
  next         the least possible loss of next words, in nats a word (the end of a sentence counts as one)
  mask 15, 40  the least possible loss of masked words, in nats a masked word

A number after ± is a standard error over sentences; numbers without one are exact.  Loss that a model has above these
is its own.  With a NAME, all that is known of it; its parameters stand after it, as in zoo:rhm,depth=4,seed=1.  Numbers
are stored for the parameters as they are listed; --measure measures those of any grammar now, a rule file included.
"""

from __future__ import annotations

import argparse
import json
from importlib import resources
from typing import Any

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sources import read_grammar
from pcfg_artifact.grammar.zoo_grammars import KINDS, PREFIX, GrammarKind, frozen_hash
from pcfg_artifact.parsing.floors import MASKS, floors
from pcfg_artifact.tools.arguments import add_json_argument, refuse_counts

EXAMPLE = "run_all.sh zoo cfg3b rhm"
STORED = "zoo_floors.json"  # beside zoo_grammars.py; scripts/write_zoo_floors.py wrote it
COLUMNS = {"length": "mean_length", "ambiguous": "ambiguous", "tree": "tree_entropy", "next": "next_word",
           "mask 15": MASKS[0], "mask 40": MASKS[1]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the zoo, or with --measure any grammar (all)")
    parser.add_argument("--measure", action="store_true", help="measure now, in place of the stored numbers")
    parser.add_argument("-n", type=int, default=500, help="sentences that --measure draws (500)")
    parser.add_argument("--seed", type=int, default=0, help="of these sentences (0)")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    refuse_counts(("-n", args.n, 1))
    known = stored()
    sources = [name if name.removeprefix(PREFIX).split(",")[0] not in KINDS else PREFIX + name.removeprefix(PREFIX)
               for name in args.names or KINDS]
    cards = []
    for source in sources:
        grammar = read_grammar(source)
        found = known.get(source.removeprefix(PREFIX))
        if args.measure or (found is not None and found["hash"] != frozen_hash(grammar)):
            found = measured(grammar, args.n, args.seed)
        cards.append(card(source, grammar, found))
    if args.json:
        for one in cards:
            print(json.dumps(one, ensure_ascii=False))
    else:
        print_table(cards)
        if args.names:
            print_details(cards)
    return 0


def stored() -> dict[str, dict[str, Any]]:
    """What was measured of every grammar of the zoo with its default parameters."""
    return json.loads((resources.files("pcfg_artifact.grammar") / STORED).read_text(encoding="utf-8"))


def measured(grammar: PCFG, n: int, seed: int = 0) -> dict[str, Any]:
    """What is stored of a grammar: its hash, how it was measured, and value and standard error of every number."""
    return {"hash": frozen_hash(grammar), "sentences": n, "seed": seed,
            "numbers": {name: [round(part, 6) for part in found] for name, found in floors(grammar, n, seed).items()}}


def card(source: str, grammar: PCFG, found: dict[str, Any] | None) -> dict[str, Any]:
    kind = KINDS.get(source.removeprefix(PREFIX).split(",")[0]) if source.startswith(PREFIX) else None
    about: dict[str, Any] = {"name": source}
    if isinstance(kind, GrammarKind):
        about |= {"what": kind.what, "source": kind.source, "parameters": kind.parameters()}
    sizes = {"interminals": grammar.n_interminals, "preterminals": grammar.n_preterminals, "words": grammar.n_words,
             "binary_rules": len(grammar.binary), "lexical_rules": len(grammar.lexical)}
    return about | {"sizes": sizes} | (found or {"hash": frozen_hash(grammar), "numbers": {}})


def print_table(cards: list[dict[str, Any]]) -> None:
    width = max(len("grammar"), *(len(one["name"]) for one in cards))
    print(f"{'grammar':<{width}} {'symbols':>9} {'words':>5} {'rules':>6} "
          + " ".join(f"{name:>14}" for name in COLUMNS))
    for one in cards:
        sizes, numbers = one["sizes"], one["numbers"]
        print(f"{one['name']:<{width}} {sizes['interminals']:>5}+{sizes['preterminals']:<3} {sizes['words']:>5} "
              f"{sizes['binary_rules'] + sizes['lexical_rules']:>6,} "
              + " ".join(f"{with_error(numbers.get(key)):>14}" for key in COLUMNS.values()))


def print_details(cards: list[dict[str, Any]]) -> None:
    for one in cards:
        print(f"\n{one['name']}")
        if "what" in one:
            parameters = ", ".join(f"{name}={value}" for name, value in one["parameters"].items()) or "none"
            print(f"  what        {one['what']}\n  source      {one['source']}\n  parameters  {parameters}")
        print(f"  hash        {one['hash']}")
        print(f"  measured    on {one['sentences']:,} sentences, seed {one['seed']}" if one["numbers"] else
              "  measured    not with these parameters; add --measure")


def with_error(number: list[float] | None) -> str:
    if number is None:
        return ""
    value, error = number
    return f"{value:.4g}" if error == 0 else f"{value:.3f} ±{error:.1g}"
