"""Sentences per second of Inside-Outside: our engines, the reference, torch-struct on a small dense grammar, and NLTK
on a grammar that it can hold.

Speeds are per core: sentences over CPU time of the one thread that works, the best of some rounds, so that other work
on the machine changes little.  Peak memory is that of the process while a row runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.useful_work import multiply_adds
from pcfg_artifact.grammar.learning import learn_pcfg
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import Sampler
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.cpu import CpuEngine
from pcfg_artifact.parsing.cpu_kernels.rule_index import compiled
from pcfg_artifact.parsing.differentiable import RuleWeights, leaf_weights, log_weights
from pcfg_artifact.parsing.engine import EngineOptions, inside_outside, sentences_left_to_cpu
from pcfg_artifact.parsing.gpu.arithmetic import BATCH, count
from pcfg_artifact.parsing.leaves import sentence_leaves
from pcfg_artifact.system.gpus import gpu_of
from pcfg_artifact.system.machine import peak_memory_mb, reset_peak_memory, single_thread
from pcfg_artifact.system.random_streams import stream
from pcfg_artifact.tools.arguments import load_treebank
from pcfg_artifact.treebank.splits import split

N_SENTENCES, SHORTEST, LONGEST = 200, 5, 40
GROWTH_LENGTHS, GROWTH_SENTENCES = (10, 20, 40, 80), 12
LONG_LENGTHS = (150, 500)
REFERENCE_LENGTH, REFERENCE_SENTENCES = 12, 2
GRAMMAR_SHARES = (8, 4, 2, 1)  # a grammar from every n-th training tree
DENSE_SHAPES = ((20, 8), (30, 2), (40, 1))  # length, batch
DENSE_INTERMINALS, DENSE_PRETERMINALS, DENSE_WORDS = 30, 60, 100
ROUNDS = 3
GPU_LENGTHS, GPU_SPREAD, GPU_FEW = (10, 25, 40), 2, 8  # words; of the sentences chosen; of those that a core does
TORCH_STRUCT = "torch_struct"
NLTK_INTERMINALS, NLTK_PRETERMINALS, NLTK_WORDS, NLTK_LENGTH = 4, 6, 12, 12


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    with single_thread():
        trees = split(load_treebank(args))
        grammar = learn_pcfg(trees.train)
        sentences = [tree.words() for tree in trees.test if SHORTEST <= len(tree.words()) <= LONGEST][:N_SENTENCES]
        if args.device != "cpu":
            return list(on_gpu(grammar, sentences, args.device))
        return [*engines(grammar, sentences), *growth_with_length(grammar), *long_texts(grammar, sentences),
                *growth_with_grammar(trees.train, sentences), *dense_grammar(), *against_nltk(), *sampler(grammar)]


def timed(work: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, float]:
    """CPU seconds of this thread, the best round, and peak megabytes; one call before is not counted."""
    work()
    reset_peak_memory()
    seconds = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return min(seconds), peak_memory_mb()


def alternately(passes: Sequence[Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.thread_time
                ) -> np.ndarray:
    """Seconds of each, the best of some rounds, taken in turn; one round before, which loads and compiles, is not
    counted."""
    seconds = np.full((rounds + 1, len(passes)), np.inf)
    for r in range(rounds + 1):
        for n, work in enumerate(passes):
            start = clock()
            work()
            seconds[r, n] = clock() - start
    return seconds[1:].min(axis=0)


def row(what: str, size: str, n: int, work: Callable[[], Any], rounds: int = ROUNDS) -> dict[str, Any]:
    seconds, megabytes = timed(work, rounds)
    return {"what": what, "on": size, "sentences/s": n / seconds, "ms/sentence": 1000 * seconds / n,
            "peak MB": round(megabytes)}


def sizes(grammar: PCFG) -> str:
    return (f"I {grammar.n_interminals}, P {grammar.n_preterminals}, {len(grammar.binary):,} rules, "
            f"{len(compiled(grammar).inner.left):,} inner pairs")


def consume(items: Iterator[Any]) -> None:
    for chart in items:
        if chart.n_entries:
            chart.entry_marginals  # noqa: B018 - marginals are computed on access


def consume_each(work: Callable[[Any], Any], items: Sequence[Any]) -> None:
    """Marginals of what `work` makes of each item: a chart, or several."""
    for item in items:
        found = work(item)
        consume(iter([found]) if isinstance(found, Chart) else found)


def engines(grammar: PCFG, sentences: Sequence[list[str]]) -> Iterator[dict[str, Any]]:
    leaves = [sentence_leaves(grammar, sentence) for sentence in sentences]
    mean = np.mean([len(sentence) for sentence in sentences])
    on = f"{len(sentences)} sentences, mean length {mean:.1f}; {sizes(grammar)}"
    cpu = CpuEngine(grammar)
    yield row("cpu: inside", on, len(leaves), lambda: [cpu.log_prob(rows) for rows in leaves])
    best = row("cpu: inside, outside, marginals", on, len(leaves), lambda: consume(map(cpu.chart, leaves)))
    yield with_work(best, sum(multiply_adds(cpu, rows) for rows in leaves) / len(leaves))
    full = CpuEngine(grammar, EngineOptions(outside="full"))
    yield ratio(row("cpu: the same, full outside", on, len(leaves), lambda: consume(map(full.chart, leaves)), 1), best)
    short = [s for s in sentences if len(s) <= REFERENCE_LENGTH][-REFERENCE_SENTENCES:]
    short_leaves = [sentence_leaves(grammar, sentence) for sentence in short]
    on = f"{len(short)} sentences of {', '.join(str(len(s)) for s in short)} words; the same grammar"
    best = row("cpu: inside, outside, marginals", on, len(short), lambda: consume(map(cpu.chart, short_leaves)))
    yield best
    yield ratio(row("reference: the same", on, len(short),
                    lambda: consume(iter(inside_outside(grammar, short, backend="reference"))), 1), best)


def on_gpu(grammar: PCFG, sentences: Sequence[list[str]], device: str) -> Iterator[dict[str, Any]]:
    """Span scores by the engine gpu beside one thread of cpu, by the clock, and what the arithmetic expects of both."""
    from pcfg_artifact.parsing.gpu.gpu_engine import GpuEngine

    gpu, cpu = GpuEngine(grammar, EngineOptions("gpu", device)), CpuEngine(grammar)
    known = gpu_of(torch.cuda.get_device_name(device))
    rules = compiled(grammar)
    for length in GPU_LENGTHS:
        chosen = [sentence for sentence in sentences if abs(len(sentence) - length) <= GPU_SPREAD]
        if not chosen:
            continue
        leaves = [sentence_leaves(grammar, chosen[n % len(chosen)]) for n in range(BATCH)]
        few = leaves[:GPU_FEW]

        def on_cpu(some: Sequence[np.ndarray] = few) -> None:
            for rows in some:
                cpu.chart(rows).span_scores()

        def on_device(all_leaves: Sequence[np.ndarray] = leaves) -> None:
            for _ in gpu.span_scores(all_leaves):
                pass

        ours, theirs = alternately([on_device, on_cpu], ROUNDS, time.perf_counter) / (len(leaves), len(few))
        expected = float(np.mean([count(rules, len(rows), 8 if known.has_double else 4).seconds(known)
                                  for rows in leaves]))
        yield {"what": "gpu: inside, outside, span scores",
               "on": f"{len(leaves)} sentences of about {length} words; {known.name}; {sizes(grammar)}",
               "sentences/s": 1 / ours, "ms/sentence": 1000 * ours, "expected ms": 1000 * expected,
               "times as fast as one core": theirs / ours, "left to cpu": sum(sentences_left_to_cpu(grammar).values())}


def ratio(slower: dict[str, Any], best: dict[str, Any]) -> dict[str, Any]:
    """How many times as long it takes."""
    return {**slower, "times as long": best["sentences/s"] / slower["sentences/s"]}


def growth_with_length(grammar: PCFG) -> Iterator[dict[str, Any]]:
    """Sampled sentences of one length each; exponents, of time and of useful work, are those between this length and
    the one before."""
    engine = CpuEngine(grammar)
    drawn = Sampler(grammar, 0).draw(0, 20_000).tokens
    before: tuple[int, float, float] | None = None
    for length in GROWTH_LENGTHS:
        chosen = np.flatnonzero(drawn.lengths == length)[:GROWTH_SENTENCES]
        leaves = [sentence_leaves(grammar, drawn.row(s).astype(np.int64)) for s in chosen]
        if not leaves:
            continue
        found = row("cpu: growth with length", f"{len(leaves)} sampled sentences of {length} words", len(leaves),
                    partial(consume_each, engine.chart, leaves))
        work = sum(multiply_adds(engine, rows) for rows in leaves) / len(leaves)
        found = with_work(found, work)
        if before is not None:
            found["exponent"] = np.log(found["ms/sentence"] / before[1]) / np.log(length / before[0])
            found["of work"] = np.log(max(work, 1) / max(before[2], 1)) / np.log(length / before[0])
        before = length, found["ms/sentence"], work
        yield found


def with_work(found: dict[str, Any], work: float) -> dict[str, Any]:
    """The row with the useful multiply-adds of a sentence, where they are known."""
    return {**found, "multiply-adds": work, "ns/multiply-add": 1e6 * found["ms/sentence"] / work} if work else found


def long_texts(grammar: PCFG, sentences: Sequence[list[str]]) -> Iterator[dict[str, Any]]:
    """Sentences joined to one text, cut to a length: what a very long sentence takes."""
    engine, text = CpuEngine(grammar), [word for sentence in sentences for word in sentence]
    for length in LONG_LENGTHS:
        leaves = sentence_leaves(grammar, text[:length])
        if len(leaves) == length:
            yield row("cpu: inside, outside, marginals", f"one text of {length} words", 1,
                      partial(consume_each, engine.chart, [leaves]), 1)


def growth_with_grammar(train: Sequence[Any], sentences: Sequence[list[str]]) -> Iterator[dict[str, Any]]:
    for share in GRAMMAR_SHARES:
        grammar = learn_pcfg(train[::share])
        engine = CpuEngine(grammar)
        leaves = [sentence_leaves(grammar, sentence) for sentence in sentences[:50]]
        yield row("cpu: growth with grammar", f"{len(leaves)} sentences; {sizes(grammar)}", len(leaves),
                  partial(consume_each, engine.chart, leaves))


def sampler(grammar: PCFG) -> Iterator[dict[str, Any]]:
    yield row("sampler", "20,000 trees", 20_000, lambda: Sampler(grammar, 0).draw(0, 20_000))


def treebank_sized_grammar(n_interminals: int = 900, n_preterminals: int = 715, n_rules: int = 20_000) -> PCFG:
    """A random grammar with as many rules of each kind, in shares, as CRAFT's has, where pairs of children repeat."""
    rng = stream(0, "bench treebank-sized grammar")
    inner, leaf = np.arange(n_interminals), n_interminals + np.arange(n_preterminals)
    found = set()
    for share, lefts, rights, n_pairs in ((0.26, inner, inner, 0.43), (0.37, inner, leaf, 1.0),
                                          (0.15, leaf, inner, 1.0), (0.22, leaf, leaf, 0.56)):
        n = max(int(share * n_rules), 1)
        pairs = np.stack([rng.choice(lefts, max(int(n * n_pairs), 1)), rng.choice(rights, max(int(n * n_pairs), 1))])
        parents = (n_interminals * rng.random(n) ** 3).astype(int)  # few symbols have most rules
        chosen = pairs[:, rng.integers(pairs.shape[1], size=n)]
        found |= set(zip(parents.tolist(), *chosen.tolist(), strict=True))
    binary = np.array(sorted(found))
    n_of = np.bincount(binary[:, 0], minlength=n_interminals)
    return PCFG(
        interminals=tuple(f"I{a}" for a in inner), preterminals=tuple(f"P{p}" for p in range(n_preterminals)),
        words=tuple(f"w{p}" for p in range(n_preterminals)),
        root=np.concatenate([np.full(n_interminals, 1 / n_interminals), np.zeros(n_preterminals)]),
        binary=binary, binary_prob=1 / n_of[binary[:, 0]], is_proper=False,
        lexical=np.stack([leaf, np.arange(n_preterminals)], axis=1), lexical_prob=np.ones(n_preterminals))


