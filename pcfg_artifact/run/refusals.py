"""What can be known to fail before a run begins, and is refused then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pcfg_artifact.errors import ConfigError, UsageError
from pcfg_artifact.run import stage_folder
from pcfg_artifact.run.config import profile_names
from pcfg_artifact.run.sections import Profile
from pcfg_artifact.run.stage_folder import Manifest
from pcfg_artifact.run.training_plan import memory_problems, shapes_of
from pcfg_artifact.system import machine
from pcfg_artifact.system.progress import progress
from pcfg_artifact.treebank import splits
from pcfg_artifact.treebank.reading import read_treebank


def refuse_early(profile: Profile, out: Path, stages: Sequence[str], force: bool) -> str | None:
    """Refuse before any work is done what would fail hours later; returns what to say where nothing is refused."""
    megabytes = sum(profile.cost[stage][1] for stage in stages if force or Manifest.read(out / stage) is None)
    peak = max((scratch_bytes(profile, stage) for stage in stages), default=0)  # removed before the next stage
    need = machine.Need(profile.machine.device, profile.machine.n_gpus, profile.pretrain.processes,
                        megabytes / 1024 + (0 if profile.machine.scratch else peak / machine.GB))
    hardware = machine.read_hardware(out)
    problems = machine.machine_problems(hardware, need)
    if profile.machine.scratch and peak:
        place = machine.read_hardware(Path(profile.machine.scratch))
        if not place.can_write or place.disk_gb < peak / machine.GB:
            problems.append(f"machine.scratch: {place.disk_gb:.1f} GB free at {place.place}, {peak / machine.GB:.1f} "
                            f"GB needed in a folder that this user can write; name another one, or none")
    if "pretrain" in stages:
        shapes_of(profile)  # an impossible one is a ConfigError
        problems += memory_problems(profile, hardware)
        n_processes = machine.training_processes(hardware, need)
        if n_processes > profile.pretrain.batch_size:
            problems.append(f"{n_processes} processes would share batches of {profile.pretrain.batch_size} rows; lower "
                            f"pretrain.processes or machine.n_gpus, or raise pretrain.batch_size")
    if "probe" in stages:
        from pcfg_artifact.probing.probes import check_names  # here, because it brings torch

        check_names(profile.probe.probes)
    if "verify" in stages and profile.verify.expected not in profile_names():
        raise ConfigError(f"verify.expected is {profile.verify.expected!r}, expected one of "
                          f"{', '.join(profile_names())}: the profile whose recorded results a run is compared with")
    if profile.given is None and profile.verify.expected == "paper" \
            and not (out / "grammar" / stage_folder.MANIFEST).is_file():
        treebank = read_treebank(profile.treebank, skip_bad_trees=profile.grammar.skip_bad_trees, progress=progress)
        sections = {name: len(trees) for name, trees in splits.wsj_sections(treebank).items()}
        problems += splits.wsj_problems(sections, splits.WSJ_TRAIN, splits.WSJ_TEST, splits.WSJ_TRAIN_TREES,
                                        splits.WSJ_TEST_TREES)
    if problems:
        raise UsageError("this run cannot succeed:\n" + "\n".join(f"- {problem}" for problem in problems))
    unused = machine.unused_gpu(hardware) if profile.machine.device == "auto" else None
    return f"running on the CPU: {unused}" if unused else None


def scratch_bytes(profile: Profile, stage: str) -> int:
    """Disk that a stage uses and gives back: hidden states, one row a word and two marks, of the two deepest models,
    since those of the next are written while the fits of one still run.

    Probing reads sampled text and the treebank, for training and for testing; control tasks read the treebank alone,
    with one model; causal models read sampled text.
    """
    probe, reading, pretrain = profile.probe, profile.incremental, profile.pretrain
    n_sentences, precision, models = {
        "probe": (2 * (probe.n_train + probe.n_test), probe.precision, pretrain.masked_models),
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
