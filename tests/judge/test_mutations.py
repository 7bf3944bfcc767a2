"""What a run may get wrong is noticed, by the numbers alone; what an honest run may differ by is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from pcfg_artifact.judge.judge import FAILING, MINIMUM_SEEDS, Run, Verdicts, judge
from pcfg_artifact.judge.recorded_runs import Record
from pcfg_artifact.metrics.models import roles_of, shape_of
from pcfg_artifact.metrics.schema import KEY, Metric
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run.expected import load_claims, load_record

MUTATIONS = yaml.safe_load((Path(__file__).parent / "mutations.yaml").read_text(encoding="utf-8"))
EFFECTS = ("add", "times", "value", "drop", "copy", "swap", "also")
RECORDS = {profile: load_record(profile) for profile in ("smoke", "reduced")}
# Those with seeds enough that one can be left out and judged by the others.
of_many_seeds = pytest.mark.parametrize(
    "record", [profile for profile, found in RECORDS.items() if len(found.seeds) > MINIMUM_SEEDS], indirect=True)


@pytest.fixture(params=RECORDS)
def record(request) -> Record:
    return RECORDS[request.param]


def verdicts(record: Record, metrics: list[Metric], seed: int, claims: tuple = ()) -> Verdicts:
    return judge(Run(record.profile, record.treebank, record.config, seed), Numbers(metrics), [], record, claims)


def without_seed(record: Record, seed: int) -> Record:
    """The record as if that seed had never been run."""
    def others(found: dict) -> dict:
        return {other: value for other, value in found.items() if other != seed}

    claims = {name: dataclasses.replace(claim, outcomes=others(claim.outcomes), values=others(claim.values))
              for name, claim in record.claims.items()}
    return dataclasses.replace(record, by_seed=others(record.by_seed), claims=claims)


class Mutation:
    """One entry of mutations.yaml, for the models of a record."""

    def __init__(self, entry: dict, record: Record) -> None:
        self.roles = roles_of({key[KEY.index("model")] for key in record.units if key[0] == "perplexity"})
        self.changes = entry["change"]

    def __call__(self, metrics: list[Metric]) -> list[Metric]:
        """The numbers with all changes applied to the numbers as they were."""
        before, found = {m.key: m for m in metrics}, {m.key: m for m in metrics}
        for change in self.changes:
            n_changed = sum(self.apply(change, metric, before, found) for metric in metrics
                            if self.concerns(change, metric))
            assert n_changed, f"{change} changes nothing: its names are not those of the record"
        return list(found.values())

    def concerns(self, change: dict, metric: Metric) -> bool:
        for name, wanted in change.items():
            if name in EFFECTS:
                continue
            value = getattr(metric, name)
            if wanted == "trained":
                if shape_of(metric.model) is None:
                    return False
            elif value not in (self.named(one) for one in (wanted if isinstance(wanted, list) else [wanted])):
                return False
        return True

    def named(self, value: Any) -> Any:
        known = {"base": self.roles.base, "fewest_layers": self.roles.fewest_layers,
                 "last": self.roles.layers(self.roles.base)}
        return known.get(value, value) if isinstance(value, str) else value

    def apply(self, change: dict, metric: Metric, before: dict, found: dict) -> int:
        if change.get("drop"):
            del found[metric.key]
        elif "also" in change:
            other = metric.at(**change["also"])
            found[other.key] = other
        elif "copy" in change or "swap" in change:
            (name, pair), = (change.get("copy") or change["swap"]).items()
            one, other = map(self.named, pair)
            if getattr(metric, name) not in ((other,) if "copy" in change else (one, other)):
                return 0
            source = metric.at(**{name: other if getattr(metric, name) == one else one})
            if source.key not in before:
                return 0
            found[metric.key] = metric.at(value=before[source.key].value)
        else:
            value = change.get("value", metric.value * change.get("times", 1) + change.get("add", 0))
            found[metric.key] = metric.at(value=value)
        return 1


@pytest.mark.parametrize("entry", MUTATIONS, ids=[entry["id"] for entry in MUTATIONS])
def test_every_mutation_fails_at_a_recorded_seed_whose_training_repeats(record, entry):
    seed = record.seeds[0]
    found = verdicts(record, Mutation(entry, record)(record.metrics(seed)), seed)
    assert not found.agrees
    assert any(j.verdict in FAILING and any(key[0] == entry["noticed"] for key in j.keys) for j in found.judgements)


@of_many_seeds
@pytest.mark.parametrize("entry", MUTATIONS, ids=[entry["id"] for entry in MUTATIONS])
def test_mutations_of_another_seed_fail_but_for_those_that_are_listed_as_hidden(record, entry):
    seed = record.seeds[0]
    found = verdicts(without_seed(record, seed), Mutation(entry, record)(record.metrics(seed)), seed)
    assert found.agrees == (record.profile in entry.get("hidden_at_another_seed", ()))


def test_every_recorded_seed_agrees_with_its_own_record(record):
    claims = load_claims()
    for seed in record.seeds:
        found = verdicts(record, record.metrics(seed), seed, claims)
        assert found.agrees, found.outside
        assert found.how == "training curves repeat those of the recorded seed"


@of_many_seeds
def test_every_seed_agrees_with_the_record_of_the_others(record):
    claims = load_claims()
    for seed in record.seeds:
        found = verdicts(without_seed(record, seed), record.metrics(seed), seed, claims)
        assert found.agrees, (seed, found.outside, [c.claim.id for c in found.claims if not c.agrees])
