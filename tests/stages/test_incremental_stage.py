"""The stage on a small grammar with trained models: complete tables, optimum below models, ceilings above probes."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pcfg_artifact import cli
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.models import roles_of
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.parsing.prefix.left_to_right import next_words
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.run.inputs import Inputs, model_folders
from pcfg_artifact.run.sections import SampleConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.stages import incremental, pretrain, sample
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine

MACHINE = Machine("cpu", 2)
SMALL = {"models": ("A2L2",), "causal_models": ("C2L2",), "width": 32, "max_length": 30, "batch_size": 16,
         "batch_tokens": 512, "steps": 150, "schedule_steps": 150, "warmup_steps": 10, "learning_rate": 1e-2,
         "validate_every": 100, "n_curve": 50, "n_exact": 50}
STAGES = ("grammar", "sample", "pretrain")
NOISE = 0.02  # what 80 sentences change in a share of variance: the bound is on its expectation


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("run")
    grammar = PCFG.from_rules(
        root={"S": 1.0},
        binary=[("S", "NP", "VP", 1.0), ("NP", "the", "N", 0.7), ("NP", "NP", "PP", 0.3), ("PP", "of", "NP", 1.0),
                ("VP", "V", "NP", 0.7), ("VP", "VP", "PP", 0.3)],
        lexical=[*(("N", f"noun{k}", 0.125) for k in range(8)), *(("V", f"verb{k}", 0.25) for k in range(4)),
                 ("the", "the", 0.6), ("the", "a", 0.4), ("of", "of", 0.5), ("of", "with", 0.5)])
    grammar.save(root / "grammar" / "vm")
    storage.write_json(root / "grammar" / "sizes.json", {"variant": "vm"})
    sizes = SampleConfig(seed=0, max_length=None, n_pretraining=2000, n_validation=150, n_probe_train=200,
                         n_probe_test=100)
    sample.run(sizes, inputs_of(root), StageDir(root / "sample"), MACHINE)
    cfg = dataclasses.replace(load_profile("smoke").pretrain, **SMALL)
    pretrain.run(cfg, inputs_of(root), StageDir(root / "pretrain"), MACHINE)
    return root


def inputs_of(root: Path) -> Inputs:
    return Inputs({name: root / name for name in STAGES}, "none")


@pytest.fixture(scope="module")
def finished(world) -> StageDir:
    cfg = dataclasses.replace(load_profile("smoke").incremental, n_exact=120, n_train=150, n_test=80, max_length=28,
                              beliefs=True)
    out = StageDir(world / "incremental")
    incremental.run(cfg, inputs_of(world), out, MACHINE)
    return out


@pytest.fixture(scope="module")
def numbers(finished) -> Numbers:
    return Numbers(finished.metrics())


def next_word(numbers: Numbers, metric: str) -> Metric:
    found, = numbers.select({"table": "next_words", "model": "C2L2", "metric": metric})
    return found


def explained(numbers: Numbers, model: str, **question) -> float:
    """Of the drawn trees, by exact inference or a model's best layer."""
    layer = {} if model.startswith("exact") else {"layer": "best"}
    found, = numbers.select({"table": "incremental", "model": model, "setting": "tree", "metric": "explained", **layer,
                             **question})
    return found.value


def test_only_tables_of_the_stage_are_written_and_no_hidden_state_stays(finished):
    assert {metric.table for metric in finished.metrics()} == {"next_words", "incremental", "settled"}
    assert not finished.path("scratch").exists()


def test_a_causal_model_is_no_masked_model_for_any_reader(world):
    pretrained = inputs_of(world)["pretrain"]
    assert set(model_folders(pretrained)) == {"A2L2"}
    assert set(model_folders(pretrained, is_causal=True)) == {"C2L2"}
    assert {m.model for m in StageDir(world / "pretrain").metrics()} == {"A2L2", "exact"}
    assert roles_of(["A2L2", "C2L2"]).models == ("A2L2",)


def test_every_saved_causal_model_has_a_card_with_its_distance_from_the_exact_next_word(world):
    out = StageDir(world / "pretrain")
    card = out.text("models/C2L2/README.md")
    row = next(line for line in card.splitlines() if line.startswith("| next word |"))
    model, exact, unigram, divergence = (float(part) for part in row.split("|")[2:6])
    assert 0.99 * exact < model < unigram  # so small a model reaches the optimum, but for noise
    assert divergence == pytest.approx(np.log(model / exact), abs=0.1)  # the excess loss, but for noise
    assert "AutoModelForCausalLM" in card
    assert "mask rate" not in card
    steps = {folder.name: folder for folder in out.path("kept/C2L2").iterdir()}
    assert steps
    for name, folder in steps.items():
        assert f"after {int(name.removeprefix('step-')):,} of 150 steps" in (folder / "README.md").read_text()
    assert "before its first step" in out.text("untrained/C2L2/README.md")


def test_the_folder_loads_with_no_code_of_ours(world):
    code = ("import sys, torch; from transformers import AutoModelForCausalLM, AutoTokenizer; "
            "model, tokenizer = (c.from_pretrained(sys.argv[1]) for c in (AutoModelForCausalLM, AutoTokenizer)); "
            "assert not any('pcfg' in name for name in sys.modules); "
            "ids = torch.tensor([[0, *tokenizer('the', add_special_tokens=False)['input_ids']]]); "
            "print(tokenizer.decode(model.eval()(ids).logits[0, -1].argmax()))")
    run = subprocess.run([sys.executable, "-c", code, str(world / "pretrain" / "models" / "C2L2")], capture_output=True,
                         text=True, cwd="/")
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-1].startswith("noun")


