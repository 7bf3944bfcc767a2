"""What the README says of the claims, and the tables of other pages, are what the recorded runs say."""

import re
from collections import Counter
from fnmatch import fnmatchcase
from itertools import pairwise
from math import log
from pathlib import Path

import pytest

from pcfg_artifact.records import load_record, load_relations
from pcfg_artifact.tools.record import page_tables
from pcfg_artifact.verification.claims_page import BEGIN, fill

README = Path(__file__).parents[2] / "README.md"
# The first claim behind each row of the README's table; claims stand in the table's order.
FIRST = ("constructions-exact", "optimum-one-mask", "frequent-nonterminals", "small-models-worst-perplexity",
         "best-layer-beats-layer-0", "two-layer-better-on-marginals", "selectivity-parsing", "attention-grows",
         "causal-above-optimum", "intervention-positive-control")
COUNTS = {"holds": r"(\d+) holds?\b", "fails": r"(\d+) (?:do|does) not", "mixed": r"(\d+) depends? on the seed"}


def claim_table():
    """Profile -> what its column says, a row each."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in README.read_text().splitlines()
            if line.startswith("|")]
    head = next(k for k, row in enumerate(rows) if row[0] == "claims")
    body = rows[head + 2:head + 2 + len(FIRST)]
    return {name: [row[column] for row in body] for column, name in enumerate(rows[head])
            if name in ("smoke", "reduced")}


@pytest.mark.parametrize("profile", claim_table())
def test_the_claim_table_counts_as_the_record_does(profile):
    record, ids = load_record(profile), [relation.id for relation in load_relations()]
    starts = [*map(ids.index, FIRST), len(ids)]
    for said, (first, last) in zip(claim_table()[profile], pairwise(starts), strict=True):
        found = Counter(record.outcomes[id_].outcome for id_ in ids[first:last] if id_ in record.outcomes)
        quoted = {outcome: int(number[1]) if (number := re.search(pattern, said)) else 0
                  for outcome, pattern in COUNTS.items()}
        assert quoted == {outcome: found[outcome] for outcome in COUNTS}, f"{ids[first]}: {said}"


def numbers(table, row, column):
    """Cell -> its numbers by seed, of the record of reduced."""
    record = load_record("reduced")
    found = {cell: [record.by_seed[seed][cell] for seed in record.seeds] for cell in record.units
             if cell.table == table and fnmatchcase(cell.row, row) and fnmatchcase(cell.column, column)}
    assert found, (table, row, column)
    return found


def flat(table, row, column):
    return [number for by_seed in numbers(table, row, column).values() for number in by_seed]


def gains(task):
    """F1 of the base model's best layer above its layer 0 on treebank text, by probe and seed."""
    for probe in ("linear", "2-layer"):
        first, *later = numbers("figure_layers", f"A4L6 {probe} PTB {task} sentence_f1", "L*").values()
        yield from (max(layers) - start for start, *layers in zip(first, *later, strict=True))


def closed():
    """The share of the way from the unigram to the exact masked-word loss, of every model and seed."""
    unigram, exact, model = (flat("against_optimum", "A* mask 0.15", name) for name in ("unigram", "exact", "model"))
    return [log(u / m) / log(u / e) for u, e, m in zip(unigram, exact, model, strict=True)]


def percents(shares, digits=0):
    return f"{100 * min(shares):.{digits}f} to {100 * max(shares):.{digits}f}%"


def correlations(length):
    found = flat("table5", f"l={length}", "A4L6 2-layer")
    return f"{min(found):.2f} to {max(found):.2f}".replace("0.", ".")


def context(probe, length):
    """What the last layer of the base model adds to layer 0 in correlation with marginals, over seeds."""
    first, last = (flat("figure_marginals", f"A4L6 {probe} PTB L{layer} pearson", f"l={length}") for layer in (0, 6))
    found = [b - a for a, b in zip(first, last, strict=True)]
    return f"{min(found):.2f} to {max(found):.2f}".replace("0.", ".")


def test_the_readme_quotes_the_record_of_reduced():
    others = zip(*numbers("table3", "A4L[36]", "validation_perplexity").values(), strict=True)
    apart = max(max(pair) / min(pair) - 1 for pair in others)
    frequent = sum(flat("figure_frequency", f"interminal {rank}", "vm")[0] for rank in range(1, 21))
    adjacent = flat("figure_layers", "A4L6 * PTB ADJ sentence_f1", "L0")
    tree, next_to = list(gains("EOS")), list(gains("ADJ"))
    few, every = (flat("table1", row, "sentence_f1")[0] for row in ("I=20,P=45", "exact"))
    rank = max(abs(k - all_) for score in ("sentence_f1", "corpus_f1") for k, all_ in zip(
        flat("table2", "k=15,I=20,P=45", score), flat("table2", "I=20,P=45", score), strict=True))
    said = " ".join(README.read_text(encoding="utf-8").split())
    for quoted in (
            f"error of any span is {max(flat('agreement', '*', '*side')):.0e}",
            f"close {percents(closed())} of the way from the unigram",
            f"(*in-terminals*) head {frequent:.0%} of all spans",
            f"parse the finer grammar at {few:.0f} F1, all at {every:.0f};",
            f"(*rank 15*) parse like the 20, within {rank:.1f}.",
            f"the two others are within {apart:.1%} of each other",
            f"parses {min(tree):.0f} to {max(tree):.0f} F1 above layer 0",
            f"get {min(adjacent):.0f} to {max(adjacent):.0f} from layer 0, and gain "
            f"{min(next_to):.0f} to {max(next_to):.0f}",
            f"correlates {correlations(2)} with them at two words and {correlations(10)} at ten",
            f"(by a linear probe {context('linear', 2)} at two words)",
            f"close {percents(flat('next_word', '*', 'closed'))} of the way to the exact next word",
            f"{percents(flat('interventions', 'A4L6 linear probe', 'slope'), 1)} of that change for a linear probe",
            f"{percents(flat('interventions', 'A4L6 2-layer probe', 'slope'))} for a 2-layer probe"):
        assert quoted in said
    lost = [on_treebank - elsewhere for on_treebank, elsewhere in zip(
        flat("table4", "* PTB sentence_f1", "A4L6"), flat("table4", "* OOD sentence_f1", "A4L6"), strict=True)]
    assert max(lost) <= 2  # "loses at most 2"
    for width, least, most in ((2, 0.44, 0.53), (3, 0.32, 0.40)):  # "half", "a third"
        assert least < min(flat("incremental", f"span {width} posterior", "C4L[36]"))
        assert max(flat("incremental", f"span {width} posterior", "C4L[36]")) < most


@pytest.mark.parametrize("profile", ["smoke", "reduced"])
def test_tables_that_follow_from_a_record_are_those_of_the_committed_one(profile):
    docs = README.parent / "docs"
    for page, tables in page_tables(load_record(profile), load_relations()).items():
        text = (docs / page).read_text(encoding="utf-8")
        for name, table in tables.items():
            assert BEGIN.format(name=name) in text, (page, name)
            assert fill(text, name, table) == text, f"{page}, {name}: run `record --profile {profile} --judge-again`"