# ---- a dense grammar, for what cannot use sparse rules ---------------------------------------------------------------


def random_dense_grammar(n_interminals: int = DENSE_INTERMINALS, n_preterminals: int = DENSE_PRETERMINALS,
                         n_words: int = DENSE_WORDS) -> PCFG:
    """Every rule over some in-terminals and pre-terminals."""
    rng = stream(0, "bench dense grammar")
    n = n_interminals + n_preterminals
    binary = rng.dirichlet(np.ones(n * n), size=n_interminals).reshape(-1)
    lexical = rng.dirichlet(np.ones(n_words), size=n_preterminals).reshape(-1)
    return PCFG(
        interminals=tuple(f"I{a}" for a in range(n_interminals)),
        preterminals=tuple(f"P{p}" for p in range(n_preterminals)),
        words=tuple(f"w{w}" for w in range(n_words)),
        root=np.concatenate([np.full(n_interminals, 1 / n_interminals), np.zeros(n_preterminals)]),
        binary=np.array(list(product(range(n_interminals), range(n), range(n)))), binary_prob=binary,
        lexical=np.array(list(product(range(n_interminals, n), range(n_words)))), lexical_prob=lexical)


def dense_grammar() -> Iterator[dict[str, Any]]:
    grammar = random_dense_grammar()
    rng = stream(0, "bench dense sentences")
    cpu = CpuEngine(grammar)
    for length, batch in DENSE_SHAPES:
        sentences = rng.integers(DENSE_WORDS, size=(batch, length))
        leaves = [sentence_leaves(grammar, sentence) for sentence in sentences]
        on = f"dense, I {DENSE_INTERMINALS}, P {DENSE_PRETERMINALS}; length {length}, batch {batch}"
        best = row("cpu: inside, outside, marginals", on, batch, partial(consume_each, cpu.chart, leaves))
        yield best
        if find_spec(TORCH_STRUCT) is None:
            yield {"what": "torch-struct: the same", "on": "not installed: pip install torch-struct"}
        else:
            yield ratio(row("torch-struct: the same", on, batch, torch_struct_work(grammar, sentences), 1), best)
        yield from gradients(grammar, sentences, on)


