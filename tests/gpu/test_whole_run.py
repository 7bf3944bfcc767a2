"""A run of smoke on a pretended GPU, at shrunken sizes: `doctor --gpu`, every stage, and the verdict."""

import json
import os
import subprocess
import sys
from pathlib import Path

from pcfg_artifact.run import pipeline
from pcfg_artifact.run.stage_folder import Folder, Manifest

HERE = Path(__file__).parent
SMALL = ["sample.n_pretraining=400", "sample.n_validation=150", "sample.n_probe_train=80", "sample.n_probe_test=40",
         "sample.max_length=16", "marginals.max_length=16", "marginals.n_train=80", "marginals.n_masked=5",
         "marginals.backend=cpu",  # the engine gpu is interpreted here: test_stages.py has it at smaller sizes
         "approximate.n_test=5", "approximate.n_training=30", "approximate.n_drawn=4", "approximate.n_ablation_test=4",
         "approximate.n_ablation_drawn=4", "approximate.max_training_length=12", "approximate.n_interminals=[20]",
         "approximate.ranks=[15]", "construct.max_length=5", "construct.lengths=[5]", "construct.n_training=30",
         "construct.n_parsed=1", "construct.n_per_length=1", "pretrain.models=[A2L2]",
         "pretrain.causal_models=[C2L2]", "pretrain.width=16",
         "pretrain.batch_size=16", "pretrain.batch_tokens=512", "pretrain.max_length=60", "pretrain.steps=12",
         "pretrain.schedule_steps=12", "pretrain.warmup_steps=2", "pretrain.n_kept=1", "pretrain.validate_every=12",
         "pretrain.save_every=6", "pretrain.n_curve=10", "pretrain.n_exact=10",
         "probe.n_train=60", "probe.n_test=25", "probe.max_length=16", "probe.widths=[2, 3]", "probe.epochs=2",
         "probe.milestones=[1]", "probe.n_seeds=1", "probe.linear_iterations=5", "probe.n_scatter=5",
         "attention.n_sentences=5", "attention.max_length=16", "incremental.max_length=16", "incremental.n_exact=10",
         "incremental.n_train=40", "incremental.n_test=15", "incremental.widths=[2]", "intervene.max_length=14",
         "intervene.n_train=50", "intervene.n_test=40", "intervene.widths=[2, 3]", "intervene.n_questions=10",
         "intervene.n_constructed=3", "intervene.constructed_length=12", "dynamics.n_train=50", "dynamics.n_test=20",
         "dynamics.n_questions=4", "dynamics.n_loss=10", "dynamics.n_attention=5"]
ON_GPU = ["machine.device=cuda", "machine.n_gpus=1", "machine.trial=true"]


def test_a_run_of_smoke_passes_through_the_trial_all_stages_and_the_verdict(tmp_path):
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\n")
    environment = {**os.environ, "PRETENDED_DRIVER": str(driver), "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE / 'in_every_process'}"}
    settings = [part for setting in (*SMALL, *ON_GPU) for part in ("--set", setting)]
    run = subprocess.run([sys.executable, "-m", "pcfg_artifact", "--out", str(tmp_path / "run"), *settings],
                         env=environment, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stderr  # a verdict: claims of so small a run may fail
    assert "report: " in run.stdout, run.stderr
    tried = run.stderr.index("trying the GPUs")
    assert tried < run.stderr.index("Inside-Outside of ") < run.stderr.index("[grammar]")
    for stage in pipeline.NAMES:
        manifest = Manifest.read(tmp_path / "run" / stage)
        assert manifest is not None
        assert manifest.machine["device"] == "cuda"
    training = Folder(tmp_path / "run" / "pretrain")
    assert training.json("scratch/C2L2/facts")["precision"] == "float16"  # what auto chose: this GPU has no bfloat16
    progress = [json.loads(line) for line in training.text("progress.jsonl").splitlines()]
    assert all(line["share_of_peak"] > 0 and line["loss_scale"] > 0 for line in progress)
    fits = driver.with_name("fits").read_text().split()
    assert len(fits) > 30  # of probe and control, of intervene for every layer, of dynamics for every step
    assert set(fits) == {"cuda:0"}
