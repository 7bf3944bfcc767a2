"""What the README says of the claims, and the tables of other pages, are what the recorded runs say."""

import re
from collections import Counter
from itertools import pairwise
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


@pytest.mark.parametrize("profile", ["smoke", "reduced"])
def test_tables_that_follow_from_a_record_are_those_of_the_committed_one(profile):
    docs = README.parent / "docs"
    for page, tables in page_tables(load_record(profile), load_relations()).items():
        text = (docs / page).read_text(encoding="utf-8")
        for name, table in tables.items():
            assert BEGIN.format(name=name) in text, (page, name)
            assert fill(text, name, table) == text, f"{page}, {name}: run `record --profile {profile} --judge-again`"