def test_the_model_lies_between_the_optimum_and_unigram(numbers):
    model, exact, unigram, kl, closed = (next_word(numbers, metric).value for metric in
                                         ("perplexity", "exact_perplexity", "unigram_perplexity", "kl", "closed"))
    excess = next_word(numbers, "excess")
    assert model < unigram
    assert excess.value > -4 * excess.error  # so small a model may reach the optimum
    assert excess.value == pytest.approx(np.log(model / exact))
    assert kl == pytest.approx(excess.value, abs=4 * excess.error)
    assert closed == pytest.approx(1, abs=0.1)
    by_position = numbers.select({"table": "next_words", "model": "C2L2", "group": "position", "bin": ["0", "1", "2-3"],
                                  "metric": "kl"})
    assert all(metric.value >= 0 for metric in by_position)


def test_the_exact_column_is_the_sentences_own_probability(world, finished, numbers):
    """The mean surprisal of words and ends is that of whole sentences by Inside-Outside."""
    from pcfg_artifact.parsing.engine import inside_outside

    inputs = inputs_of(world)
    sentences = [s for s in inputs.sentences("validation").rows() if len(s) <= 28][:120]
    charts = inside_outside(inputs.pcfg(), sentences)
    loss = -sum(chart.log_prob for chart in charts) / sum(len(s) + 1 for s in sentences)
    assert np.log(next_word(numbers, "exact_perplexity").value) == pytest.approx(loss, rel=1e-9)


def test_no_probe_of_a_causal_model_explains_more_than_exact_inference(numbers):
    n_open = {"group": "open constituents"}
    for question in (*({"group": "span end", "width": width, "index": 0} for width in (2, 3, 5)),
                     *({"group": "span end", "width": 2, "index": delay} for delay in (1, 2)), n_open,
                     {"group": "relative depth"}):
        so_far, whole, causal, untrained, masked = (
            explained(numbers, model, **question)
            for model in ("exact so far", "exact whole", "C2L2", "C2L2-random", "A2L2"))
        assert causal <= so_far + NOISE
        assert so_far <= whole + NOISE
        assert max(untrained, masked) <= 1
    # What this grammar says so far, exactly: each noun phrase is two words long or goes on.
    assert explained(numbers, "C2L2", **n_open) > explained(numbers, "C2L2-random", **n_open)
    assert {m.layer for m in numbers.of_table("incremental") if not m.model.startswith("exact")} == {0, 1, 2}


def test_every_word_settles_more(numbers):
    found = [*numbers.select({"table": "settled", "group": "span end", "index": [0, 1, 2], "metric": "bits"}),
             *numbers.select({"table": "settled", "group": "sentence end", "metric": "bits"})]
    bits = [metric.value for metric in found]
    assert bits[0] > bits[1] > 0
    # Short sentences were chosen, which tells of the end beforehand: not every step need be one forward.
    assert (np.diff(bits) < NOISE).all()


def test_surprisal_of_the_tool_is_the_stages(world, numbers, tmp_path, capsys):
    """`surprisal --model` on a causal model of a run: its word-level tokenizer, sentence marks and all."""
    inputs = inputs_of(world)
    grammar = inputs.pcfg()
    sentences = [s for s in inputs.sentences("validation").rows() if len(s) <= 28][:120]
    text = tmp_path / "text"
    text.write_text("".join(" ".join(grammar.words[w] for w in s) + "\n" for s in sentences))
    assert cli.main(["surprisal", "--grammar", str(world / "grammar" / "vm"), "--model",
                     str(world / "pretrain" / "models" / "C2L2"), str(text)]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    column = header.split("\t").index("model_surprisal_bits")
    bits = [float(line.split("\t")[column]) for line in lines]
    assert np.mean(bits) * np.log(2) == pytest.approx(np.log(next_word(numbers, "perplexity").value), abs=1e-4)


def test_on_fresh_text_the_optimum_is_the_mean_surprisal_of_sentences_within_three_standard_errors(world):
    from pcfg_artifact.grammar.sampling import sample_trees
    from pcfg_artifact.parsing.engine import inside_outside

    grammar = PCFG.load(world / "grammar" / "vm")
    first, second = (list(sample_trees(grammar, 400, seed).tokens.rows()) for seed in (11, 12))
    by_words = np.array([-next_words(grammar, s).log_probs.sum() for s in first])
    by_sentences = np.array([-chart.log_prob for chart in inside_outside(grammar, second)])
    error = np.sqrt(by_words.var() / len(by_words) + by_sentences.var() / len(by_sentences))
    assert abs(by_words.mean() - by_sentences.mean()) < 3 * error
    same = np.array([-chart.log_prob for chart in inside_outside(grammar, first)])
    np.testing.assert_allclose(by_words, same, rtol=1e-9)


def test_a_trained_model_holds_more_of_what_may_come_next_than_an_untrained_one(numbers):
    for group in ("next constituents", "next tag", "next word"):
        trained, untrained = (next(iter(numbers.select({
            "table": "incremental", "model": model, "layer": "best", "setting": "belief", "group": group,
            "metric": "explained"}))).value for model in ("C2L2", "C2L2-random"))
        assert untrained < trained <= 1.0
        assert trained > 0.8


def test_without_beliefs_the_numbers_are_the_same_but_for_theirs(world, finished):
    cfg = dataclasses.replace(load_profile("smoke").incremental, n_exact=120, n_train=150, n_test=80, max_length=28)
    assert not cfg.beliefs
    out = StageDir(world / "without")
    incremental.run(cfg, inputs_of(world), out, MACHINE)
    assert {metric for metric in finished.metrics() if metric.setting != "belief"} == set(out.metrics())
    assert len(finished.metrics()) > len(out.metrics())
