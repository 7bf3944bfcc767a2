"""The stage as a whole on a small grammar: from shards to models and rows; killed and resumed; never twice."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.mlm.model_card import PERPLEXITIES
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import SampleConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.stages import pretrain, sample
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.workers import jobs, launch, trainer

MACHINE = Machine("cpu", 2)
NOUNS = [f"noun{k}" for k in range(12)]
VERBS = [f"verb{k}" for k in range(8)]
SMALL = {"models": ("A2L1", "A1L2"), "causal_models": (),  # these have tests with the stage incremental
         "width": 32, "max_length": 40, "batch_size": 16, "batch_tokens": 256, "steps": 60,
         "schedule_steps": 60, "warmup_steps": 6, "learning_rate": 1e-2, "save_every": 7, "validate_every": 20,
         "n_curve": 50, "n_exact": 150, "dropout": 0.1}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """A grammar whose verbs agree with their position, and sentences drawn from it."""
    root = tmp_path_factory.mktemp("run")
    zipf = 1 / np.arange(1, 21)
    grammar = PCFG.from_rules(
        root={"S": 1.0},
        binary=[("S", "NP", "VP", 0.8), ("S", "S", "CS", 0.2), ("CS", "and", "S", 1.0), ("NP", "the", "N", 0.7),
                ("NP", "NP", "PP", 0.3), ("PP", "of", "NP", 1.0), ("VP", "V", "NP", 1.0)],
        lexical=[*(("N", w, p) for w, p in zip(NOUNS, zipf[:12] / zipf[:12].sum(), strict=True)),
                 *(("V", w, p) for w, p in zip(VERBS, zipf[:8] / zipf[:8].sum(), strict=True)),
                 ("the", "the", 0.6), ("the", "a", 0.4), ("of", "of", 1.0), ("and", "and", 1.0)])
    grammar.save(root / "grammar" / "vm")
    storage.write_json(root / "grammar" / "sizes.json", {"variant": "vm"})
    config = SampleConfig(seed=0, max_length=30, n_pretraining=2000, n_validation=200, n_probe_train=5, n_probe_test=5)
    sample.run(config, inputs_of(root), StageDir(root / "sample"), MACHINE)
    return root


def inputs_of(root: Path) -> Inputs:
    return Inputs({"grammar": root / "grammar", "sample": root / "sample"}, "none")


def write_jobs(config, run_folder: Path, out: StageDir) -> None:
    shards = {split: run_folder / "sample" / split / "tokens" for split in ("pretraining", "validation")}
    jobs.write_jobs(config, PCFG.load(run_folder / "grammar" / "vm").words, shards, out, MACHINE)


def small_config(**changes):
    return dataclasses.replace(load_profile("smoke").pretrain, **{**SMALL, **changes})


@pytest.fixture(scope="module")
def finished(run_folder) -> StageDir:
    out = StageDir(run_folder / "pretrain")
    pretrain.run(small_config(), inputs_of(run_folder), out, MACHINE)
    return out


def test_models_load_with_no_code_of_ours(finished):
    code = ("import sys, torch; from transformers import AutoModelForMaskedLM, AutoTokenizer; "
            "model, tokenizer = (c.from_pretrained(sys.argv[1]) for c in (AutoModelForMaskedLM, AutoTokenizer)); "
            "assert not any('pcfg' in name for name in sys.modules); "
            "logits = model.eval()(**tokenizer('the noun0 <mask> the noun1', return_tensors='pt')).logits[0, 3]; "
            "print(tokenizer.decode(logits.argmax()))")
    run = subprocess.run([sys.executable, "-c", code, str(finished.path("models/A2L1"))], capture_output=True,
                         text=True, cwd="/")
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-1].startswith("verb") or run.stdout.split()[-1] == "of"


def test_rows_have_perplexities_between_the_optimum_and_unigram(finished):
    numbers = Numbers(finished.metrics())
    for model in SMALL["models"]:
        for masks in ("mask 0.15", "mask 0.40", "corrupt 0.15"):
            excess, kl, exact, unigram = numbers.select({"table": "masked_words", "model": model, "input": masks,
                                                         "metric": ["excess", "kl", *PERPLEXITIES[1:]]})
            # No model can be better than the optimum by more than noise: if one is, something is wrong.
            assert excess.value > -3 * excess.error
            assert kl.value > 0
            assert exact.value < unigram.value
        perplexity, = numbers.select({"table": "perplexity", "model": model, "group": "validation",
                                      "metric": "perplexity"})
        assert perplexity.value < 0.5 * unigram.value  # unigrams know nothing of masks
        early, late = numbers.select({"table": "loss_curve", "model": model, "group": "validation", "step": [20, 60],
                                      "metric": "loss"})
        assert late.value < early.value
    assert {"tokens_per_second", "padding_share", "peak_memory_mb", "world_size"} <= finished.facts["A2L1"].keys()


def test_every_saved_model_has_a_card_with_its_data_recipe_and_distance_from_the_optimum(finished):
    numbers = Numbers(finished.metrics())
    for model in SMALL["models"]:
        text = finished.text(f"models/{model}/README.md")
        found = numbers.select({"table": "masked_words", "model": model, "input": "mask 0.15",
                                "metric": list(PERPLEXITIES)})
        assert "| mask 0.15 | " + " | ".join(f"{metric.value:.2f}" for metric in found) in text
        assert f"| learning rate | {small_config().learning_rate} |" in text
        assert "sentences drawn from a PCFG" in text
        assert "before its first step" in finished.text(f"untrained/{model}/README.md")


def test_the_model_before_training_is_kept_beside_the_trained_one(finished, run_folder):
    """What probes call untrained is where training began: the same start."""
    from transformers import AutoModelForMaskedLM

    from pcfg_artifact.workers.jobs import TrainingJob

    for name in SMALL["models"]:
        job = TrainingJob.read(finished.path(f"scratch/{name}/job.json"))
        config = trainer.config_of(name, job.config, len(job.words))
        expected = trainer.objective_of(name).build(config, job.config.seed).state_dict()
        untrained, trained = (AutoModelForMaskedLM.from_pretrained(finished.path(f"{part}/{name}")).state_dict()
                              for part in ("untrained", "models"))
        assert all(torch.equal(untrained[key], expected[key]) for key in expected)
        assert not all(torch.equal(trained[key], expected[key]) for key in expected)


def note_only(started):
    """In place of run_workers: starts nobody, and notes whom it would have started."""
    def run_workers(commands, *_):
        started.extend(commands)

    return run_workers


def test_a_finished_model_is_never_trained_again(finished, run_folder, monkeypatch):
    finished.path("models/A1L2/training.json").rename(run_folder / "aside.json")
    started = []
    monkeypatch.setattr(jobs, "run_workers", note_only(started))
    jobs.train_models(small_config(), finished, MACHINE)
    (run_folder / "aside.json").rename(finished.path("models/A1L2/training.json"))
    assert started == ["A1L2"]


def test_another_list_of_models_trains_only_what_is_new(finished, run_folder, tmp_path):
    out = StageDir(tmp_path / "pretrain")
    shutil.copytree(finished.root, out.root)
    def pending(**changes):
        write_jobs(small_config(**changes), run_folder, out)
        return [name for name in small_config(**changes).models if not out.has(f"models/{name}/training.json")]

    assert pending(models=("A1L2", "A2L1", "A2L2"), n_exact=10) == ["A2L2"]
    assert pending(models=("A2L1",), batch_tokens=128, save_every=9) == []
    assert not out.path("models/A1L2").exists()
    assert not out.path("scratch/A1L2").exists()
    assert pending(models=("A2L1",), steps=61) == ["A2L1"]


def test_kill_9_at_any_step_and_resume_gives_identical_weights_and_curve(finished, run_folder):
    """Dropout is on.  The stage's own run is the unbroken one; another is killed at a random moment and continued."""
    folder = run_folder / "killed"
    out = StageDir(folder)
    write_jobs(small_config(), run_folder, out)
    job = out.path("scratch/A1L2/job.json")
    environment = {**os.environ, "PYTHONPATH": str(Path(pretrain.__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    worker = subprocess.Popen([sys.executable, "-m", "pcfg_artifact.workers.trainer", str(job)], env=environment,
                              stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(job.parent.glob("step-*14")) and time.monotonic() < deadline and worker.poll() is None:
        time.sleep(0.01)
    time.sleep(np.random.default_rng(os.getpid()).random() * 0.2)
    worker.kill()
    worker.wait()
    assert not out.path("models/A1L2").exists(), "the worker finished before it could be killed"
    assert list(job.parent.glob("step-*"))
    trainer.run_job(job)
    resumed, unbroken = out.path("models/A1L2"), finished.path("models/A1L2")
    facts = json.loads((job.parent / "facts.json").read_text())
    assert facts["resumed_from_step"] >= 14
    assert len(storage.read_sealed_json(resumed / "training.json")["kept_sha256"]) > 5  # compared with the rest below
    assert json.loads((resumed / "training.json").read_text()) == json.loads((unbroken / "training.json").read_text())
    weights = [load_file(path / "model.safetensors") for path in (resumed, unbroken)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_the_worker_starts_torchrun_itself_whatever_a_cluster_put_into_the_environment(run_folder, monkeypatch):
    out = StageDir(run_folder / "two processes")
    config = small_config(models=("A2L1",), steps=4, schedule_steps=8, processes=2, packing=32, clip=None)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    write_jobs(config, run_folder, out)
    jobs.train_models(config, out, MACHINE)
    assert out.json("scratch/A2L1/facts")["world_size"] == 2
    found = out.json("models/A2L1/training")
    assert len(found["losses"]) == 4
    n_tokens = len(inputs_of(run_folder).sentences("validation").values) + 200  # a separator after each sentence
    assert found["n_validation"] == -(-n_tokens // 31)  # blocks, each with its <s>


def test_a_failure_is_told_in_the_words_of_this_run(tmp_path):
    log = tmp_path / "worker.log"
    log.write_text("error: out of memory, of the run before\n")
    begin = log.stat().st_size
    with log.open("a") as file:
        file.write("A2L1 step 3\n")
    said = launch.failure("A2L1", -9, log, begin)
    assert "was ended by SIGKILL" in said
    assert "out of memory" not in said


def test_sentences_of_another_vocabulary_are_refused(run_folder, tmp_path):
    smaller = PCFG.from_rules(root={"S": 1.0}, binary=[("S", "A", "A", 1.0)], lexical=[("A", "a", 1.0)])
    smaller.save(tmp_path / "grammar" / "vm")
    storage.write_json(tmp_path / "grammar" / "sizes.json", {"variant": "vm"})
    inputs = Inputs({"grammar": tmp_path / "grammar", "sample": run_folder / "sample"}, "none")
    with pytest.raises(StageError, match="does not match the grammar: it holds word .*, expected 0 to 0"):
        pretrain.run(small_config(), inputs, StageDir(tmp_path / "pretrain"), MACHINE)


def test_a_model_of_another_vocabulary_is_refused(finished, run_folder, tmp_path):
    grammar = PCFG.load(run_folder / "grammar" / "vm")
    renamed = dataclasses.replace(grammar, words=("other", *grammar.words[1:]))
    with pytest.raises(StageError, match="A2L1: the vocabulary does not match the grammar: .* token 5 is"):
        pretrain.against_optimum(small_config(), renamed, inputs_of(run_folder), finished, MACHINE)


@pytest.fixture(scope="module")
def controlled(run_folder) -> StageDir:
    out = StageDir(run_folder / "controlled")
    config = small_config(models=("A1L2",), control_texts=("shuffled", "bigram"), windows=(1, 2), layer_use=True,
                          n_exact=60, dropout=0.0, steps=250, schedule_steps=250)
    pretrain.run(config, inputs_of(run_folder), out, MACHINE)
    return out


def test_control_models_are_worse_than_the_model_of_the_grammars_own_sentences(controlled):
    numbers = Numbers(controlled.metrics())
    losses = [numbers.select({"table": "masked_words", "model": model, "input": "mask 0.15", "metric": "perplexity"})
              [0].value for model in ("A1L2", {"bigram": "base"}, {"shuffled": "base"})]
    assert losses == sorted(losses)
    for text, words in (("shuffled", "in random order"), ("bigram", "the word bigrams")):
        assert words in controlled.text(f"models/A1L2-{text}/README.md")
        assert not controlled.path(f"kept/A1L2-{text}").exists()  # nobody follows it on its way
    assert not controlled.path("texts").exists()
    assert numbers.roles.models == ("A1L2",)


def test_wider_windows_predict_better_and_the_whole_sentence_best(controlled):
    numbers = Numbers(controlled.metrics())
    for masks in ("mask 0.15", "mask 0.40", "corrupt 0.15"):
        unigram, exact = numbers.select({"table": "masked_words", "model": "window_1", "input": masks,
                                         "metric": ["unigram_perplexity", "exact_perplexity"]})
        windows = numbers.select({"table": "masked_words", "model": ["window_1", "window_2"], "input": masks,
                                  "metric": "perplexity"})
        kl = numbers.select({"table": "masked_words", "model": ["window_1", "window_2"], "input": masks,
                             "metric": "kl"})
        assert unigram.value > windows[0].value >= windows[1].value > 0.95 * exact.value
        assert kl[0].value >= kl[1].value >= 0  # over all words, whatever was drawn
    drawn = numbers.select({"table": "loss_curve", "model": ["window_1", "window_2", "exact"], "group": "validation",
                            "metric": "loss"})
    assert drawn[0].value > drawn[2].value


def test_every_layers_use_is_told_and_one_of_them_is_used(controlled):
    numbers = Numbers(controlled.metrics())
    for model in ("A1L2", "A1L2-shuffled", "A1L2-bigram"):
        lost = numbers.select({"table": "layers_used", "model": model, "layer": [1, 2], "input": "mask 0.15",
                               "group": ["uniform attention", "left out"], "metric": "share_lost"})
        assert len(lost) == 4
        if model == "A1L2":
            assert max(one.value for one in lost) > 1
    share, window = numbers.select({"table": "layers_used", "model": ["A1L2", "window_1"], "input": "mask 0.15",
                                    "metric": "share_of_way"})
    assert 0 < share.value < 100
    assert 0 < window.value < 100


def test_only_tables_of_the_stage_are_written(finished):
    assert {metric.table for metric in finished.metrics()} == {"perplexity", "loss_curve", "masked_words"}


@pytest.mark.parametrize(("machine", "order"), [(Machine("cpu", 2), ["A1L2", "C1L2", "A2L1"]),
                                                (Machine("cpu", 1), ["A2L1", "A1L2", "C1L2"])])
def test_models_side_by_side_start_with_the_deepest_and_others_in_the_profiles_order(monkeypatch, tmp_path, machine,
                                                                                     order):
    started = []
    monkeypatch.setattr(jobs, "run_workers", note_only(started))
    config = dataclasses.replace(load_profile("smoke").pretrain, models=("A2L1", "A1L2"), causal_models=("C1L2",))
    jobs.train_models(config, StageDir(tmp_path / "pretrain"), machine)
    assert started == order
