"""The main path: the table of stages, and how one or all of them run.

A stage is skipped when its folder has a manifest with the same fingerprint (config and input hashes).  Otherwise it
runs, and the log says what changed.  Nothing but a stage's own folder is written.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pcfg_artifact import artifacts, config, preflight, storage
from pcfg_artifact.artifacts import Machine, Manifest
from pcfg_artifact.errors import StageError, TreebankError, UsageError
from pcfg_artifact.stages.expected import expected_hash
from pcfg_artifact.stages.inputs import Inputs
from pcfg_artifact.treebank import splits
from pcfg_artifact.treebank.reading import read_treebank, source_hash

# Inputs that are not stages: the trees, and what verify compares with.
TREEBANK, EXPECTED = "treebank", "expected_results"


@dataclass(frozen=True)
class Stage:
    name: str
    reads: tuple[str, ...]
    what: str
    keeps: tuple[str, ...] = ()  # parts of its folder that a change of its config need not concern


MEASURING = (
    Stage("grammar", (TREEBANK,), "learn the PCFG from the treebank"),
    Stage("sample", ("grammar",), "draw sentences and trees from it"),
    Stage("marginals", ("grammar", "sample"), "run Inside-Outside: span marginals, trees, the optimum of masked words"),
    Stage("approximate", ("grammar",), "run Inside-Outside with few non-terminals and low rank"),
    Stage("construct", ("grammar", "sample"), "build the transformers of the theorems and compare their charts"),
    Stage("pretrain", ("grammar", "sample"), "train masked language models on the sentences",
          keeps=("models", "scratch")),
    Stage("probe", ("grammar", "sample", "marginals", "pretrain"), "read parse trees and marginals from hidden states"),
    Stage("control", ("grammar", "sample", "marginals", "pretrain", "probe"), "hold the probes against random labels"),
    Stage("attention", ("grammar", "sample", "pretrain"), "measure how far attention heads look"),
)
STAGES = (
    *MEASURING,
    Stage("verify", (*(stage.name for stage in MEASURING), EXPECTED), "judge every number and claim, write the report"),
)
NAMES = tuple(stage.name for stage in STAGES)
VERSIONED = ("numpy", "scipy", "numba", "torch", "transformers", "scikit-learn")


@dataclass(frozen=True)
class Step:
    """One line of the plan."""

    stage: Stage
    action: str  # "run", "skip"
    reason: str


def select(first: str | None = None, last: str | None = None, only: str | None = None) -> list[Stage]:
    """The stages from `first` to `last`, or `only` one."""
    for name in (first, last, only):
        if name is not None and name not in NAMES:
            raise UsageError(f"unknown stage {name!r}; the stages are {', '.join(NAMES)}")
    if only is not None and (first is not None or last is not None):
        raise UsageError("--only runs one stage; leave out --from and --to")
    if only is not None:
        return [STAGES[NAMES.index(only)]]
    begin = 0 if first is None else NAMES.index(first)
    end = len(STAGES) if last is None else NAMES.index(last) + 1
    if begin >= end:
        raise UsageError(f"--from {first} comes after --to {last}; the order is {', '.join(NAMES)}")
    return list(STAGES[begin:end])


def plan(profile: config.Profile, out: Path, stages: Sequence[Stage], *, force: bool = False) -> list[Step]:
    """What a run would do, without doing it."""
    steps: list[Step] = []
    pending: set[str] = set()
    for stage in stages:
        upstream = sorted(pending & set(stage.reads))
        if upstream:
            step = Step(stage, "run", f"{', '.join(upstream)} will be made anew")
        else:
            # A stage before the first one planned must be done already: _input_hashes says so if it is not.
            try:
                inputs = _input_hashes(profile, out, stage)
                reason = "--force" if force else _why_run(profile, out, stage, inputs)
            except TreebankError as error:  # a plan can be read before the data is there
                reason = f"cannot run yet: {error}"
            step = Step(stage, "run", reason) if reason else Step(stage, "skip", "done: same config, same inputs")
        if step.action == "run":
            pending.add(stage.name)
        steps.append(step)
    return steps


def describe(profile: config.Profile, out: Path, stages: Sequence[Stage], *, force: bool = False) -> str:
    """The plan as text: every stage, whether it runs and why, and what it costs in this profile."""
    lines = [f"profile {profile.name}, treebank {profile.treebank}, output {out}",
             f"{'stage':<12} {'action':<7} {'time':>9} {'disk':>9}  reason"]
    total_seconds = total_megabytes = 0.0
    for step in plan(profile, out, stages, force=force):
        seconds, megabytes = profile.cost[step.stage.name]
        if step.action == "run":
            total_seconds += seconds
            total_megabytes += megabytes
        lines.append(f"{step.stage.name:<12} {step.action:<7} {_duration(seconds):>9} {megabytes:>6,.0f} MB  "
                     f"{step.reason}")
    lines.append(f"{'to do':<12} {'':<7} {_duration(total_seconds):>9} {total_megabytes:>6,.0f} MB  "
                 f"estimated for the profile as it stands, on {profile.cost['machine']}")
    if any(stage.name == "pretrain" for stage in stages):
        lines += _training_lines(profile)
    return "\n".join(lines)


def _training_lines(profile: config.Profile) -> list[str]:
    """What each model of the profile takes, by arithmetic: sizes come from `cost.training`, speeds from estimate.py."""
    from pcfg_artifact.mlm.estimate import estimate  # here, because it brings transformers

    cfg, about = profile.pretrain, profile.cost["training"]
    lines = [f"pre-training, for {about['words']:,} words and sentences of {about['mean_length']} words on average, "
             f"{about['processes']} {about['device']} process(es) a model:"]
    for name, shape in _shapes(profile).items():
        cost = estimate(shape, steps=cfg.steps, batch_size=cfg.batch_size, batch_tokens=cfg.batch_tokens,
                        mean_length=about["mean_length"], mask_rate=cfg.mask_rate, device=about["device"],
                        n_processes=about["processes"])
        lines.append(f"  {name:<10} {cost.steps:>7,} steps {_duration(cost.seconds):>9} {cost.megabytes:>8,.0f} MB of "
                     f"memory a process")
    return lines


def _shapes(profile: config.Profile) -> dict[str, Any]:
    """The models of the profile as transformers' configs, for as many words as its costs assume."""
    from pcfg_artifact.mlm.model import Shape, build_config  # here, because it brings transformers

    cfg = profile.pretrain
    return {name: build_config(Shape.parse(name), n_words=profile.cost["training"]["words"], width=cfg.width,
                               max_length=cfg.max_length, dropout=cfg.dropout, initial_scale=cfg.initial_scale)
            for name in cfg.models}


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def run(profile: config.Profile, out: Path, stages: Sequence[Stage], *, force: bool = False) -> int:
    """Run what is not done; an error leaves everything finished before it in place.

    Returns the exit code: that of the verdict where verify is among the stages, else 0.
    """
    with artifacts.lock(out):
        _refuse_early(profile, out, stages, force)
        n_run = 0
        for stage in stages:
            inputs = _input_hashes(profile, out, stage)
            reason = "--force" if force else _why_run(profile, out, stage, inputs)
            if reason:
                _log(f"[{stage.name}] {stage.what} ({reason})")
                seconds = _run_stage(profile, out, stage, inputs, force)
                _log(f"[{stage.name}] done in {seconds:.1f} s")
                n_run += 1
            else:
                _log(f"[{stage.name}] skipped: same config, same inputs")
        if not n_run:
            _log(f"nothing to do: every stage is done in {out}")
    if "verify" not in [stage.name for stage in stages]:
        return 0
    verdict = artifacts.Folder(out / "verify")
    print(verdict.text("summary.txt"), end="")
    print(f"report: {verdict.path('report.html')}")
    return 0 if verdict.json("verdict")["passed"] is True else 1


