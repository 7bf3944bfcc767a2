"""The main path: the table of stages, and the loop that runs them.

A stage is skipped when its folder has a manifest of the same code, config and inputs.  Otherwise it runs, and the log
says what changed.  Nothing but a stage's own folder is written.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.run import freshness, plan, stage_folder
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.plan import EXPECTED, TREEBANK, Stage
from pcfg_artifact.run.refusals import refuse_early
from pcfg_artifact.run.sections import Profile, as_json
from pcfg_artifact.run.stage_folder import Manifest
from pcfg_artifact.system import storage
from pcfg_artifact.system.gpus import are_exclusive
from pcfg_artifact.system.machine import Machine, available_cores, peak_memory_mb, reset_peak_memory, usable_device
from pcfg_artifact.system.progress import say

# Rooms that several stages need.
PROBES = ("metrics/selection.py", "parsing", "probing", "run/corpora.py", "workers")

MEASURING = (
    Stage("grammar", (TREEBANK,), "learn the PCFG from the treebank, or take the given one",
          ("parsing", "run/given_grammar.py")),
    Stage("sample", ("grammar",), "draw sentences and trees from it", ("workers/shards.py",)),
    Stage("marginals", ("grammar", "sample"), "run Inside-Outside: span marginals, trees, the optimum of masked words",
          ("approximation", "parsing", "probing/settings.py", "workers/distributed.py", "workers/launch.py",
           "workers/pool.py")),
    Stage("approximate", ("grammar",), "run Inside-Outside with few non-terminals and low rank",
          ("approximation", "parsing")),
    Stage("construct", ("grammar", "sample"), "build the transformers of the theorems and compare their charts",
          ("approximation", "constructions", "parsing", "run/example_sentence.py")),
    Stage("pretrain", ("grammar", "sample"), "train language models on the sentences, masked and causal",
          ("approximation", "mlm", "parsing", "workers"),
          keeps=("models", "untrained", "kept", "scratch", stage_folder.PROGRESS)),
    Stage("probe", ("grammar", "sample", "marginals", "pretrain"), "read parse trees and marginals from hidden states",
          (*PROBES, "mlm/encoders.py", "run/example_sentence.py")),
    Stage("control", ("grammar", "sample", "marginals", "pretrain", "probe"), "compare the probes with random labels",
          (*PROBES, "mlm/encoders.py")),
    Stage("attention", ("grammar", "sample", "pretrain"), "measure how far attention heads look",
          ("mlm/encoders.py", "parsing", "probing", "run/example_sentence.py")),
    Stage("incremental", ("grammar", "sample", "pretrain"), "compare causal models with exact inference, word by word",
          ("approximation", "mlm", "parsing", "probing", "workers")),
    Stage("intervene", ("grammar", "sample", "pretrain", "probe"),
          "change what probes read and compare the models with exact counterfactuals",
          ("metrics/selection.py", "approximation", "constructions", "interventions", "mlm",
           "parsing", "probing", "workers")),
    Stage("dynamics", ("grammar", "sample", "marginals", "pretrain", "probe", "incremental", "intervene"),
          "follow the base model, masked and causal, through its training", (*PROBES, "interventions", "mlm")),
)
STAGES = (
    *MEASURING,
    Stage("verify", (*(stage.name for stage in MEASURING), EXPECTED), "judge every number and claim, write the report",
          ("approximation", "judge", "metrics", "parsing", "probing/settings.py", "run/expected.py")),
)
NAMES = tuple(stage.name for stage in STAGES)


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


def run(profile: Profile, out: Path, stages: Sequence[Stage], *, force: bool = False,
        executor: str | None = None) -> int:
    """Run the stages that are not done; after an error, the finished ones stay.

    executor: the address of a cluster for the many small jobs of a stage (workers/distributed.py).
    Returns the exit code: that of the verdict where verify is among the stages, else 0.
    """
    with stage_folder.lock(out):
        about, device = profile.machine, usable_device(profile.machine.device)
        machine = Machine(device, about.n_workers or available_cores(), about.n_gpus, executor, about.restarts,
                          about.log, about.scratch, device == "cuda" and are_exclusive())
        n_run = 0
        for stage in stages:
            inputs = plan.input_hashes(profile, out, stage)
            reason = "--force" if force else plan.why_run(profile, out, stage, inputs)
            if reason:
                # Before the first stage that runs: a finished run needs nothing of the machine.
                if not n_run and (remark := refuse_early(profile, out, [other.name for other in stages], force)):
                    say(remark)
                if not n_run and profile.machine.trial and machine.device == "cuda":
                    try_gpus(profile, out, stages)
                say(f"[{stage.name}] {stage.what}" + ("" if reason == freshness.NOT_DONE else f" ({reason})"))
                seconds = run_stage(profile, out, stage, inputs, machine, force)
                say(f"[{stage.name}] done in {seconds:.1f} s")
                n_run += 1
            else:
                say(f"[{stage.name}] skipped: same code, same config, same inputs")
        if not n_run:
            say(f"nothing to do: every stage is done in {out}")
    if "verify" not in [stage.name for stage in stages]:
        return 0
    verdict = stage_folder.Folder(out / "verify")
    *lines, last = verdict.text("summary.txt").splitlines()
    print("\n".join([*lines, f"report: {verdict.path('report.html')}", last]))
    return 0 if verdict.json("verdict")["passed"] is True else 1


def try_gpus(profile: Profile, out: Path, stages: Sequence[Stage]) -> None:
    """Find in two minutes what would fail on these GPUs after hours; skipped where training is done."""
    if not any(stage.name == "pretrain" for stage in stages) or Manifest.read(out / "pretrain") is not None:
        return
    say("trying the GPUs: two steps of every model, fits, hidden states and charts")
    importlib.import_module("pcfg_artifact.workers.gpu_trial").run_trial(profile, say)


def run_stage(profile: Profile, out: Path, stage: Stage, inputs: dict[str, str], machine: Machine,
              force: bool) -> float:
    """Run one stage in its folder and write its manifest last; returns the seconds it took."""
    section, code = profile.stage(stage.name), freshness.stage_code(stage.name, stage.rooms)
    mark = freshness.fingerprint(section, inputs, code)
    folders = {name: _verified(out / name) for name in stage.reads if name in NAMES}
    started = time.monotonic()
    reset_peak_memory()
    done = None if force else Manifest.read(out / stage.name)
    if done is not None:
        done.verify(out / stage.name, stage.keeps)
    folder = stage_folder.begin(out / stage.name, mark, keeps=stage.keeps, fresh=force)
    try:
        importlib.import_module(f"pcfg_artifact.stages.{stage.name}").run(
            section, Inputs(folders, profile.given or profile.treebank, is_given=profile.given is not None), folder,
            machine)
        outputs = {name: storage.sha256(folder.path(name)) for name in folder.files()}
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()  # the next stage's processes need the memory
    except OSError as error:
        raise StageError(f"stage {stage.name}: {error.strerror or error} ({error.filename or out}); what is finished "
                         f"is kept: fix it and run the same command again") from error
    seconds = time.monotonic() - started
    Manifest(stage=stage.name, fingerprint=mark, config=as_json(section), inputs=inputs, code=code,
             outputs=outputs, versions=freshness.versions(), machine=machine._asdict(), seconds=round(seconds, 3),
             peak_memory_mb=peak_memory_mb(), facts=folder.facts).write(folder.root)
    return seconds


def _verified(folder: Path) -> Path:
    """The folder of a finished stage, every file of it compared with its manifest."""
    manifest = Manifest.read(folder)
    if manifest is None:
        raise UsageError(f"{folder.name!r} is not done in {folder.parent}; run it first")
    manifest.verify(folder)
    return folder
