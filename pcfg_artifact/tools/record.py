"""Record what a profile gives: run it with one more seed, and set the expected values and tolerances anew.

Call it once per seed; at least three seeds make a record.  An interrupted call continues when it is repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import subprocess
from pathlib import Path

from pcfg_artifact import config, freshness, pipeline
from pcfg_artifact.artifacts import Folder, Manifest
from pcfg_artifact.cells import find_roles
from pcfg_artifact.machine import available_cores
from pcfg_artifact.records import (
    EXPECTED,
    load_record,
    load_relations,
    read_run,
    settings_hash,
    write_record,
)
from pcfg_artifact.tools.arguments import named_path
from pcfg_artifact.treebank.reading import source_hash
from pcfg_artifact.verification.expectations import MINIMUM_SEEDS, Outcome, Record, add_seed, refuse_other, summarise
from pcfg_artifact.verification.measured import Value, tabulate
from pcfg_artifact.verification.relations import FAILS, HOLDS, Relation, evaluate

EXAMPLE = "run_all.sh record --profile smoke"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", required=True, help="the profile to record")
    parser.add_argument("--treebank", metavar="SOURCE", help="as for a run")
    parser.add_argument("--out", type=named_path, metavar="DIR",
                        help="for the runs, a folder per seed (runs/record-PROFILE)")
    parser.add_argument("--expected", type=Path, default=EXPECTED, metavar="DIR",
                        help="the folder expected_results to read and to write (the repository's)")
    parser.add_argument("--fresh", action="store_true", help="forget the recorded seeds and begin with seed 0")


def run(args: argparse.Namespace) -> int:
    record = None if args.fresh else load_record(args.profile, args.expected)
    seed = next(s for s in range(1000) if record is None or s not in record.seeds)
    profile = config.load_profile(args.profile, [f"seed={seed}"], args.treebank)
    root = args.out or Path(os.environ.get("PCFG_ARTIFACT_OUT", "runs")) / f"record-{args.profile}"
    out = root / f"seed-{seed}"
    stages = [stage for stage in pipeline.STAGES if stage.name != "verify"]
    if record is not None:  # before the hours, not after them
        refuse_other(record, source_hash(profile.treebank),
                     settings_hash({stage.name: config.as_json(profile.stage(stage.name)) for stage in stages}))
    print(f"recording {args.profile}, seed {seed}, in {out}")
    found = [Manifest.read(out / stage.name) for stage in stages]
    is_stale = any(m is not None and m.versions.get("pcfg_artifact") != freshness.code_hash() for m in found)
    if is_stale:
        print("what is there was made by other code: all of it is made again")
    pipeline.run(profile, out, stages, force=is_stale)

    what, measured, manifests = read_run(args.profile, {stage.name: Folder(out / stage.name) for stage in stages})
    record = add_seed(record, args.profile, what.treebank, what.config, seed, measured, provenance(manifests))
    # Explanations outlive --fresh: they are about the claim, and are to be read again when the figures change.
    before = load_record(args.profile, args.expected)
    explained = {} if before is None else {id_: outcome.explanation for id_, outcome in before.outcomes.items()}
    record = dataclasses.replace(record, outcomes=judge_outcomes(record, load_relations(args.expected), explained))
    write_record(record, args.expected)
    failing = [outcome for outcome in record.outcomes.values() if outcome.outcome != HOLDS]
    print(f"{len(record.seeds)} seeds, {len(record.cells)} numbers, {len(record.outcomes)} claims, {len(failing)} of "
          f"them not holding, written to {args.expected / args.profile}")
    for outcome in failing:
        print(f"  {outcome.relation}: {outcome.by_seed}" + ("" if outcome.explanation else "; write its explanation"))
    some = sorted(str(cell) for cell, expected in record.cells.items() if expected.is_optional)
    if some:
        print(f"{len(some)} numbers are not in every seed, for example {some[0]}")
    if len(record.seeds) < MINIMUM_SEEDS:
        print(f"{MINIMUM_SEEDS - len(record.seeds)} more seeds are needed: run the same command again")
    return 0


def judge_outcomes(record: Record, relations: list[Relation], explained: dict[str, str]) -> dict[str, Outcome]:
    """What each seed says of each relation that applies to the profile."""
    roles = find_roles(record.cells)
    tables = {seed: tabulate({cell: Value(number, record.units[cell]) for cell, number in values.items()})
              for seed, values in record.by_seed.items()}
    outcomes = {}
    for relation in relations:
        if relation.scale == "paper" and record.profile != "paper":
            continue
        found = {seed: evaluate(relation, cells, roles) for seed, cells in tables.items()}
        judged = {seed: f for seed, f in found.items() if f.outcome in (HOLDS, FAILS)}
        if judged:
            figures = "; ".join(f"seed {seed}: {f.measured} ({f.expected}) {f.where}" for seed, f in judged.items())
            outcome = summarise(relation.id, {seed: f.outcome == HOLDS for seed, f in judged.items()}, figures, "")
            if outcome.outcome != HOLDS:
                outcome = dataclasses.replace(outcome, explanation=explained.get(relation.id, ""))
            outcomes[relation.id] = outcome
    return outcomes


def provenance(manifests: dict[str, Manifest]) -> str:
    """Commit, versions and machine of one run, in one line."""
    here = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        found = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=False)
        return found.stdout.strip() if found.returncode == 0 else ""

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = " with local changes" if git("status", "--porcelain", "--", "pcfg_artifact") else ""
    versions = {name: version for manifest in manifests.values() for name, version in manifest.versions.items()}
    device = sorted({str(manifest.machine.get("device")) for manifest in manifests.values()})
    seconds = sum(manifest.seconds for manifest in manifests.values())
    return (f"commit {commit}{changed}; {', '.join(f'{n} {v}' for n, v in versions.items())}; {platform.system()} "
            f"{platform.machine()}, {available_cores()} cores, {'/'.join(device)}; {seconds:.0f} s")
