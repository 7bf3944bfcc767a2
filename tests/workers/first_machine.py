"""The first machine of two: trains the models whose jobs wait in the folder of a run."""

import sys
from pathlib import Path

from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers.distributed import leading
from pcfg_artifact.workers.jobs import TrainingJob, train_models

if __name__ == "__main__":
    out = StageDir(Path(sys.argv[1]) / "pretrain")
    with leading(Path(sys.argv[1])):
        train_models(TrainingJob.read(next(out.root.glob("scratch/*/job.json"))).config, out, Machine("cpu", 2))
