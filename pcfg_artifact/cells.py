"""The names of all numbers: the cells (table, row, column) of metrics.csv, for those who write and those who read them.

A row or a column is put together here and nowhere else; artifacts.Metric(*cell, seed, value, n, unit) is one row of
the file.  owners.py says which stage writes a table, and which function computes its values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

# ---- cells -------------------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """The name of one number."""

    table: str
    row: str
    column: str

    def __str__(self) -> str:
        return f"{self.table} / {self.row} / {self.column}"


@dataclass(frozen=True)
class Indexed:
    """Names that differ in an index alone, such as L0, L1, ...: made from it, and read back."""

    prefix: str

    def __call__(self, index: int) -> str:
        return f"{self.prefix}{index}"

    def index(self, name: str) -> int | None:
        """The index in a name of this kind; None for any other name."""
        rest = name[len(self.prefix):]
        return int(rest) if name.startswith(self.prefix) and rest.isdigit() else None


LAYER = Indexed("L")  # of a model: 0 holds the embeddings
SPAN_LENGTH = Indexed("l=")  # of the spans whose marginals are probed
SPAN_WIDTH = Indexed("width ")  # of the spans that F1 counts
HEAD = Indexed("head ")
CONSTRUCTED_LAYER = Indexed("layer ")
STATES = Indexed("m=")  # latent states of a symbol, at most
RANK = {kind: Indexed(f"{kind} ") for kind in ("interminal", "preterminal")}


def natural(text: str) -> list[tuple[int, int, str]]:
    """A sort key under which L2 comes before L10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]


# ---- texts and settings ----------------------------------------------------------------------------------------------


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


SAMPLED_TRAIN = Text("PCFG train", "probe_train", is_sampled=True, is_training=True)
SAMPLED_TEST = Text("PCFG test", "probe_test", is_sampled=True, is_training=False)
TREEBANK_TRAIN = Text("PTB train", "train", is_sampled=False, is_training=True)
TREEBANK_TEST = Text("PTB test", "test", is_sampled=False, is_training=False)
TEXTS = (SAMPLED_TRAIN, SAMPLED_TEST, TREEBANK_TRAIN, TREEBANK_TEST)

SAMPLED = Setting("PCFG", SAMPLED_TRAIN, SAMPLED_TEST)
OUT_OF_DISTRIBUTION = Setting("OOD", SAMPLED_TRAIN, TREEBANK_TEST)
TREEBANK = Setting("PTB", TREEBANK_TRAIN, TREEBANK_TEST)
SETTINGS = (SAMPLED, OUT_OF_DISTRIBUTION, TREEBANK)


# ---- F1 --------------------------------------------------------------------------------------------------------------

SENTENCE_F1, CORPUS_F1 = "sentence_f1", "corpus_f1"  # convention PB


class _Convention(Protocol):
    @property
    def name(self) -> str: ...


class F1(Protocol):
    """What parsing's span_f1 returns."""

    @property
    def convention(self) -> _Convention: ...
    @property
    def sentence(self) -> float: ...
    @property
    def corpus(self) -> float: ...
    @property
    def n_sentences(self) -> int: ...
    @property
    def n_skipped(self) -> int: ...


class Measurement(NamedTuple):
    """A value and how many items it rests on."""

    value: float
    n: int


def f1_columns(f1: F1, detail: str = "", *, counts_skipped: bool = True) -> dict[str, Measurement]:
    """Columns for the two F1 of a parser, in percent, under the convention's suffix (none for PB) and a `detail`.

    n of sentence F1: the sentences with spans on both sides, over which it is a mean.  n of corpus F1: every sentence
    that was parsed, since all of them are in the summed counts.  The tables of the probes print the former for both
    (`counts_skipped=False`): their columns stand beside accuracies of the same sentences.
    """
    suffix = "" if f1.convention.name == "PB" else f"_{f1.convention.name}"
    n_corpus = f1.n_sentences + (f1.n_skipped if counts_skipped else 0)
    return {f"{SENTENCE_F1}{suffix}{detail}": Measurement(f1.sentence, f1.n_sentences),
            f"{CORPUS_F1}{suffix}{detail}": Measurement(f1.corpus, n_corpus)}


