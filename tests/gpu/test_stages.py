"""Stages and the tool `parse` with the engine gpu on a pretended GPU (Triton's interpreter): the numbers of the CPU."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import parsing
from pcfg_artifact.approximation.algorithm import Approximation
from pcfg_artifact.approximation.scores import Trial
from pcfg_artifact.cli import main
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.mlm.exact_comparison import masked_sentences
from pcfg_artifact.parsing.gpu import arithmetic
from pcfg_artifact.parsing.gpu.arithmetic import stage_options
from pcfg_artifact.parsing.masks import NAMED_MASKS
from pcfg_artifact.run.config import load_profile
from pcfg_artifact.stages import marginals, pretrain
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.treebank.brackets import parse_trees

pytest.importorskip("triton")

GPU, CPU = Machine("cuda:0", 1), Machine("cpu", 1)
SENTENCES = [["she", "eats", "fish"], ["fish", "eats", "she", "now"], ["she"], ["nowhere", "she"], []]
EXACT = 1e-12


@pytest.fixture
def grammar() -> PCFG:
    return PCFG.from_rules(
        root={"S": 0.9, "N": 0.1},
        binary=[("S", "N", "VP", 0.5), ("S", "S", "S", 0.2), ("S", "S", "A", 0.3), ("VP", "V", "N", 0.75),
                ("VP", "VP", "N", 0.25)],
        lexical=[("N", "she", 0.5), ("N", "fish", 0.5), ("V", "eats", 0.6), ("V", "fish", 0.4), ("A", "now", 1.0)])


@pytest.fixture
def faster(gpus, monkeypatch):
    """The rule says that the GPU is the faster one, whatever the sentences."""
    asked = []

    def is_faster(grammar, lengths, gpu, n_threads):
        asked.append(sum(lengths))
        return True

    monkeypatch.setattr(arithmetic, "is_gpu_faster", is_faster)
    yield asked
    assert asked
    assert gpus.n_operations > 100


def test_marginals(grammar, gpus):
    found, expected = ([(parse.spans, parse.log_prob, parse.n_attempts, parse.scores) for parse, _ in
                        marginals.scored_parses(grammar, None, SENTENCES, machine, stage_options(
                            grammar, map(len, SENTENCES), machine.device, 1, backend))]
                       for machine, backend in ((GPU, "gpu"), (CPU, "auto")))
    for one, twin in zip(found, expected, strict=True):
        assert one[0] == twin[0]
        assert one[1] == pytest.approx(twin[1], rel=EXACT)
        assert one[2] == twin[2]
        np.testing.assert_allclose(one[3], twin[3], rtol=0, atol=EXACT)
    assert sum(gpus.waits.values()) == 0  # results are on their way while the next batch is launched


def test_the_optimum_of_masked_words(grammar, gpus):
    sentences = Ragged.from_rows([np.array([0, 2, 1]), np.array([1, 2, 0, 3])], np.uint16)
    found, expected = ([metric.value for metric in marginals.optimum_metrics(
        grammar, sentences, load_profile("smoke", [f"marginals.backend={backend}"]).marginals, machine)]
        for machine, backend in ((GPU, "gpu"), (CPU, "auto")))
    np.testing.assert_allclose(found, expected, rtol=EXACT)


def test_exact_predictions_of_pretrain(grammar, faster):
    sentences = Ragged.from_rows([np.array([0, 2, 1]), np.array([1, 2, 0, 3])], np.uint16)
    masks = "corrupt 0.15"
    masked = masked_sentences(grammar, sentences, NAMED_MASKS["mask 0.40"], seed=1, n=2, max_length=10)
    kept = {}
    out = SimpleNamespace(has=lambda name: False, write_array=kept.__setitem__,
                          array=lambda name, memory_map: kept[name])
    found, expected = (pretrain.exact_rows(grammar, masked, masks, out, machine) for machine in (GPU, CPU))
    for one, twin in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, twin, rtol=0, atol=1e-6)  # kept as float32


def test_exact_rows_of_approximate(grammar, faster):
    trees = parse_trees("(S (N she) (VP (V eats) (N fish)))\n(S (N fish) (VP (V eats) (N she)))", "test")[0]
    drawn = [np.array([0, 2, 1]), np.array([1, 2, 0, 3])]
    rows = [Approximation(grammar), Approximation(grammar, interminals=np.array([0, 1]), preterminals=np.array([2, 3]))]
    for row in rows:
        found, expected = (Trial(grammar, trees, drawn, stage_options(grammar, [3, 4], machine.device, 1)).scores(row)
                           for machine in (GPU, CPU))
        assert [one.metric for one in found] == [twin.metric for twin in expected]
        np.testing.assert_allclose([one.value for one in found], [twin.value for twin in expected], rtol=1e-9)


def test_the_tool_parse(grammar, faster, tmp_path, capsys):
    grammar.save(tmp_path / "g")
    (tmp_path / "s.txt").write_text("she eats fish\nfish eats she now\n")
    arguments = ["parse", "--grammar", str(tmp_path / "g"), str(tmp_path / "s.txt"), "--json"]
    said = []
    for device in ("cuda", "cpu"):
        assert main([*arguments, "--device", device]) == 0
        said.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    for one, other in zip(*said, strict=True):
        assert (one["words"], one["tree"], one["attempts"]) == (other["words"], other["tree"], other["attempts"])
        np.testing.assert_allclose(one["log_prob"], other["log_prob"], rtol=EXACT)
        for span, twin in zip(one["spans"], other["spans"], strict=True):
            assert {**span, "marginal": 0} == {**twin, "marginal": 0}
            assert abs(span["marginal"] - twin["marginal"]) < EXACT


def test_the_benchmark_prints_what_is_measured_beside_what_is_expected(grammar, gpus, monkeypatch):
    for name, value in (("GPU_LENGTHS", (3,)), ("BATCH", 3), ("ROUNDS", 1), ("GPU_FEW", 2)):
        monkeypatch.setattr(parsing, name, value)
    row, = parsing.on_gpu(grammar, SENTENCES[:2], "cuda:0")
    assert row["on"].startswith("3 sentences of about 3 words; unknown GPU")
    assert row["ms/sentence"] > row["expected ms"] > 0  # in the interpreter
    assert row["times as fast as one core"] > 0
    assert not row["left to cpu"]
