"""Stage 9: how far every attention head looks, on sampled sentences and on the treebank."""

from __future__ import annotations

from pcfg_artifact.artifacts import Metric, StageDir
from pcfg_artifact.config import AttentionConfig
from pcfg_artifact.errors import StageError
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.probing.attention import attended_distances
from pcfg_artifact.progress import progress
from pcfg_artifact.stages.probed import as_read, load_encoder, model_folders

ROW_SUM_TOLERANCE = 1e-4  # float32 softmax over at most some hundred entries


def run(cfg: AttentionConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    grammar = inputs.pcfg()
    sampled, treebank = inputs.sampled_trees("probe_test"), inputs.trees("test")
    sentences = {setting: [words for tree in trees if len(words := as_read(grammar, tree.words())) <= cfg.max_length]
                 [:cfg.n_sentences] for setting, trees in (("PCFG", sampled), ("PTB", treebank))}
    metrics = []
    for name, folder in model_folders(inputs).items():
        model, tokenizer = load_encoder(folder, attention="eager")  # fused kernels keep no attention
        for setting, words in sentences.items():
            distances, off_by = attended_distances(
                model, tokenizer, words, max_tokens=cfg.batch_tokens, device=machine.device,
                progress=lambda batches, name=name: progress(batches, desc=f"attention of {name}"))
            if not off_by <= ROW_SUM_TOLERANCE:
                raise StageError(f"attention rows of {name} sum to 1 only within {off_by:g}, expected "
                                 f"{ROW_SUM_TOLERANCE:g}; its attention is not a softmax over all tokens")
            out.facts[f"{name} {setting} row sum error"] = off_by
            metrics += [Metric("figure_attention", f"{name} {setting} L{layer}", f"head {head}", cfg.seed, value,
                               len(words), "tokens")
                        for layer, heads in enumerate(distances, start=1)
                        for head, value in enumerate(sorted(heads.tolist()), start=1)]
    out.write_metrics(metrics)
