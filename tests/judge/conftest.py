"""A made-up run on disk, and the recorded numbers of smoke."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run.expected import load_record
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import VerifyConfig
from pcfg_artifact.run.stage_folder import Folder, Manifest, StageDir
from pcfg_artifact.stages import verify
from pcfg_artifact.system.machine import Machine
from tests.judge.made_up import STAGES, WIDTHS, as_predicted, made_up_run

EXAMPLE = {"words": ["the", "old", "bank", "approved", "the", "new", "plan", "."],
           "spans": [[0, 8], [0, 3], [1, 3], [3, 8], [3, 7], [4, 7], [5, 7]]}
OTHER = ["</script>", "&", "<b>"]  # words that would break a page which does not escape them


def invented_cells(n: int) -> list:
    return [[i, j, None, None, None, 0.0] if j - i == 5 else [i, j, "NP", -1.5 * (j - i), -2.25, 1 / (j - i)]
            for i in range(n) for j in range(i + 1, n + 1)]


def looking(n: int) -> list:
    """Two layers: the first looks at the next word, the second at the first word."""
    return [np.eye(n, k=1).tolist(), [[0.75] + [0.0] * (n - 1)] * n]


FILLING = [
    {"layer": k, "width": k + 1, "phase": "inside", "cells": [[i, i + k + 1, i % 2] for i in range(8 - k)]}
    for k in range(1, 8)] + [{"layer": 8, "width": 8, "phase": "root", "cells": [[0, 8, 1.0]]}] + [
    {"layer": 8 + k, "width": 8 - k, "phase": "outside", "cells": [[i, i + 8 - k, 1.0] for i in range(k + 1)]}
    for k in range(1, 8)]
SCATTER = {"model": "A12L12", "layer": 12, "lengths": {
    str(width): {"true": (np.linspace(0, 1, 50) ** 4).tolist(), "predicted": (np.linspace(0, 1, 50) ** 2).tolist(),
                 "slope": 1.0, "intercept": -0.1} for width in WIDTHS if width in (2, 5, 10)}}


def write_illustrations(folder: StageDir) -> None:
    """What the stages probe, attention and construct keep for the figures."""
    if folder.root.name == "probe":
        folder.write_json("scatter", SCATTER)
        folder.write_json("explored", {"model": "A12L12", "best": 1, "words": [EXAMPLE["words"], OTHER],
                                       "layers": [[[[0, 8], [0, 2]], [[0, 3], [1, 3]]],
                                                  [EXAMPLE["spans"], [[0, 3], [0, 2]]]]})
    if folder.root.name == "attention":
        folder.write_json("explored", {"model": "A12L12", "words": [EXAMPLE["words"], OTHER],
                                       "layers": [looking(8), looking(3)]})
    if folder.root.name == "construct":
        folder.write_json("example", {**EXAMPLE, "gold": EXAMPLE["spans"], "layers": FILLING})
        folder.write_json("explored", [
            {**EXAMPLE, "gold": EXAMPLE["spans"], "parse": EXAMPLE["spans"], "log_prob": -9.5,
             "cells": invented_cells(8), "layers": FILLING},
            {"words": OTHER, "gold": [[0, 3], [0, 2]], "parse": [[0, 3], [1, 3]], "log_prob": -3.0,
             "cells": invented_cells(3), "layers": FILLING[:2]}])


def write_run(metrics: list[Metric], root: Path, treebank: str = "t" * 64) -> dict[str, Folder]:
    """Numbers as the finished stage folders of a run: stage -> folder."""
    folders: dict[str, Folder] = {}
    for stage, tables in STAGES.items():
        folder = StageDir(root / stage)
        folder.root.mkdir(parents=True)
        folder.write_metrics([m for m in metrics if m.table in tables])
        write_illustrations(folder)
        seed = metrics[0].seed if metrics else 0
        Manifest(stage, "f" * 64, {"seed": seed, "size": 3}, {"treebank": treebank} if stage == "grammar" else {}, {},
                 {"python": "3.11"}, {"device": "cpu", "n_workers": 2}, 61.5, 200.0).write(folder.root)
        folders[stage] = folder
    assert sum(len(folder.metrics()) for folder in folders.values()) == len(metrics)
    return folders


def verified(folders: dict[str, Folder], root: Path, profile: str = "paper") -> StageDir:
    out = StageDir(root / "verify")
    verify.run(VerifyConfig(seed=0, expected=profile),
               Inputs({name: folder.root for name, folder in folders.items()}, "embedded"), out, Machine("cpu", 2))
    return out


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> StageDir:
    """The verify folder of a good run, figures and all, made once."""
    root = tmp_path_factory.mktemp("good")
    return verified(write_run(as_predicted(made_up_run()), root), root)


@pytest.fixture(scope="session")
def smoke_numbers() -> Numbers:
    """The recorded numbers of seed 0 of smoke."""
    record = load_record("smoke")
    assert record is not None
    return Numbers(record.metrics(0))
