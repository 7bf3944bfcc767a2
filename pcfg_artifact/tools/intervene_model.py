"""Tell a model that words belong together, or do not, and see what it does with masked words, beside the exact answer.

A linear probe is fitted to the states of one layer on sentences drawn from the grammar; the states of the span's first
and last word are moved until the probe reads 1 ("a constituent") or 0, and the layers above run on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import sample_trees
from pcfg_artifact.interventions.counterfactuals import Span, charts_by_case, constituent_probabilities, masked_charts
from pcfg_artifact.interventions.edit_states import moved, span_inputs, with_span
from pcfg_artifact.interventions.experiment import Masked
from pcfg_artifact.interventions.run_from_layer import layer_states, log_probs_above
from pcfg_artifact.metrics.models import middle_layer
from pcfg_artifact.mlm.encoders import load_masked_lm
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.mlm.tokenizer import check_vocabulary
from pcfg_artifact.parsing.masking import hidden_words, word_distributions
from pcfg_artifact.parsing.masks import Masking
from pcfg_artifact.probing.linear_probe import LinearProbe
from pcfg_artifact.tools.arguments import (
    add_grammar_argument,
    add_text_arguments,
    load_grammar,
    masked_positions,
    one_sentence,
    refuse_counts,
)

EXAMPLE = ('run_all.sh intervene --model runs/smoke/pretrain/models/A4L3 --grammar runs/smoke/grammar/vm --span 3:7 '
           '"the company sells banks in the [MASK] ."')
CASES = ("as it is", "constituent", "no constituent")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_grammar_argument(parser)
    parser.add_argument("--model", required=True, type=Path, metavar="DIR",
                        help="a masked language model of the grammar's words, such as RUN/pretrain/models/A4L3")
    add_text_arguments(parser, "sentence")
    parser.add_argument("--span", required=True, metavar="I:J", help="words I to J-1, counted from 0")
    parser.add_argument("--layer", type=int, help="whose states are moved (half of the layers); 0: the embeddings")
    parser.add_argument("-n", type=int, default=5, help="how many words to list (5)")
    parser.add_argument("--sentences", type=int, default=300, dest="sentences_drawn", metavar="N",
                        help="drawn from the grammar to fit the probe (300)")
    parser.add_argument("--seed", type=int, default=0, help="of these sentences (0)")


def run(args: argparse.Namespace) -> int:
    refuse_counts(("-n", args.n, 1), ("--sentences", args.sentences_drawn, 20), ("--seed", args.seed, 0))
    grammar = load_grammar(args.grammar, weights=args.weights)
    words = one_sentence(args.sentences)
    sentence = masked_sentence(grammar, words)
    span = read_span(args.span, len(words))
    marginal, exact = exact_answer(grammar, sentence, span)
    model, tokenizer = load_masked_lm(args.model)
    check_vocabulary(tokenizer, grammar.words, str(args.model))
    n_layers = model.config.num_hidden_layers
    layer = middle_layer(n_layers) if args.layer is None else args.layer
    if not 0 <= layer <= n_layers:
        raise UsageError(f"--layer is {layer}, expected 0 to {n_layers}, the layers of {args.model}")
    answers, predicted = model_answer(model, grammar, sentence, span, layer, args.sentences_drawn, args.seed)
    found = {"words": words, "span": span, "layer": layer, "exact_probability": marginal, "probe_reads": answers,
             "positions": as_report(grammar, sentence, exact, predicted, args.n)}
    if args.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        print_report(found)
    return 0


def print_report(found: dict[str, Any]) -> None:
    (i, j), answers = found["span"], found["probe_reads"]
    print(f"span {i}:{j} ({' '.join(found['words'][i:j])})")
    print(f"  exact probability that it is a constituent: {found['exact_probability']:.4f}; the probe reads "
          f"{answers[0]:.4f} at layer {found['layer']}, and {answers[1]:.4f} and {answers[2]:.4f} once it is moved")
    print("probabilities of the likeliest words")
    for place in found["positions"]:
        print(f"position {place['position']}: {'exact inference':>34} | {'the model':>34}")
        print(f"  {'':16}" + " |".join("".join(f"{case:>15}" for case in CASES) for _ in range(2)))
        for word, numbers in place["words"].items():
            print(f"  {word:16}" + " |".join("".join(f"{numbers[side][case]:15.4f}" for case in CASES)
                                             for side in ("exact", "model")))


def masked_sentence(grammar: PCFG, words: list[str]) -> MaskedSentence:
    masked = np.array(masked_positions(grammar, words), int)
    ids = grammar.encode(words).astype(np.int64)
    seen = ids.copy()
    seen[masked] = -1
    ids[masked] = 0  # not seen
    return MaskedSentence(0, ids, seen, masked)


def read_span(text: str, length: int) -> Span:
    first, colon, last = text.partition(":")
    if not (colon and first.isdigit() and last.isdigit()):
        raise UsageError(f"--span is {text!r}, expected I:J, for example 2:5 for the words 2, 3 and 4")
    i, j = int(first), int(last)
    if not (0 <= i < j <= length and 1 < j - i < length):
        raise UsageError(f"--span is {text}, expected two words or more, fewer than all {length}, with "
                         f"0 <= I < J <= {length}")
    return i, j


def exact_answer(grammar: PCFG, sentence: MaskedSentence, span: Span) -> tuple[float, list[np.ndarray]]:
    """Probability of the span, and (masked, n_words) for each case; a span that is certain or impossible is refused."""
    charts = next(charts_by_case(grammar, [sentence], [(0, span)]))
    logs = [chart.log_prob for chart in charts]
    for log_prob, what in zip(logs, ("a tree", f"a tree with the span {span[0]}:{span[1]}",
                                     f"a tree without the span {span[0]}:{span[1]}"), strict=True):
        if log_prob == -np.inf:
            raise UsageError(f"the sentence has no probability with {what} under this grammar, so there is nothing to "
                             f"compare; choose another span or sentence")
    return float(np.exp(logs[1] - logs[0])), [word_distributions(grammar, c)[sentence.positions] for c in charts]


def model_answer(model: Any, grammar: PCFG, sentence: MaskedSentence, span: Span, layer: int, n: int, seed: int
                 ) -> tuple[list[float], np.ndarray]:
    """What the probe reads in each case, and (3, masked, n_words) probabilities of the model."""
    drawn = [tree.words() for tree in sample_trees(grammar, n, seed=seed, max_length=40)]
    rate = max(len(sentence.positions) / len(sentence.words), 0.05)
    train = [MaskedSentence(s, *hidden_words(grammar, words, Masking(min(rate, 1.0), "mask"), seed, s))
             for s, words in enumerate(drawn)]
    width = span[1] - span[0]
    marginals = [constituent_probabilities(chart) for chart in masked_charts(grammar, train)]
    states = Masked(train, marginals, layer_states(model, train, layer))
    probe = states.fit(LinearProbe(), width, range(len(train)), seed)
    own = layer_states(model, [sentence], layer)[0]
    x = span_inputs(own, width)[span[0]][None]
    cases = np.concatenate([x, moved(probe, x, 1.0), moved(probe, x, 0.0)])
    predicted = np.exp(log_probs_above(model, layer, with_span(own, span, cases), sentence.positions))
    return [float(answer) for answer in probe.predict(cases.astype(np.float32))[0]], predicted


def as_report(grammar: PCFG, sentence: MaskedSentence, exact: list[np.ndarray], predicted: np.ndarray, n: int
              ) -> list[dict[str, Any]]:
    """For every masked position the likeliest words by exact inference, in every case by both."""
    report = []
    for k, t in enumerate(sentence.positions):
        likeliest = np.argsort(-exact[0][k], kind="stable")[:n]
        report.append({"position": int(t), "words": {grammar.words[w]: {
            side: {case: float(found[c][k, w]) for c, case in enumerate(CASES)}
            for side, found in (("exact", exact), ("model", predicted))} for w in likeliest}})
    return report
