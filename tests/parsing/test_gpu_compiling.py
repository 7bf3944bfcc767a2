"""Every launch of the gpu engine, compiled for the GPUs that it is for: registers, spills, shared memory, grids."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.parsing import treebank_sized_grammar
from pcfg_artifact.parsing.cpu_kernels.rule_index import compiled
from pcfg_artifact.parsing.gpu import arithmetic
from pcfg_artifact.system.gpus import KNOWN, gpu_of

pytest.importorskip("triton")
SCRIPT = Path(__file__).with_name("compile_kernels.py")
# Registers of a thread: so many programs of 128 threads fit a multiprocessor, which has 65,536.
REGISTERS = {"multiply_pairs": 80,  # six programs
             "pull_from_parents": 128,  # four
             "sum_rows": 168,  # three
             "normalise": 40, "largest_marginals": 40}  # twelve
SHARED = 48 << 10  # bytes that a program may have on any GPU
PENN = ("900", "20000")  # symbols and rules of the Penn Treebank's grammar, about


def launches(form, capability, n_symbols, n_rules, n_sentences, *lengths):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    found = subprocess.run([sys.executable, str(SCRIPT), form, capability, n_symbols, n_rules, n_sentences, *lengths],
                           env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "capability"), [("float32", "75"), ("float64", "80"), ("float64", "90"),
                                                  ("float32", "120")])
def test_kernels_compile_without_spills_and_within_registers_and_shared_memory(form, capability):
    found = launches(form, capability, *PENN, "512", "25")
    assert {launch["kernel"] for launch in found} == set(REGISTERS)
    assert_resources(found)


def assert_resources(found):
    for launch in found:
        assert launch["stack"] == 0, launch
        assert 0 < launch["registers"] <= REGISTERS[launch["kernel"]], launch
        assert launch["shared"] <= SHARED, launch
        assert launch["fused"] is True  # said, whatever the default of this Triton is


@pytest.mark.slow
def test_512_sentences_of_126_words_with_5000_symbols_and_100000_rules_compile_and_fit_grids_and_integers():
    """160 GB of charts, whose numbers go beyond 32 bits and whose launches do not."""
    found = launches("float64", "80", "5000", "100000", "512", "126")
    assert_resources(found)
    assert {launch["index"] for launch in found if launch["kernel"] == "sum_rows"} == {"*i16", "*i32"}
    for launch in found:
        along, across = launch["grid"]
        assert along < 2**31
        assert across < 2**16


def test_numbers_of_launches_are_those_that_are_counted():
    grammar = compiled(treebank_sized_grammar(90, 72, 2_000))
    found = {launch["length"]: launch["launches"]
             for launch in launches("float64", "0", "90", "2000", "3", "1", "2", "3", "4", "5", "25")}
    assert found == {length: arithmetic.n_launches(grammar, length) for length in (1, 2, 3, 4, 5, 25)}


# ---- the arithmetic --------------------------------------------------------------------------------------------------


def test_terms_are_those_of_a_loop_over_all_cells():
    grammar = compiled(treebank_sized_grammar(30, 24, 400))
    pairs, rules = len(grammar.inner.left), len(grammar.inner.parent)
    edges = (len(grammar.right_edges.parent) + len(grammar.left_edges.parent)) / 2
    word_pairs, word_rules = len(grammar.leaf_pairs.other), len(grammar.two_leaves.parent)
    leaf_rules = len(grammar.right_leaf.parent) + len(grammar.left_leaf.parent)
    length, terms = 9, 0.0
    for width in range(2, length + 1):
        for _ in range(length - width + 1):
            terms += 3 * pairs * max(width - 3, 0) + 2 * rules + (3 * 2 * edges if width > 2 else 0)
    terms += length * (3 * word_pairs + 2 * leaf_rules + 2 * word_rules)
    assert arithmetic.count(grammar, length).terms == int(terms)


def test_the_engine_is_chosen_by_its_arithmetic():
    """A large grammar goes to a GPU, unless there are few sentences: a batch of one is all launches."""
    grammar, gpu = treebank_sized_grammar(900, 720, 20_000), gpu_of("NVIDIA A100-SXM4-40GB")
    assert gpu in KNOWN
    assert arithmetic.is_gpu_faster(grammar, [25] * 512, gpu, n_threads=2)
    assert not arithmetic.is_gpu_faster(grammar, [8], gpu, n_threads=2)
    assert not arithmetic.is_gpu_faster(grammar, [25] * 512, gpu, n_threads=1000)
    small = treebank_sized_grammar(4, 3, 20)
    assert not arithmetic.is_gpu_faster(small, [6] * 10, gpu, n_threads=2)
    assert arithmetic.stage_options(grammar, [25] * 512, "cpu", 2).backend == "auto"
    assert arithmetic.stage_options(grammar, [25] * 512, "cpu", 2, "gpu").backend == "gpu"
