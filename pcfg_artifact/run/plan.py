"""What a run would do and what it would cost, without doing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pcfg_artifact.errors import TreebankError, UsageError
from pcfg_artifact.grammar.sources import grammar_hash
from pcfg_artifact.judge.judge import MINIMUM_SEEDS, Run, why_not_applicable
from pcfg_artifact.run import freshness
from pcfg_artifact.run.expected import expected_hash, load_record, settings_hash
from pcfg_artifact.run.refusals import scratch_bytes
from pcfg_artifact.run.sections import Profile, as_json
from pcfg_artifact.run.stage_folder import Manifest
from pcfg_artifact.run.training_plan import training_lines
from pcfg_artifact.system.machine import read_hardware
from pcfg_artifact.system.progress import duration
from pcfg_artifact.treebank.reading import source_hash

# Inputs that are not stages: the trees (or the given grammar), and what verify compares with.
TREEBANK, EXPECTED = "treebank", "expected_results"


@dataclass(frozen=True)
class Stage:
    """A line of the pipeline's table."""

    name: str
    reads: tuple[str, ...]
    what: str
    rooms: tuple[str, ...] = ()  # folders and files of the package that it depends on, beside freshness.EVERY_STAGE
    keeps: tuple[str, ...] = ()  # parts of its folder that a change of its config or code need not concern


def reasons_to_run(profile: Profile, out: Path, stages: Sequence[Stage], *, force: bool = False
                   ) -> Iterator[tuple[Stage, str | None]]:
    """Why each stage would run, None where it would be skipped."""
    pending: set[str] = set()
    for stage in stages:
        upstream = sorted(pending & set(stage.reads))
        reason: str | None
        if upstream:
            reason = f"{', '.join(upstream)} will be made"
        else:
            # A stage before the first one planned must be done already: input_hashes says so if it is not.
            try:
                inputs = input_hashes(profile, out, stage)
                reason = "--force" if force else why_run(profile, out, stage, inputs)
            except TreebankError as error:  # a plan can be read before the data is there
                reason = f"cannot run yet: {error}"
        if reason:
            pending.add(stage.name)
        yield stage, reason


def why_run(profile: Profile, out: Path, stage: Stage, inputs: dict[str, str]) -> str | None:
    """Why the stage must run, or None."""
    return freshness.why_run(Manifest.read(out / stage.name), out / stage.name, profile.stage(stage.name), inputs,
                             freshness.stage_code(stage.name, stage.rooms))


def input_hashes(profile: Profile, out: Path, stage: Stage) -> dict[str, str]:
    """Input -> hash of what it holds now."""
    hashes = {}
    for name in stage.reads:
        if name == TREEBANK:
            hashes[name] = origin_hash(profile)
        elif name == EXPECTED:
            hashes[name] = expected_hash()
        else:
            manifest = Manifest.read(out / name)
            if manifest is None:
                raise UsageError(f"stage {stage.name!r} needs {name!r}, which is not done in {out}; "
                                 f"run it first, e.g. with --from {name}")
            hashes[name] = manifest.output_hash
    return hashes


def origin_hash(profile: Profile) -> str:
    """A hash of the treebank's trees, or of the given grammar."""
    return source_hash(profile.treebank) if profile.given is None else grammar_hash(profile.given)


# ---- costs ----------------------------------------------------------------------------------------------------------


def describe(profile: Profile, out: Path, stages: Sequence[Stage], *, force: bool = False) -> str:
    """The plan as text: every stage, whether it runs and why, and what it costs in this profile."""
    origin = f"treebank {profile.treebank}" if profile.given is None else f"grammar {profile.given}"
    lines = [f"profile {profile.name}, {origin}, output {out}",
             f"{'stage':<12} {'action':<7} {'time':>9} {'disk':>9}  reason"]
    total_seconds = total_megabytes = 0.0
    for stage, reason in reasons_to_run(profile, out, stages, force=force):
        seconds, megabytes = profile.cost[stage.name]
        if reason:
            total_seconds += seconds
            total_megabytes += megabytes
        lines.append(f"{stage.name:<12} {'run' if reason else 'skip':<7} {duration(seconds):>9} "
                     f"{megabytes:>6,.0f} MB  {reason or 'done: same code, same config, same inputs'}")
    lines.append(f"{'to do':<12} {'':<7} {duration(total_seconds):>9} {total_megabytes:>6,.0f} MB  "
                 f"estimated for the profile as it stands, on {profile.cost['machine']}")
    if any(stage.name == "pretrain" for stage in stages):
        lines += training_lines(profile, read_hardware(out))
    lines += [f"{stage.name}: {size / 1e9:,.2f} GB of hidden states on disk at a time, given back at its end"
              for stage in stages if (size := scratch_bytes(profile, stage.name)) > 1e9]
    lines += [line for stage in stages if stage.name == "verify" for line in _judge_lines(profile, stage)]
    return "\n".join(lines)


def _judge_lines(profile: Profile, verify: Stage) -> list[str]:
    """Whether the recorded numbers will apply: a run of an hour on other trees would say so at its end only."""
    record = load_record(profile.verify.expected)
    try:
        treebank = origin_hash(profile)
    except TreebankError:  # the plan's first line says so
        return []
    if record is None:
        return []
    settings = settings_hash({name: as_json(profile.stage(name)) for name in verify.reads if name != EXPECTED})
    if why_not := why_not_applicable(Run(record.profile, treebank, settings), record):
        return [f"verify will evaluate the claims and compare no number: {why_not}"]
    seed, seeds = profile.verify.seed, ", ".join(map(str, record.seeds))
    if seed in record.seeds:
        return [f"verify will compare every number with those of seed {seed}, which is recorded (seeds {seeds})"]
    if len(record.seeds) < MINIMUM_SEEDS:
        return [f"verify will evaluate the claims and compare no number: seed {seed} is not recorded, and to judge "
                f"another seed {MINIMUM_SEEDS} recorded ones are needed (there are {seeds})"]
    return [f"verify will compare the means of all numbers with seeds {seeds}; seed {seed} is not recorded"]