def unit_of(column: str) -> str:
    """The unit of a probe's score: F1 in percent, all else as a fraction."""
    return "percent" if "f1" in column or SPAN_WIDTH.index(column) is not None else "fraction"


# ---- stages grammar, sample, marginals -------------------------------------------------------------------------------

MAIN_VARIANT = "vm"  # of the grammar: tables of the other carry its name


def grammar_size(name: str, variant: str) -> Cell:
    return Cell("grammar", name, variant)


def preterminals_of_top(n_interminals: int) -> str:
    return f"preterminals_of_top{n_interminals}"


def treebank_count(name: str) -> Cell:
    return Cell("treebank", name, "trees")


def frequency(kind: str, rank: int, variant: str) -> Cell:
    return Cell("figure_frequency", RANK[kind](rank), variant)


def sampled(split: str, what: str) -> Cell:
    return Cell("sample", split, what)


def parser_score(parser: str, setting: str, column: str) -> Cell:
    return Cell("marginals", parser, f"{setting} {column}")


def optimum(masks: str) -> Cell:
    return Cell("optimum", masks, "validation")


def every_sentence(setting: str) -> str:
    """The exact parser's row of F1 by width over all test sentences, beside those of the probes' test sentences."""
    return f"all IO {setting}"


def f1_by_width(row: str, width: int) -> Cell:
    return Cell("f1_by_length", row, SPAN_WIDTH(width))


# ---- stages construct, approximate -----------------------------------------------------------------------------------


def constructed_model(name: str, variant: str) -> str:
    return name if variant == MAIN_VARIANT else f"{name} {variant}"


def constructed_size(model: str, size: str, column: str) -> Cell:
    return Cell("sizes", f"{model} {size}", column)


def agreement(model: str, chart: str, length: int | None = None) -> Cell:
    """Largest error of a chart, over all sentences or those of one length."""
    return Cell("agreement", model, chart if length is None else f"{chart} length {length}")


def agreement_by_layer(model: str, layer: int) -> Cell:
    return Cell("agreement_by_layer", model, CONSTRUCTED_LAYER(layer))


def constructed_score(model: str, column: str) -> Cell:
    return Cell("constructed", model, column)


EXACT = "exact"


def approximation_table(name: str, variant: str) -> str:
    return name if variant == MAIN_VARIANT else f"{name}_{variant}"


def few_symbols(n_interminals: int | None, n_preterminals: int) -> str:
    """A row: the most frequent in-terminals (None: all) with the most frequent pre-terminals."""
    return f"I={'all' if n_interminals is None else n_interminals},P={n_preterminals}"


def low_rank(rank: int, n_interminals: int, n_preterminals: int) -> str:
    return f"k={rank},{few_symbols(n_interminals, n_preterminals)}"


def ablation(what: str, rank: int) -> str:
    return f"{what}, k={rank}"


# ---- stage pretrain --------------------------------------------------------------------------------------------------

PRETRAINED = "table3"  # its rows are the models of a run


def perplexity(model: str, split: str) -> Cell:
    return Cell(PRETRAINED, model, f"{split}_perplexity")


def loss_curve(model: str, step: int, part: str) -> Cell:
    return Cell("loss_curve", model, f"step {step} {part}")


def loss_floor() -> Cell:
    """The validation loss of the exact optimum under the masks of training."""
    return Cell("loss_curve", "exact optimum", "validation")


def curve_step(column: str, part: str) -> int | None:
    """The step of a point of the `training` or `validation` curve; None for a point of another."""
    match = re.fullmatch(rf"step (\d+) {part}", column)
    return int(match[1]) if match else None


def against_optimum(model: str, masks: str, column: str) -> Cell:
    return Cell("against_optimum", f"{model} {masks}", column)


def optimum_gap(model: str, group: str, column: str) -> Cell:
    return Cell("optimum_gap", f"{model} {group}", column)


