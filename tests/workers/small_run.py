"""The folder of a run whose models wait to be trained, without the stages before `pretrain`."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

import pcfg_artifact
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.workers import jobs

WORDS = tuple("abcdefghi")
SMALL = {"models": ("A2L1",), "causal_models": (), "width": 16, "max_length": 12, "batch_size": 8, "batch_tokens": 128,
         "steps": 40, "schedule_steps": 80, "warmup_steps": 2, "save_every": 1000, "validate_every": 1000, "n_curve": 8,
         "dropout": 0.1, "n_kept": 0}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(pcfg_artifact.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def shards_of(root: Path) -> dict[str, Path]:
    return {split: root / "sample" / split / "tokens" for split in ("pretraining", "validation")}


def write_run(root: Path, machine: Machine = Machine("cpu", 2), **changes: Any) -> StageDir:  # noqa: B008
    """The folder of its stage `pretrain`; changes: of the settings SMALL."""
    rng = np.random.default_rng(0)
    for split, n in (("pretraining", 200), ("validation", 20)):
        rows = Ragged.from_rows([rng.integers(0, 9, rng.integers(3, 12)) for _ in range(n)], np.uint16)
        StageDir(root / "sample").write_ragged(f"{split}/tokens", rows)
    out = StageDir(root / "pretrain")
    config = dataclasses.replace(load_profile("smoke").pretrain, **{**SMALL, **changes})
    jobs.write_jobs(config, WORDS, shards_of(root), out, machine)
    return out
