"""Record what a profile gives: run it with one more seed, and write its numbers and claims to expected_results.

Call it once per seed; five seeds are needed before runs with another seed can be judged.  An interrupted call continues
when it is repeated.  docs/RESULTS.md and the figure of README are made anew from all records.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from pcfg_artifact.errors import UsageError
from pcfg_artifact.judge.claims import FAILS
from pcfg_artifact.judge.judge import MINIMUM_SEEDS
from pcfg_artifact.judge.paper import as_numbers
from pcfg_artifact.judge.recorded_runs import VARIES, Record, add_seed, judge_claims, refuse_other
from pcfg_artifact.judge.results_page import results_page
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run import config, pipeline
from pcfg_artifact.run.expected import (
    EXPECTED,
    load_claims,
    load_paper,
    load_record,
    read_run,
    settings_hash,
    write_record,
)
from pcfg_artifact.run.freshness import provenance
from pcfg_artifact.run.sections import Profile, as_json
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.system import storage
from pcfg_artifact.tools.arguments import named_path
from pcfg_artifact.treebank.reading import source_hash

EXAMPLE = "run_all.sh record --profile smoke"
PROFILES = ("smoke", "reduced", "paper")  # of docs/RESULTS.md, where they are recorded
RESULTS, FIGURE = "RESULTS.md", "figures/f1_by_layer.png"
README_PROFILE = "reduced"  # its treebank is a real one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", required=True, help="the profile to record")
    parser.add_argument("--treebank", metavar="SOURCE", help="as for a run")
    parser.add_argument("--out", type=named_path, metavar="DIR",
                        help="for the runs, a folder per seed (runs/record-PROFILE)")
    parser.add_argument("--expected", type=Path, default=EXPECTED, metavar="DIR",
                        help="the folder expected_results to read and to write (the repository's)")
    parser.add_argument("--fresh", action="store_true", help="forget the recorded seeds and begin with seed 0")
    parser.add_argument("--judge-again", action="store_true",
                        help="run nothing: only write again what the recorded runs say of each claim")


def run(args: argparse.Namespace) -> int:
    before = load_record(args.profile, args.expected)
    if args.judge_again and before is None:
        raise UsageError(f"nothing is recorded for {args.profile} in {args.expected}; record a seed first")
    record = before if args.judge_again and before is not None else next_seed(args, None if args.fresh else before)
    if before is not None:  # explanations are about the claim, and outlive --fresh: read them again
        record = replace(record, claims=before.claims)
    record = judge_claims(record, load_claims(args.expected))
    write_record(record, args.expected)
    page = args.expected.parent / "docs" / RESULTS
    if page.parent.is_dir():
        storage.write_text(page, written_results(args.expected))
        if (png := readme_figure(args.expected)) is not None:
            storage.write_bytes(page.parent / FIGURE, png)
    report(record, args.expected)
    return 0


def written_results(expected: Path = EXPECTED) -> str:
    """docs/RESULTS.md of the records in a folder."""
    records = [found for name in PROFILES if (found := load_record(name, expected)) is not None]
    outdated = [r.profile for r in records if r.config != settings_of(config.load_profile(r.profile))]
    return results_page(records, load_paper(expected), load_claims(expected), outdated)


def readme_figure(expected: Path) -> bytes | None:
    """F1 by layer, mean over the recorded seeds, as a PNG."""
    from pcfg_artifact.judge.figures import trees_at_a_glance  # here, because it brings matplotlib

    record = load_record(README_PROFILE, expected) or load_record("smoke", expected)
    assert record is not None
    means = Numbers(metric for seed in record.seeds for metric in record.metrics(seed))
    drawing = trees_at_a_glance(means, as_numbers(load_paper(expected)))
    return None if drawing is None else drawing.png


def recorded_stages() -> list[pipeline.Stage]:
    """All but the one that judges."""
    return [stage for stage in pipeline.STAGES if stage.name != "verify"]


def settings_of(profile: Profile) -> str:
    """The hash of all settings that numbers depend on: a record is of one."""
    return settings_hash({stage.name: as_json(profile.stage(stage.name)) for stage in recorded_stages()})


def next_seed(args: argparse.Namespace, record: Record | None) -> Record:
    """The record with one more seed."""
    seed = next(s for s in range(1000) if record is None or s not in record.seeds)
    profile = config.load_profile(args.profile, [f"seed={seed}"], args.treebank)
    root = args.out or Path(os.environ.get("PCFG_ARTIFACT_OUT", "runs")) / f"record-{args.profile}"
    out = root / f"seed-{seed}"
    if record is not None:  # before the hours, not after them
        refuse_other(record, source_hash(profile.treebank), settings_of(profile))
    print(f"recording {args.profile}, seed {seed}, in {out}")
    stages = recorded_stages()
    pipeline.run(profile, out, stages)  # which runs a stage again whose code has changed
    what, numbers, manifests = read_run(args.profile, {stage.name: Folder(out / stage.name) for stage in stages})
    if record is None:
        record = Record(args.profile, what.treebank, what.config, {}, {})
    refuse_other(record, what.treebank, what.config)
    return add_seed(record, seed, numbers, provenance(manifests))


def report(record: Record, folder: Path) -> None:
    """What is recorded now, and what is still to be done."""
    failing = {name: claim for name, claim in record.claims.items() if claim.outcome in (FAILS, VARIES)}
    print(f"{len(record.seeds)} seeds, {len(record.units)} numbers and {len(record.claims)} claims, {len(failing)} of "
          f"them failing at some seed, written to {folder / record.profile}")
    for (id_, grammar), claim in failing.items():
        print(f"  {id_} {grammar}".rstrip() + f": {claim.outcome}"
              + ("" if claim.explanation else "; write its explanation into claims.csv"))
    if len(record.seeds) < MINIMUM_SEEDS:
        print(f"{MINIMUM_SEEDS - len(record.seeds)} more seeds are needed: run the same command again")
