"""What a run would do and what it would cost, without doing it; and what can be refused before the first hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcfg_artifact.errors import ConfigError, TreebankError, UsageError
from pcfg_artifact.judge.judge import MINIMUM_SEEDS, Run, why_not_applicable
from pcfg_artifact.metrics.models import roles_of
from pcfg_artifact.run import freshness, stage_folder
from pcfg_artifact.run.config import Profile, as_json, profile_names
from pcfg_artifact.run.expected import expected_hash, load_record, settings_hash
from pcfg_artifact.run.stage_folder import Manifest
from pcfg_artifact.run.stage_work import work_lines
from pcfg_artifact.system import machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.treebank import splits
from pcfg_artifact.treebank.reading import read_treebank, source_hash

# Inputs that are not stages: the trees, and what verify compares with.
TREEBANK, EXPECTED = "treebank", "expected_results"


@dataclass(frozen=True)
class Stage:
    """A line of the pipeline's table."""

    name: str
    reads: tuple[str, ...]
    what: str
    rooms: tuple[str, ...] = ()  # folders and files of the package that it depends on, beside freshness.EVERY_STAGE
    keeps: tuple[str, ...] = ()  # parts of its folder that a change of its config or code need not concern


@dataclass(frozen=True)
class PlannedStage:
    """One line of the plan; without a reason to run the stage is skipped."""

    stage: Stage
    reason: str | None


def plan(profile: Profile, out: Path, stages: Sequence[Stage], *, force: bool = False) -> list[PlannedStage]:
    """What a run would do, without doing it."""
    planned: list[PlannedStage] = []
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
        planned.append(PlannedStage(stage, reason))
    return planned


def why_run(profile: Profile, out: Path, stage: Stage, inputs: dict[str, str]) -> str | None:
    """Why the stage must run, or None."""
    return freshness.why_run(Manifest.read(out / stage.name), out / stage.name, profile.stage(stage.name), inputs,
                             freshness.stage_code(stage.name, stage.rooms))


def input_hashes(profile: Profile, out: Path, stage: Stage) -> dict[str, str]:
    """Input -> hash of what it holds now."""
    hashes = {}
    for name in stage.reads:
        if name == TREEBANK:
            hashes[name] = source_hash(profile.treebank)
        elif name == EXPECTED:
            hashes[name] = expected_hash()
        else:
            manifest = Manifest.read(out / name)
            if manifest is None:
                raise UsageError(f"stage {stage.name!r} needs {name!r}, which is not done in {out}; "
                                 f"run it first, e.g. with --from {name}")
            hashes[name] = manifest.output_hash
    return hashes


# ---- costs ----------------------------------------------------------------------------------------------------------


def describe(profile: Profile, out: Path, stages: Sequence[Stage], *, force: bool = False) -> str:
    """The plan as text: every stage, whether it runs and why, and what it costs in this profile."""
    lines = [f"profile {profile.name}, treebank {profile.treebank}, output {out}",
             f"{'stage':<12} {'action':<7} {'time':>9} {'disk':>9}  reason"]
    total_seconds = total_megabytes = 0.0
    for planned in plan(profile, out, stages, force=force):
        seconds, megabytes = profile.cost[planned.stage.name]
        if planned.reason:
            total_seconds += seconds
            total_megabytes += megabytes
        lines.append(f"{planned.stage.name:<12} {'run' if planned.reason else 'skip':<7} {_duration(seconds):>9} "
                     f"{megabytes:>6,.0f} MB  {planned.reason or 'done: same code, same config, same inputs'}")
    lines.append(f"{'to do':<12} {'':<7} {_duration(total_seconds):>9} {total_megabytes:>6,.0f} MB  "
                 f"estimated for the profile as it stands, on {profile.cost['machine']}")
    if any(stage.name == "pretrain" for stage in stages):
        lines += _training_lines(profile)
    lines += [line for stage in stages for line in _probing_lines(profile, stage.name)]
    lines += work_lines(profile, [stage.name for stage in stages])
    lines += [line for stage in stages if stage.name == "verify" for line in _judge_lines(profile, stage)]
    return "\n".join(lines)


def _judge_lines(profile: Profile, verify: Stage) -> list[str]:
    """Whether the recorded numbers will apply: a run of an hour on other trees would say so at its end only."""
    record = load_record(profile.verify.expected)
    try:
        treebank = source_hash(profile.treebank)
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