def gap_group(circumstance: str, label: str) -> str:
    return f"{circumstance} {label}"


def gap_labels(rows: Iterable[str], circumstance: str) -> list[str]:
    """Labels of a circumstance that any model's rows have, in order."""
    return sorted({row.split(f" {circumstance} ", 1)[1] for row in rows if f" {circumstance} " in row}, key=natural)


# ---- stage incremental -----------------------------------------------------------------------------------------------

NEXT_WORD = "next_word"  # its rows are the causal models of a run
SO_FAR, WHOLE = "exact so far", "exact whole"  # exact inference from the words up to here, and from the sentence
OPEN, RELATIVE_DEPTH = "open", "relative depth"
OF_TREE, OF_POSTERIOR = "tree", "posterior"  # what a probe is fitted to and scored on
AT_END = "end"


def next_word(model: str, column: str) -> Cell:
    return Cell(NEXT_WORD, model, column)


def next_word_gap(model: str, group: str, column: str) -> Cell:
    return Cell("next_word_gap", f"{model} {group}", column)


def ending_span(width: int, delay: int = 0) -> str:
    """The question whether a span of this width ended at the word, or `delay` words before it."""
    return f"span {width}" if not delay else f"span {width} +{delay}"


def known_at_best(question: str, target: str, source: str) -> Cell:
    """`source`: a model at its best layer, or exact inference."""
    return Cell("incremental", question if target == OF_TREE else f"{question} {target}", source)


def known_by_layer(model: str, question: str, target: str, layer: int) -> Cell:
    return Cell("figure_incremental", f"{model} {question} {target}", LAYER(layer))


def after_end(delay: int) -> str:
    """When a span that ends at j is looked at: at j, j+1, ..."""
    return f"j+{delay}" if delay else "j"


def settled(when: str, column: str) -> Cell:
    return Cell("settled", when, column)


# ---- stages intervene, dynamics --------------------------------------------------------------------------------------

CONSTRUCTED = "theorem_3.2"  # the transformer whose coordinates are known: the positive control
STEP = Indexed("step ")


STANDARD_ERROR = "standard_error"  # a unit of its own: it scatters in proportion to its size


def error_of(column: str) -> str:
    """The standard error of a column's number, over sentences."""
    return f"{column} error"


def intervention(model: str, way: str, column: str) -> Cell:
    """At the middle layer; `way`: how states were changed."""
    return Cell("interventions", f"{model} {way}" if way else model, column)


def intervention_by_layer(model: str, way: str, layer: int, column: str) -> Cell:
    return Cell("figure_interventions", f"{model} {way} {LAYER(layer)}", column)


def intervention_by_group(model: str, way: str, group: str, column: str) -> Cell:
    """`group`: a width of spans, or a distance of the masked word; at the middle layer."""
    return Cell("intervention_groups", f"{model} {way} {group}", column)


def while_training(model: str, quantity: str, step: int) -> Cell:
    return Cell("figure_dynamics", f"{model} {quantity}", STEP(step))


def half_way(model: str, quantity: str) -> Cell:
    """The step at which a quantity has gone half of its way from before training to its end."""
    return Cell("dynamics", f"{model} {quantity}", "half-way step")


# ---- stages probe, control, attention --------------------------------------------------------------------------------

TREES, ADJACENT_TREES = "EOS", "ADJ"  # names of the tree tasks: what the probe reads beside a word
TABLE7_LENGTHS = tuple(map(SPAN_LENGTH, (2, 5, 10)))
# The paper shows one probe where both would be too much: its 2-layer one for marginals, its linear one for trees.
MARGINAL_PROBE, TREE_PROBE = "2-layer", "linear"


def nary(task: str) -> str:
    """The tree task with the treebank's own n-ary labels."""
    return f"{task} nary"


def layer_row(model: str, probe: str, setting: str, task: str, metric: str) -> str:
    return f"{model} {probe} {setting} {task} {metric}"


def layer_score(model: str, probe: str, setting: str, task: str, metric: str, layer: int) -> Cell:
    return Cell("figure_layers", layer_row(model, probe, setting, task, metric), LAYER(layer))


