"""Stage `attention`: how far every attention head looks, on sampled sentences and on the treebank."""

from __future__ import annotations

from functools import partial
from itertools import islice

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.metrics.models import roles_of
from pcfg_artifact.mlm.encoders import load_encoder
from pcfg_artifact.probing.attention_heads import attention_maps, head_statistics
from pcfg_artifact.probing.settings import SAMPLED, TREEBANK, Text
from pcfg_artifact.run.example_sentence import example_trees
from pcfg_artifact.run.inputs import Inputs, model_folders
from pcfg_artifact.run.sections import AttentionConfig
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import progress

ROW_SUM_TOLERANCE = 1e-4  # float32 softmax over at most some hundred entries


def run(cfg: AttentionConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    sentences = {setting.name: read_sentences(cfg, inputs, setting.test) for setting in (SAMPLED, TREEBANK)
                 if setting is SAMPLED or inputs.has_treebank}
    metrics = []
    for name, folder in model_folders(inputs["pretrain"]).items():
        model, tokenizer = load_encoder(folder, attention="eager")  # fused kernels keep no attention
        for setting, words in sentences.items():
            found = head_statistics(model, tokenizer, words, max_tokens=cfg.batch_tokens, device=machine.device,
                                    progress=partial(progress, desc=f"attention of {name}"))
            if not found.off_by <= ROW_SUM_TOLERANCE:
                raise StageError(f"attention rows of {name} sum to 1 only within {found.off_by:g}, expected "
                                 f"{ROW_SUM_TOLERANCE:g}; its attention is not a softmax over all tokens")
            out.facts[f"{name} {setting} row sum error"] = found.off_by
            metrics += [metric.at(model=name, setting=setting, seed=cfg.seed)
                        for metric in found.metrics(len(words), cfg.by_layer)]
    write_explored(inputs, out, machine)
    out.write_metrics(metrics)


def write_explored(inputs: Inputs, out: StageDir, machine: Machine) -> None:
    """explored.json: where every layer of the base model looks in the sentences that the report shows."""
    folders, grammar = model_folders(inputs["pretrain"]), inputs.pcfg()
    base = roles_of(folders).base
    if base is None:
        return
    model, tokenizer = load_encoder(folders[base], attention="eager")
    sentences = [tree.words() for tree in example_trees(inputs)]
    maps = [attention_maps(model, tokenizer, grammar.as_read(words), machine.device) for words in sentences]
    out.write_json("explored", {"model": base, "words": sentences,
                                "layers": [np.round(found, 3).tolist() for found in maps]})


def read_sentences(cfg: AttentionConfig, inputs: Inputs, text: Text) -> list[list[str]]:
    """The first sentences of a text that are short enough, as the models read them."""
    grammar = inputs.pcfg()
    trees = inputs.sampled_trees(text.split) if text.is_sampled else inputs.trees(text.split)
    sentences = (grammar.as_read(tree.words()) for tree in trees)
    return list(islice((words for words in sentences if len(words) <= cfg.max_length), cfg.n_sentences))
