"""Record what a profile gives: run it with one more seed, or run a recorded seed again under other arithmetic.

Call it once per seed; at least three seeds make a record.  Then per arithmetic, once for the whole run and once with
--probes-only, which keeps the seed's models: how far the same seed drifts says how far honest machines lie apart.
An interrupted call continues when it is repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from pcfg_artifact import config, pipeline, storage
from pcfg_artifact.artifacts import Folder, Manifest
from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.machine import asked_arithmetic, available_cores, processor
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
from pcfg_artifact.verification.claim_outcomes import HOLDS
from pcfg_artifact.verification.claims_page import claims_table, detection_table, fill
from pcfg_artifact.verification.expectations import (
    PROBES_ONLY,
    Outcome,
    Record,
    Rerun,
    add_rerun,
    add_seed,
    refuse_other,
    summarise,
)
from pcfg_artifact.verification.history import history_of
from pcfg_artifact.verification.intervention_page import intervention_tables
from pcfg_artifact.verification.relations import Relation
from pcfg_artifact.verification.spread import moved_exact_cells
from pcfg_artifact.verification.training_page import training_tables
from pcfg_artifact.workers.launch import search_path

EXAMPLE = "run_all.sh record --profile smoke; run_all.sh record --profile smoke --arithmetic sse"

# What another processor would do: narrower vectors sum in another order, and older ones round twice where newer ones
# fuse.  The libraries are asked for it by name: PyTorch, its MKL and oneDNN, and NumPy's OpenBLAS.
ARITHMETICS = {
    "sse": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41",
            "OPENBLAS_CORETYPE": "Prescott"},
    "avx": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "AVX", "ONEDNN_MAX_CPU_ISA": "AVX",
            "OPENBLAS_CORETYPE": "Sandybridge"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2",
             "OPENBLAS_CORETYPE": "Haswell"},
    # Other numbers of threads: models are trained by one thread each, but the optimum beside them is not.
    "threads": {},
    # NumPy's OpenBLAS alone, as on an older processor.
    "openblas": {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "512"},
}
LAST_KEPT = "pretrain"
WANTED_SEEDS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", required=True, help="the profile to record")
    parser.add_argument("--treebank", metavar="SOURCE", help="as for a run")
    parser.add_argument("--out", type=named_path, metavar="DIR",
                        help="for the runs, a folder per seed (runs/record-PROFILE)")
    parser.add_argument("--expected", type=Path, default=EXPECTED, metavar="DIR",
                        help="the folder expected_results to read and to write (the repository's)")
    parser.add_argument("--fresh", action="store_true", help="forget the recorded seeds and begin with seed 0")
    parser.add_argument("--arithmetic", choices=sorted(ARITHMETICS), metavar="NAME",
                        help=f"run a recorded seed again under other arithmetic: {', '.join(sorted(ARITHMETICS))}")
    parser.add_argument("--probes-only", action="store_true",
                        help="with --arithmetic: keep the models of the recorded run, and run what comes after them")
    parser.add_argument("--seed", type=int, help="with --arithmetic: which recorded seed (the first)")
    parser.add_argument("--judge-again", action="store_true",
                        help="run nothing: only write again what the recorded runs say of each claim")


def run(args: argparse.Namespace) -> int:
    if args.arithmetic and args.fresh:
        raise UsageError("--arithmetic runs a recorded seed again, --fresh forgets them; give one of the two")
    if (args.probes_only or args.seed is not None) and not args.arithmetic:
        raise UsageError("--probes-only and --seed belong to --arithmetic")
    if args.judge_again:
        record = _recorded(args)
    elif args.arithmetic:
        record = rerun(args, _recorded(args))
    else:
        record = next_seed(args)
    # Explanations outlive --fresh: they are about the claim, and are to be read again when the figures change.
    before = load_record(args.profile, args.expected)
    explained = {} if before is None else {id_: outcome.explanation for id_, outcome in before.outcomes.items()}
    record = dataclasses.replace(record, outcomes=judge_outcomes(record, load_relations(args.expected), explained))
    write_record(record, args.expected)
    write_pages(record, load_relations(args.expected), args.expected.parent / "docs")
    report(record, args.expected)
    return 0


def _recorded(args: argparse.Namespace) -> Record:
    record = load_record(args.profile, args.expected)
    if record is None:
        raise UsageError(f"nothing is recorded for {args.profile} in {args.expected}; record a seed first")
    return record


def next_seed(args: argparse.Namespace) -> Record:
    """The record with one more seed."""
    record = None if args.fresh else load_record(args.profile, args.expected)
    seed = next(s for s in range(1000) if record is None or s not in record.seeds)
    profile = config.load_profile(args.profile, [f"seed={seed}"], args.treebank)
    out = _root(args) / f"seed-{seed}"
    stages = _stages()
    if record is not None:  # before the hours, not after them
        refuse_other(record, source_hash(profile.treebank),
                     settings_hash({stage.name: config.as_json(profile.stage(stage.name)) for stage in stages}))
    print(f"recording {args.profile}, seed {seed}, in {out}")
    pipeline.run(profile, out, stages)  # which runs a stage again whose code has changed
    what, measured, manifests = read_run(args.profile, _folders(out))
    return add_seed(record, args.profile, what.treebank, what.config, seed, measured, what.stages,
                    provenance(manifests))


def rerun(args: argparse.Namespace, record: Record) -> Record:
    """The record with one of its seeds run again, in a process whose libraries are told to calculate otherwise."""
    seed = record.seeds[0] if args.seed is None else args.seed
    name = (PROBES_ONLY if args.probes_only else "") + args.arithmetic
    out = _root(args) / f"seed-{seed}-{name}"
    if args.probes_only:
        keep_models(_root(args) / f"seed-{seed}", out)
    settings = ["seed", str(seed)], *([("machine.n_workers", str(1 if available_cores() > 1 else 2))]
                                      if args.arithmetic == "threads" else [])
    command = [sys.executable, "-m", "pcfg_artifact", "--profile", args.profile, "--out", str(out),
               "--to", _stages()[-1].name, *(f"--set={key}={value}" for key, value in settings),
               *(["--treebank", args.treebank] if args.treebank else [])]
    environment = ARITHMETICS[args.arithmetic]
    print(f"recording the drift of {args.profile}, seed {seed}, under {name}, in {out}", flush=True)
    done = subprocess.run(command, env={**os.environ, **environment, "PYTHONPATH": search_path()}, check=False)
    if done.returncode:
        raise StageError(f"the run under {name} ended with code {done.returncode}; what it finished is in "
                         f"{out}: fix the cause above and run the same command again")
    what, measured, manifests = read_run(args.profile, _folders(out))
    chosen = ", ".join(f"{name}={value}" for name, value in environment.items()) or "one worker, one thread"
    record = add_rerun(record, Rerun(seed, name), what.treebank, what.config, measured,
                       f"{chosen}; {provenance(manifests)}")
    for cell, was, now in moved_exact_cells(record, Rerun(seed, name)):
        print(f"  {cell} must not depend on the arithmetic, and was {was:.10g} and is {now:.10g}")
    return record


def keep_models(before: Path, out: Path) -> None:
    """Link the finished stages of a run, up to its models, into the folder of another."""
    for stage in _stages()[:[stage.name for stage in _stages()].index(LAST_KEPT) + 1]:
        if Manifest.read(before / stage.name) is None:
            raise UsageError(f"{before / stage.name} is not there or not finished; --probes-only keeps the models of "
                             f"the recorded run: record the seed here first, or give its folder with --out")
        if Manifest.read(out / stage.name) is None:
            shutil.rmtree(out / stage.name, ignore_errors=True)
            shutil.copytree(before / stage.name, out / stage.name, copy_function=os.link)


def _root(args: argparse.Namespace) -> Path:
    return args.out or Path(os.environ.get("PCFG_ARTIFACT_OUT", "runs")) / f"record-{args.profile}"


def _stages() -> list[pipeline.Stage]:
    return [stage for stage in pipeline.STAGES if stage.name != "verify"]


def _folders(out: Path) -> dict[str, Folder]:
    return {stage.name: Folder(out / stage.name) for stage in _stages()}


def write_pages(record: Record, relations: list[Relation], docs: Path) -> None:
    """Renew the tables of the pages that show this profile's numbers."""
    tables = page_tables(record, relations)
    for page in map(docs.joinpath, tables):
        if page.is_file():
            text = page.read_text(encoding="utf-8")
            for name, table in tables[page.name].items():
                text = fill(text, name, table)
            storage.write_text(page, text)


