"""Started by torchrun from test_distributed.py: process 1 does not see what process 0 sees on the shared disk."""

import sys
from pathlib import Path

from pcfg_artifact.workers import checkpoints, jobs, trainer

if __name__ == "__main__":
    path, seen = Path(sys.argv[1]), []
    entered = trainer.enter_group

    def enter(device, precision, in_group):
        rank = entered(device, precision, in_group)
        if rank.index == 1:  # the files of a minute ago: no checkpoint, and the job as it was before
            checkpoints.latest_step = lambda folder: None
        return rank

    trainer.enter_group = enter
    train = trainer.train_model
    trainer.train_model = lambda job, folder, rank, step, stop: seen.append((rank.index, step)) or train(
        job, folder, rank, step, stop)
    assert jobs.TrainingJob.read(path).config.processes == 2
    trainer.run_job(path, in_group=True)
    (rank, step), = seen
    path.with_name(f"began-{rank}.txt").write_text(str(step))