def marginal_row(model: str, probe: str, setting: str, layer: int, metric: str) -> str:
    return f"{model} {probe} {setting} {LAYER(layer)} {metric}"


def marginal_score(model: str, probe: str, setting: str, layer: int, metric: str, task: str) -> Cell:
    return Cell("figure_marginals", marginal_row(model, probe, setting, layer, metric), task)


def best_f1(probe: str, setting: str, metric: str, parser: str) -> Cell:
    """Table 4: `parser` is a model at its best layer, or a parser that no probe is part of."""
    return Cell("table4", f"{probe} {setting} {metric}", parser)


def probes_in(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The probes of a run, in the order of Table 4's rows."""
    ends = tuple(f" {setting.name} {SENTENCE_F1}" for setting in SETTINGS)
    rows = (cell.row for cell in cells if cell.table == "table4")
    return tuple(dict.fromkeys(row.removesuffix(end) for row in rows for end in ends if row.endswith(end)))


def fit_row(model: str, probe: str, setting: str) -> str:
    """The row of one model, probe and setting in the tables best_layer and f1_by_length."""
    return f"{model} {probe} {setting}"


def exact_row(setting: str) -> str:
    """The exact parser's row of f1_by_length, on the probes' test sentences."""
    return f"IO {setting}"


def best_layer(model: str, probe: str, setting: str) -> Cell:
    return Cell("best_layer", fit_row(model, probe, setting), "layer")


def spread(model: str, probe: str, setting: str, metric: str, column: str) -> Cell:
    return Cell("spread", f"{fit_row(model, probe, setting)} {metric}", column)


def pearson_by_length(task: str, model: str, probe: str) -> Cell:
    return Cell("table5", task, f"{model} {probe}")


def correlation(task: str, model: str, metric: str) -> Cell:
    return Cell("table7", task, f"{model} {metric}")


def probing_corpus(text: str, column: str) -> Cell:
    return Cell("probing_corpora", text, column)


SELECTIVITY, CONTROL = "selectivity", "control"


def control_row(probe: str, what: str) -> str:
    """`what`: the task, `control`, or `selectivity`, which is their difference."""
    return f"{probe} {what}"


def control_of_trees(probe: str, what: str, layer: int) -> Cell:
    return Cell("table6", control_row(probe, what), LAYER(layer))


def control_of_marginals(probe: str, what: str, task: str) -> Cell:
    return Cell("table8", control_row(probe, what), task)


def control_by_layer(layer: int, probe: str, what: str, task: str) -> Cell:
    return Cell("figure_selectivity", f"{LAYER(layer)} {control_row(probe, what)}", task)


def attention_row(model: str, setting: str, layer: int) -> str:
    return f"{model} {setting} {LAYER(layer)}"


def attended_distance(model: str, setting: str, layer: int, head: int) -> Cell:
    return Cell("figure_attention", attention_row(model, setting, layer), HEAD(head))


def has_model(row: str, model: str) -> bool:
    """Whether a row that begins with a model's name is this model's."""
    return row.startswith(f"{model} ")


# ---- derived by stage verify, and the tool states --------------------------------------------------------------------


def percentage(row: str, column: str, variant: str) -> Cell:
    return Cell(approximation_table("percentages", variant), row, column)


def near_zero(length: int | str, bound: float) -> Cell:
    """The share of spans of a length whose marginal is below a bound."""
    return Cell("near_zero", SPAN_LENGTH(int(length)), f"below {bound:g}")


def parsing_sensitivity(probe: str, column: str) -> Cell:
    return Cell("sensitivity", f"{probe} parsing", column)


def marginal_sensitivity(probe: str, task: str, column: str) -> Cell:
    return Cell("sensitivity", f"{probe} marginals {task}", column)


PLAIN_GRAMMAR = "PCFG"


def f1_of_states(row: str, column: str) -> Cell:
    """`row`: PCFG, or STATES(m)."""
    return Cell("figure_states", row, column)
