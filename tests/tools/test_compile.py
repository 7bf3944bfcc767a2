"""`compile` leaves nothing for the first run to compile."""

import ast
import json
import subprocess
import sys

from pcfg_artifact.cli import main
from pcfg_artifact.system import compiled_cache
from pcfg_artifact.tools.compile import ROUTINES

# Compiled with the functions that call them, and not asked for where those are there already.
INNER = {
    "approximation.merging": {"entropy_term", "move"},
    "grammar.sampling": {"mix", "uniform"},
    "parsing.cpu_kernels.inside": {"inside"},
    "parsing.cpu_kernels.outside": {"outside"},
}
# Compiled when somebody asks for them: no stage of smoke does.
ON_DEMAND = {
    "parsing.best_trees": {"best_derivations"},
    "parsing.cpu_kernels.sentence_chart": {"log_prob"},
    "parsing.cpu_kernels.logspace": {"inside", "outside", "best_nodes"},
    "parsing.forest": {"choice_entropies"},
    "parsing.prefix.infix": {"_fill"},
    "parsing.prefix.prefix_grammar": {"solve_columns"},
    "parsing.tree_draws": {"draw_trees"},
    "parsing.latent_engine": {"inside", "outside"},
}
CALL_ALL = """
import importlib, json, sys
from pcfg_artifact.grammar import learn_pcfg
from pcfg_artifact.tools.compile import N_TREES, ROUTINES, use
from pcfg_artifact.treebank.reading import EMBEDDED, read_treebank
trees = read_treebank(EMBEDDED).trees[:N_TREES]
for name in ROUTINES:
    use((learn_pcfg(trees), [trees[0].words()]), name)
kept = {module: [name for name in names if getattr(importlib.import_module("pcfg_artifact." + module), name).signatures]
        for module, names in json.loads(sys.argv[1]).items()}
print(json.dumps(kept))
"""


def kept_functions() -> dict[str, set[str]]:
    """Module -> its functions whose compiled form is kept (`cache=True`)."""
    found: dict[str, set[str]] = {}
    rooms = [compiled_cache.PACKAGE / room for room in compiled_cache.COMPILED]
    for path in sorted(path for room in rooms for path in room.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any("cache=True" in ast.unparse(d) for d in node.decorator_list):
                module = ".".join(path.relative_to(compiled_cache.PACKAGE).with_suffix("").parts)
                found.setdefault(module, set()).add(node.name)
    return found


def test_every_kept_function_is_compiled_or_said_to_be_compiled_on_demand():
    functions = kept_functions()
    asked = json.dumps({module: sorted(names) for module, names in functions.items()})
    done = subprocess.run([sys.executable, "-c", CALL_ALL, asked], capture_output=True, text=True, check=True)
    compiled = json.loads(done.stdout)
    assert (INNER | ON_DEMAND).keys() <= functions.keys()
    for module, names in functions.items():
        others = INNER.get(module, set()) | ON_DEMAND.get(module, set())
        assert others <= names, f"{module}: not there any more"
        assert names - others <= set(compiled[module]), f"{module}: add it to ROUTINES, or say that it is on demand"


def test_it_says_what_was_compiled(capsys):
    assert main(["compile"]) == 0
    assert capsys.readouterr().out.endswith(f" s: {', '.join(ROUTINES)}\n")