def gradients(grammar: PCFG, sentences: np.ndarray, on: str) -> Iterator[dict[str, Any]]:
    """Log probabilities and their derivatives by every rule, ours and torch-struct's."""
    weights = RuleWeights.of(grammar, requires_grad=True)

    def ours() -> None:
        leaves = [leaf_weights(grammar, sentence, weights.lexical) for sentence in sentences]
        torch.autograd.grad(log_weights(grammar, leaves, weights.root, weights.binary).sum(), list(weights))

    best = row("torch: log probabilities and gradients", on, len(sentences), ours)
    yield best
    if find_spec(TORCH_STRUCT) is not None:
        work = torch_struct_work(grammar, sentences)  # its marginals are the gradient by log weights
        yield ratio(row("torch-struct: the same", on, len(sentences), work, 1), best)


def torch_struct_work(grammar: PCFG, sentences: np.ndarray) -> Callable[[], Any]:
    from torch_struct import SentCFG  # optional: from PyPI

    batch, n, n_interminals = len(sentences), grammar.n_nonterminals, grammar.n_interminals
    leaves = np.stack([sentence_leaves(grammar, sentence) for sentence in sentences])
    rules = torch.as_tensor(grammar.binary_prob.reshape(n_interminals, n, n)).log().expand(batch, -1, -1, -1)
    root = torch.as_tensor(grammar.root[:n_interminals]).log().expand(batch, -1)
    terms = torch.as_tensor(leaves).log()

    def work() -> Any:
        return SentCFG((terms, rules.contiguous(), root.contiguous()),
                       lengths=torch.full((batch,), sentences.shape[1])).marginals
    return work