def _refuse_early(profile: config.Profile, out: Path, stages: Sequence[Stage], force: bool) -> None:
    """Say before any work is done what would fail hours later."""
    megabytes = sum(profile.cost[stage.name][1] for stage in stages
                    if force or Manifest.read(out / stage.name) is None)
    need = preflight.Need(profile.machine.device, profile.machine.n_gpus, profile.pretrain.processes, megabytes / 1024)
    machine = preflight.read_machine(out)
    problems = preflight.machine_problems(machine, need)
    if any(stage.name == "pretrain" for stage in stages):
        _shapes(profile)  # an impossible one is a ConfigError
    if profile.machine.device == "auto" and (unused := preflight.unused_gpu(machine)):
        _log(f"running on the CPU: {unused}")
    if profile.verify.expected == "paper" and not (out / "grammar" / artifacts.MANIFEST).is_file():
        treebank = read_treebank(profile.treebank, skip_bad_trees=profile.grammar.skip_bad_trees, progress=progress)
        sections = {name: len(trees) for name, trees in splits.wsj_sections(treebank).items()}
        problems += preflight.treebank_problems(sections, splits.WSJ_TRAIN, splits.WSJ_TEST, splits.WSJ_TRAIN_TREES,
                                                splits.WSJ_TEST_TREES)
    if problems:
        raise UsageError("this run cannot succeed:\n" + "\n".join(f"- {problem}" for problem in problems))