def _training_lines(profile: Profile) -> list[str]:
    """What each model of the profile takes, by arithmetic: sizes come from `cost.training`, speeds from estimate.py."""
    from pcfg_artifact.mlm import estimate as speeds  # here, because it brings transformers
    from pcfg_artifact.mlm.estimate import estimate

    cfg, about = profile.pretrain, profile.cost["training"]
    lines = [f"pre-training, for {about['words']:,} words and sentences of {about['mean_length']} words on average, "
             f"{about['processes']} {about['device']} process(es) a model:"]
    for name, shape in _shapes(profile).items():
        cost = estimate(shape, steps=cfg.steps, batch_size=cfg.batch_size, batch_tokens=cfg.batch_tokens,
                        mean_length=about["mean_length"], mask_rate=cfg.mask_rate, packing=cfg.packing,
                        device=about["device"], n_processes=about["processes"])
        lines.append(f"  {name:<10} {cost.steps:>7,} steps {_duration(cost.seconds):>9} {cost.megabytes:>8,.0f} MB of "
                     f"memory a process")
    device = about["device"]
    lines.append(f"  at {speeds.OPERATIONS_PER_SECOND[device]:.0e} operations/s a process and "
                 f"{1000 * speeds.SECONDS_PER_LAYER[device]:g} ms a layer and step ({speeds.SOURCE[device]})")
    return lines


def _probing_lines(profile: Profile, stage: str) -> list[str]:
    """What a probing stage does, by arithmetic: fits, the disk that it gives back, and seconds."""
    if stage not in ("probe", "control"):
        return []
    from pcfg_artifact.probing import workload  # here, because it brings torch

    whose = "the two deepest models" if stage == "probe" else "the base model"
    about = profile.cost["training"]
    device, n_devices = about["device"], about["processes"] if about["device"] == "cuda" else about["cores"]
    seconds = sum(work.seconds(device) for work in probing_work(profile, stage)) / n_devices
    return [f"{stage}: {n_fits(profile, stage):,} fits, {scratch_bytes(profile, stage) / 1e9:,.2f} GB of hidden states "
            f"at a time ({whose}, {profile.probe.precision}), given back at the end",
            f"  {_duration(seconds)} of fitting on {n_devices} {'GPUs' if device == 'cuda' else 'cores'}, every "
            f"logistic regression with all its {profile.probe.linear_iterations:,} steps, at "
            f"{workload.OPERATIONS_PER_SECOND[device]:.1e} operations/s ({workload.SOURCE[device]})"]


def fitted_tasks(profile: Profile, stage: str) -> Iterator[tuple[int, bool, int]]:
    """(hidden states side by side, whether the answers are labels, words that a sentence has more than examples) of
    every task of every layer of every model, once for each corpus."""
    from pcfg_artifact.mlm.model import parse_shape  # here, because it brings transformers

    cfg, base = profile.probe, roles_of(profile.pretrain.models).base
    models = [base] if stage == "control" else [*profile.pretrain.models, *([base] if cfg.random_weights else [])]
    for number, name in enumerate(models):
        assert name is not None  # every profile has a base model
        is_base = name == base and number < len(profile.pretrain.models)  # the untrained one is another model
        n_layers = parse_shape(name).layers + 1
        for layer in range(n_layers):
            yield 2, True, 1
            if stage == "probe":
                for asked, width in ((cfg.adjacent, 3), (cfg.nary, 2)):
                    if asked == "all" or (asked == "base" and is_base):
                        yield width, True, 1
            if cfg.marginal_layers == "all" or layer in (0, n_layers - 1):
                yield from ((2, False, width - 1) for width in cfg.widths)


def n_fits(profile: Profile, stage: str) -> int:
    """Fits of a probing stage: tasks x probes, on sampled text and on the treebank."""
    return sum(1 for _ in fitted_tasks(profile, stage)) * len(profile.probe.probes) * (2 if stage == "probe" else 1)


def probing_work(profile: Profile, stage: str) -> Iterator[Any]:
    """The work of every fit of a stage."""
    from pcfg_artifact.probing.probes import build_probes
    from pcfg_artifact.probing.workload import work_of_fit

    cfg, mean_length = profile.probe, profile.cost["training"]["mean_length"]
    probes = build_probes(cfg.probes, as_json(cfg))
    for width, has_labels, n_lost in fitted_tasks(profile, stage):
        n = cfg.n_train * max(mean_length - n_lost, 0)
        for probe in probes.values():
            work = work_of_fit(probe, n, width * profile.pretrain.width, has_labels=has_labels,
                               n_seeds=cfg.n_seeds if probe.has_seeds else 1)
            yield from [work] * (2 if stage == "probe" else 1)