# ---- NLTK, which finds the best tree ---------------------------------------------------------------------------------


def against_nltk() -> Iterator[dict[str, Any]]:
    """Viterbi, ours and NLTK's, with a small dense grammar: the same tree of the same sentence."""
    grammar = random_dense_grammar(NLTK_INTERMINALS, NLTK_PRETERMINALS, NLTK_WORDS)
    words = stream(0, "bench NLTK sentence").integers(NLTK_WORDS, size=NLTK_LENGTH)
    leaves = sentence_leaves(grammar, words)
    on = f"dense, I {NLTK_INTERMINALS}, P {NLTK_PRETERMINALS}; length {NLTK_LENGTH}"
    best = row("cpu: best tree", on, 1, partial(CpuEngine(grammar).best_tree, leaves))
    yield best
    if find_spec("nltk") is None:
        yield {"what": "NLTK: the same", "on": "not installed: pip install nltk"}
    else:
        yield ratio(row("NLTK: the same", on, 1, nltk_work(grammar, words), 1), best)


def nltk_work(grammar: PCFG, words: np.ndarray) -> Callable[[], Any]:
    from nltk import ViterbiParser  # optional

    parser, sentence = ViterbiParser(grammar.to_nltk()), [grammar.words[w] for w in words]
    return lambda: next(iter(parser.parse(sentence)))