def page_tables(record: Record, relations: list[Relation]) -> dict[str, dict[str, str]]:
    """Page -> name of a table on it -> the table: what smoke notices, and what the models of reduced have learned."""
    if record.profile == "smoke":
        return {"CLAIMS.md": {"claims": claims_table(relations), "detection": detection_table(record)}}
    if record.profile == "reduced":
        return {"PRETRAINING.md": training_tables(record), "INTERVENTIONS.md": intervention_tables(record)}
    return {}


def report(record: Record, folder: Path) -> None:
    """What is recorded now, and what is still to be done."""
    failing = [outcome for outcome in record.outcomes.values() if outcome.outcome != HOLDS]
    print(f"{len(record.seeds)} seeds, {len(record.drift)} reruns, {len(record.units)} numbers, {len(record.outcomes)} "
          f"claims, {len(failing)} of them not holding, written to {folder / record.profile}")
    for outcome in failing:
        print(f"  {outcome.relation}: {outcome.by_seed}" + ("" if outcome.explanation else "; write its explanation"))
    some = sorted(str(cell) for cell in record.units if not all(cell in v for v in record.by_seed.values()))
    if some:
        print(f"{len(some)} numbers are not in every seed, for example {some[0]}")
    if len(record.seeds) < WANTED_SEEDS:
        print(f"{WANTED_SEEDS - len(record.seeds)} more seeds are needed: run the same command again")
    tried = {rerun.arithmetic for rerun in record.drift}
    wanted = [name for arithmetic in ARITHMETICS for name in (arithmetic, PROBES_ONLY + arithmetic)]
    if missing := [name for name in wanted if name not in tried]:
        print(f"no drift is recorded under {', '.join(missing)}: `record --profile {record.profile} --arithmetic NAME`"
              f", {PROBES_ONLY}NAME with --probes-only")