def _shapes(profile: Profile) -> dict[str, Any]:
    """The models of the profile as transformers' configs, for as many words as its costs assume."""
    from pcfg_artifact.mlm.objectives import config_of  # here, because it brings transformers

    cfg = profile.pretrain
    return {name: config_of(name, cfg, profile.cost["training"]["words"]) for name in cfg.all_models}


def scratch_bytes(profile: Profile, stage: str) -> int:
    """Disk that a stage uses and gives back: hidden states, one row a word and two marks, of the two deepest models,
    since those of the next are written while the fits of one still run.

    Probing reads sampled text and the treebank, for training and for testing; control tasks read the treebank alone,
    with one model; causal models read sampled text.
    """
    probe, reading, pretrain = profile.probe, profile.incremental, profile.pretrain
    n_sentences, precision, models = {
        "probe": (2 * (probe.n_train + probe.n_test), probe.precision, pretrain.models),
        "control": (probe.n_train + probe.n_test, probe.precision, pretrain.models),
        "incremental": (reading.n_train + reading.n_test, "float32", pretrain.causal_models),
    }.get(stage, (0, "float32", ()))
    if not models:
        return 0
    from pcfg_artifact.mlm.model import parse_shape  # here, because it brings transformers

    n_rows = int(n_sentences * (profile.cost["training"]["mean_length"] + 2))
    n_layers = sorted(parse_shape(name).layers + 1 for name in models)
    n_layers += n_layers[-1:] if stage == "probe" and probe.random_weights else []  # the base model is the deepest
    n_kept = sum(sorted(n_layers)[-2:]) if stage == "probe" else n_layers[-1]
    return n_rows * pretrain.width * np.dtype(precision).itemsize * n_kept


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# ---- refusals -------------------------------------------------------------------------------------------------------


def refuse_early(profile: Profile, out: Path, stages: Sequence[Stage], force: bool) -> str | None:
    """Refuse before any work is done what would fail hours later; returns what to say where nothing is refused."""
    megabytes = sum(profile.cost[stage.name][1] for stage in stages
                    if force or Manifest.read(out / stage.name) is None)
    peak = max((scratch_bytes(profile, stage.name) for stage in stages), default=0)  # removed before the next stage
    need = machine.Need(profile.machine.device, profile.machine.n_gpus, profile.pretrain.processes,
                        megabytes / 1024 + peak / machine.GB)
    hardware = machine.read_hardware(out)
    problems = machine.machine_problems(hardware, need)
    if any(stage.name == "pretrain" for stage in stages):
        _shapes(profile)  # an impossible one is a ConfigError
        n_processes = machine.training_processes(hardware, need)
        if n_processes > profile.pretrain.batch_size:
            problems.append(f"{n_processes} processes would share batches of {profile.pretrain.batch_size} rows; lower "
                            f"pretrain.processes or machine.n_gpus, or raise pretrain.batch_size")
    if any(stage.name == "probe" for stage in stages):
        from pcfg_artifact.probing.probes import check_names  # here, because it brings torch

        check_names(profile.probe.probes)
    if any(stage.name == "verify" for stage in stages) and profile.verify.expected not in profile_names():
        raise ConfigError(f"verify.expected is {profile.verify.expected!r}, expected one of "
                          f"{', '.join(profile_names())}: the profile whose recorded results a run is compared with")
    if profile.verify.expected == "paper" and not (out / "grammar" / stage_folder.MANIFEST).is_file():
        treebank = read_treebank(profile.treebank, skip_bad_trees=profile.grammar.skip_bad_trees, progress=progress)
        sections = {name: len(trees) for name, trees in splits.wsj_sections(treebank).items()}
        problems += splits.wsj_problems(sections, splits.WSJ_TRAIN, splits.WSJ_TEST, splits.WSJ_TRAIN_TREES,
                                        splits.WSJ_TEST_TREES)
    if problems:
        raise UsageError("this run cannot succeed:\n" + "\n".join(f"- {problem}" for problem in problems))
    unused = machine.unused_gpu(hardware) if profile.machine.device == "auto" else None
    return f"running on the CPU: {unused}" if unused else None
