"""marginals.target=latent: the span scores to probe for become those of the latent-variable PCFG, and nothing else."""

import numpy as np

from pcfg_artifact.cli import main
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.spectral import learn_spectral
from pcfg_artifact.parsing.charts import cell_bounds
from pcfg_artifact.parsing.latent_engine import latent_inside_outside
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.stage_folder import Folder

LINES = ["(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))) (. .))", "(S (NP (PRP she)) (VP (VBZ runs)))",
         "(S (NP (NP (DT the) (NN dog)) (PP (IN near) (NP (DT a) (NN cat)))) (VP (VBD slept)) (. .))",
         "(S (NP (PRP she)) (VP (VBD saw) (NP (DT a) (NN dog)) (PP (IN near) (NP (DT a) (NN cat)))) (. .))",
         "(S (NP (DT a) (NN cat)) (VP (VBD saw) (NP (NP (DT a) (NN dog)) (PP (IN near) (NP (DT a) (NN cat))))) (. .))"]
SIZES = {"sample.n_pretraining": 10, "sample.n_validation": 5, "sample.n_probe_train": 6, "sample.n_probe_test": 6,
         "marginals.n_masked": 2, "marginals.n_train": 20}


def test_span_scores_of_treebank_sentences_are_the_latent_grammars(tmp_path):
    treebank = tmp_path / "trees.ptb"
    treebank.write_text("\n".join(LINES * 12))
    folders = {}
    for target in ("pcfg", "latent"):
        settings = [f"--set={key}={value}" for key, value in {**SIZES, "marginals.target": target}.items()]
        out = tmp_path / target
        assert main(["--treebank", str(treebank), "--out", str(out), "--to", "marginals", *settings]) == 0
        folders[target] = Folder(out / "marginals")
    inputs = Inputs({"grammar": tmp_path / "latent" / "grammar"}, str(treebank))
    grammar: PCFG = inputs.pcfg()
    latent = learn_spectral(inputs.trees("train"), grammar)
    sentences = [tree.words() for tree in inputs.trees("test")]
    found, plain = (folders[target].ragged("test/span_scores") for target in ("latent", "pcfg"))
    n_different = 0
    for s, chart in enumerate(latent_inside_outside(latent, sentences)):
        expected = np.zeros(0) if chart.is_negative else chart.span_scores()[cell_bounds(len(sentences[s]))]
        np.testing.assert_allclose(found.row(s), expected, rtol=1e-6)
        n_different += not np.array_equal(found.row(s), plain.row(s))
    assert n_different > 0
    for name in ("test/spans", "probe_test/span_scores"):
        first, second = (folders[target].ragged(name) for target in ("pcfg", "latent"))
        np.testing.assert_array_equal(first.values, second.values)