def judge_outcomes(record: Record, relations: list[Relation], explained: dict[str, str]) -> dict[str, Outcome]:
    """What each recorded run says of each relation that applies to the profile."""
    outcomes = {}
    for relation in relations:
        if relation.scale == "paper" and record.profile != "paper":
            continue
        history = history_of(record, relation)
        if not history.by_seed:
            continue
        figures = "; ".join(f"seed {seed}: {c.measured} ({c.expected}) {c.where}" for seed, c in
                            history.by_seed.items())
        # of a claim that holds so far, too: it may fail at the next seed
        outcomes[relation.id] = summarise(relation.id, history.holds(), figures, explained.get(relation.id, ""))
    return outcomes


def provenance(manifests: dict[str, Manifest]) -> str:
    """Commit, versions and machine of one run, in one line."""
    here = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        found = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=False)
        return found.stdout.strip() if found.returncode == 0 else ""

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = " with local changes" if git("status", "--porcelain", "--", "pcfg_artifact") else ""
    # a stage that newer code did not touch keeps the version it was made with
    found = sorted({pair for manifest in manifests.values() for pair in manifest.versions.items()})
    versions = ", ".join(f"{name} {version}" for name, version in found)
    device = sorted({str(manifest.machine.get("device")) for manifest in manifests.values()})
    seconds = sum(manifest.seconds for manifest in manifests.values())
    asked = "".join(f", {name}={value}" for name, value in asked_arithmetic().items())
    return (f"commit {commit}{changed}; {versions}; {platform.system()} {platform.machine()}, {processor()}, "
            f"{available_cores()} cores, {'/'.join(device)}{asked}; {seconds:.0f} s")
