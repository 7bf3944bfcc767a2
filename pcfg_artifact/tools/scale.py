"""Put the base models of several runs side by side: how what they hold of the tree grows with their size.

Each run is one size, e.g. `run_all.sh --profile laptop --set pretrain.width=96 --out runs/width-96`; a run that was
stopped goes on where it stopped, and what is finished of it is shown.  Written are points.csv (every kept checkpoint),
models.csv (finished models), scale.png and summary.txt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from pcfg_artifact import results
from pcfg_artifact.errors import UsageError
from pcfg_artifact.judge.scale_study import Study, checkpoints, extrapolations, finished_models, scale_figure
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.mlm.encoders import load_config
from pcfg_artifact.mlm.model import count_parameters
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.run.trained_models import model_folders
from pcfg_artifact.system import storage

EXAMPLE = "run_all.sh scale runs/width-64 runs/width-96 runs/width-128 --out scale"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="output folders of runs, one a size")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where figure and tables go")


def run(args: argparse.Namespace) -> int:
    studies = [read_study(path) for path in args.runs]
    points = pd.concat([checkpoints(study) for study in studies], ignore_index=True)
    finished = pd.concat([finished_models(study) for study in studies], ignore_index=True)
    if not len(points) or not len(finished):
        raise UsageError("none of these runs has finished the stages probe and dynamics of its base model; run them to "
                         "the end")
    drawing = scale_figure(points, finished)
    said = "\n".join([finished.to_string(index=False, float_format="{:.3f}".format), "", *extrapolations(finished)])
    storage.write_text(args.out / "points.csv", points.to_csv(index=False))
    storage.write_text(args.out / "models.csv", finished.to_csv(index=False))
    storage.write_text(args.out / "summary.txt", said + "\n")
    storage.write_bytes(args.out / "scale.png", drawing.png)
    print(said)
    print(f"written to {args.out}: points.csv, models.csv, scale.png, summary.txt")
    return 0


def read_study(path: Path) -> Study:
    """The finished stages of a run."""
    manifests = results.finished(path)
    numbers = Numbers([metric for stage in manifests for metric in Folder(path / stage).metrics()])
    if numbers.roles.base is None:
        raise UsageError(f"{path} has no masked model whose training is finished; run it up to the stage dynamics")
    config = load_config(model_folders(Folder(path / "pretrain"))[numbers.roles.base])
    return Study(path.name, numbers, config.hidden_size, count_parameters(config)[0])
