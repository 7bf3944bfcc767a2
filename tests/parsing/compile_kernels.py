"""Compile every kernel launch of a batch for GPUs that are not here; run by test_gpu_compiling.py without interpreter.

`python compile_kernels.py FORM CAPABILITY N_SYMBOLS N_RULES N_SENTENCES LENGTH..` prints a line of JSON for each kind
of launch: the kernel, its constants, its largest grid, registers, bytes of the stack (spills) and of shared memory.
With a capability of 0 nothing is compiled.  The launches are recorded from the passes themselves, on tensors without
memory, so that a batch may be of any size.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.parsing import treebank_sized_grammar
from pcfg_artifact.parsing.cpu_kernels.rule_index import compiled
from pcfg_artifact.parsing.gpu import batch_pass, kernels
from pcfg_artifact.parsing.gpu.row_sums import DeviceRules

TYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8"}
META = torch.device("meta")
KERNELS = ("multiply_pairs", "sum_rows", "normalise", "pull_from_parents", "largest_marginals")


class Recorder:
    """In the place of a kernel: notes what it would be launched with."""

    def __init__(self, kernel):
        self.kernel, self.launches = kernel, {}

    def __getitem__(self, grid):
        def launch(*args, num_warps, enable_fp_fusion, **constants):
            names = [name for name in self.kernel.arg_names if name not in constants]
            signature = {name: TYPES[value.dtype] if isinstance(value, torch.Tensor) else integer_type(value)
                         for name, value in zip(names, args, strict=True)}
            known = tuple(name for name, value in zip(names, args, strict=True) if isinstance(value, torch.Tensor) or (
                value % 16 == 0 and name not in self.kernel.do_not_specialize))  # multiples of 16
            key = json.dumps([signature, constants, known, num_warps, enable_fp_fusion])
            before = self.launches.get(key, (0, 0))
            self.launches[key] = tuple(max(pair) for pair in zip(before, grid, strict=True))
        return launch


def integer_type(value):
    assert -2**31 <= value < 2**31, f"{value} does not fit the 32 bits that kernels are compiled for"
    return "i32"


def resources(kernel, key, capability):
    signature, constants, known, num_warps, enable_fp_fusion = json.loads(key)
    names = [*signature, *constants]
    order = [name for name in kernel.arg_names if name in names]
    source = ASTSource(fn=kernel, signature={name: signature.get(name, "constexpr") for name in order},
                       constexprs=constants,
                       attrs={(order.index(name),): [["tt.divisibility", 16]] for name in known})
    found = triton.compile(source, target=GPUTarget("cuda", capability, 32),
                           options={"num_warps": num_warps, "enable_fp_fusion": enable_fp_fusion})
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(found.asm["cubin"])
        said = subprocess.run([triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)],
                              capture_output=True, text=True, check=True).stdout
    usage = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}
    return {"registers": usage["REG"], "stack": usage["STACK"] + usage["LOCAL"], "shared": found.metadata.shared,
            "warps": num_warps, "fused": enable_fp_fusion, "index": signature.get("index_ptr", "")}


def main(form, capability, n_symbols, n_rules, n_sentences, *lengths):
    recorders = {name: Recorder(getattr(kernels, name)) for name in KERNELS}
    for name, recorder in recorders.items():
        setattr(kernels, name, recorder)
    shape = batch_pass.FORMS[form]
    grammar = treebank_sized_grammar(n_symbols, n_symbols * 4 // 5, n_rules)
    rules = DeviceRules(compiled(grammar), shape.dtype, META)
    for length in lengths:
        leaves = torch.empty((n_sentences, length, grammar.n_preterminals), dtype=torch.float64, device=META)
        run = batch_pass.BatchPass(rules, shape, batch_pass.GPU_BLOCKS, leaves,
                                   torch.empty(n_sentences, dtype=torch.int32, device=META), None)
        run.inside()
        run.outside(is_pruned=True)
        run.span_scores()
        print_launches(recorders, capability, {"length": length, "launches": run.n_launches})


def print_launches(recorders, capability, of_batch):
    for name, recorder in recorders.items():
        for key, grid in recorder.launches.items():
            constants = {name: value for name, value in json.loads(key)[1].items() if not isinstance(value, float)}
            found = resources(recorder.kernel, key, capability) if capability else {}
            print(json.dumps({"kernel": name, "constants": constants, "grid": grid, **of_batch, **found}), flush=True)
        recorder.launches.clear()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