def _run_stage(profile: config.Profile, out: Path, stage: Stage, inputs: dict[str, str], force: bool) -> float:
    section = profile.stage(stage.name)
    mark = _fingerprint(section, inputs)
    folders = {name: out / name for name in stage.reads if name in NAMES}
    for name in folders:
        _verified(out, name)
    started = time.monotonic()
    reset_peak_memory()
    done = None if force else Manifest.read(out / stage.name)
    if done is not None:
        done.verify(out / stage.name, stage.keeps)
    folder = artifacts.begin(out / stage.name, mark, keeps=stage.keeps, fresh=force)
    folder.machine = Machine(resolve_device(profile.machine), profile.machine.n_workers or config.available_cores(),
                             profile.machine.n_gpus)
    folder.progress = progress
    try:
        importlib.import_module(f"pcfg_artifact.stages.{stage.name}").run(
            section, Inputs(folders, profile.treebank), folder)
        outputs = {name: storage.sha256(folder.path(name)) for name in folder.files()}
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()  # the next stage's processes need the memory
    except OSError as error:
        raise StageError(f"stage {stage.name}: {error.strerror or error} ({error.filename or out}); what is finished "
                         f"is kept: mend it and run the same command again") from error
    seconds = time.monotonic() - started
    Manifest(stage=stage.name, fingerprint=mark, config=config.as_json(section), inputs=inputs, outputs=outputs,
             versions=versions(), machine=folder.machine._asdict(), seconds=round(seconds, 3),
             peak_memory_mb=peak_memory_mb(), facts=folder.facts).write(folder.root)
    return seconds


# ---- what is done ---------------------------------------------------------------------------------------------------


def _fingerprint(section: Any, inputs: dict[str, str]) -> str:
    return storage.fingerprint({"config": config.as_json(section), "inputs": inputs})


def _input_hashes(profile: config.Profile, out: Path, stage: Stage) -> dict[str, str]:
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


def _why_run(profile: config.Profile, out: Path, stage: Stage, inputs: dict[str, str]) -> str | None:
    """Why a stage must run, in words; None when it is done."""
    manifest = Manifest.read(out / stage.name)
    if manifest is None:
        return "not done yet"
    section = config.as_json(profile.stage(stage.name))
    # JSON has no tuples: compare what the manifest can hold.
    if storage.fingerprint(manifest.config) != storage.fingerprint(section):
        changed = sorted(key for key in section.keys() | manifest.config.keys()
                         if storage.fingerprint(section.get(key)) != storage.fingerprint(manifest.config.get(key)))
        return f"config changed: {', '.join(changed)}"
    if manifest.inputs != inputs:
        changed = sorted(name for name in inputs.keys() | manifest.inputs.keys()
                         if inputs.get(name) != manifest.inputs.get(name))
        return f"input changed: {', '.join(changed)}"
    manifest.verify(out / stage.name)
    return None


def _verified(out: Path, name: str) -> None:
    manifest = Manifest.read(out / name)
    if manifest is None:
        raise UsageError(f"{name!r} is not done in {out}; run it first")
    manifest.verify(out / name)


# ---- the machine ----------------------------------------------------------------------------------------------------


def resolve_device(machine: config.MachineConfig) -> str:
    if machine.device != "auto":
        return machine.device
    import torch  # here, because most stages never need it

    return "cuda" if torch.cuda.is_available() else "cpu"


def versions() -> dict[str, str]:
    return {"python": sys.version.split()[0], **{name: metadata.version(name) for name in VERSIONED},
            "pcfg_artifact": code_hash()}


@cache
def code_hash() -> str:
    """Of the package's sources: which code a result comes from, in a repository or an image."""
    package = Path(__file__).parent
    sources = sorted(path for kind in ("*.py", "*.yaml") for path in package.rglob(kind))
    return storage.fingerprint({path.relative_to(package).as_posix(): storage.sha256(path) for path in sources})[:12]


def progress(items: Iterable, **options: Any) -> Iterable:
    """A progress bar on a terminal, nothing elsewhere."""
    return tqdm(items, disable=not sys.stderr.isatty(), leave=False, **options)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def reset_peak_memory() -> None:
    with suppress(OSError):  # where it is refused the peak covers the whole process: larger, never smaller
        Path("/proc/self/clear_refs").write_text("5")  # Linux: VmHWM starts again at the present size


def peak_memory_mb() -> float:
    """Peak resident memory of this process since the last reset, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
