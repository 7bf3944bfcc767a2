"""What the probing stages share: the corpora, the models, and a model's hidden states on disk."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.grammar import PCFG
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine, available_memory
from pcfg_artifact.parsing.charts import cell_bounds
from pcfg_artifact.probing.corpus import Corpus, Layer, unseen
from pcfg_artifact.probing.representations import Pooling, extract, max_pieces
from pcfg_artifact.probing.tables import Unit
from pcfg_artifact.probing.tasks import TWO_LAYER
from pcfg_artifact.ragged import Ragged
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.tree import Tree
from pcfg_artifact.workers.pool import run_jobs

# corpus -> split whose span scores the stage `marginals` wrote
SPLITS = {"PCFG train": "probe_train", "PCFG test": "probe_test", "PTB train": "train", "PTB test": "test"}
WORKER_BYTES = 1 << 29  # of a process that has done nothing yet
FITS_PER_GPU = 2  # processes; at the paper's sizes the inputs of a fit take up to 2.3 GB
# training corpus -> setting -> test corpus
SETTINGS = {"PCFG train": {"PCFG": "PCFG test", "OOD": "PTB test"}, "PTB train": {"PTB": "PTB test"}}


# ---- corpora ---------------------------------------------------------------------------------------------------------


def read_corpora(inputs: Inputs, max_length: int, n_train: int,
                 n_test: int) -> tuple[dict[str, Corpus], dict[str, int]]:
    """The four corpora, and how many test sentences were left out because a probe may have seen them in training.

    Sentences of more than `max_length` words, and those that `marginals` left out, are passed over; then the first
    n_train and n_test are taken.
    """
    grammar = inputs.pcfg()
    corpora: dict[str, Corpus] = {}
    for name, split in SPLITS.items():
        limit = n_train if name.endswith("train") else n_test
        scores, parses = (inputs["marginals"].ragged(f"{split}/{what}", memory_map=True)
                          for what in ("span_scores", "spans"))
        if name.startswith("PCFG"):
            trees: Iterable[Tree] = map(unbinarise, inputs.sampled_trees(split))
        else:
            trees = inputs.trees(split)
        corpora[name] = _take(trees, scores, parses, grammar, max_length, limit)
    training = [corpora[name].sentences for name in SETTINGS]
    n_seen = {}
    for name in ("PCFG test", "PTB test"):
        kept = unseen(corpora[name].sentences, *training)
        n_seen[name] = len(corpora[name]) - len(kept)
        corpora[name] = corpora[name].subset(kept)
    for name, corpus in corpora.items():
        if not len(corpus):
            raise StageError(f"no sentence is left in {name!r} (up to {max_length} words, not in the probe's training "
                             f"set); raise probe.max_length or sample more sentences")
    return corpora, n_seen


def _take(trees: Iterable[Tree], scores: Ragged, parses: Ragged, grammar: PCFG, max_length: int, limit: int) -> Corpus:
    kept: list[tuple] = []
    for s, tree in enumerate(trees):
        if len(kept) == limit:
            break
        words = tree.words()
        if len(words) <= max_length and len(spans := parses.row(s)):  # empty: exact inference left it out
            spans = [(int(i), int(j)) for i, j in spans.reshape(-1, 2)]
            kept.append((as_read(grammar, words), tree, _square(scores, s, len(words)), spans))
    return Corpus(*([item[part] for item in kept] for part in range(4)))


def as_read(grammar: PCFG, words: list[str]) -> list[str]:
    """Words as a model trained on this grammar's text reads them: rare and unknown ones as their signature."""
    return [grammar.words[w] if w >= 0 else "<unk>" for w in grammar.encode(words)]


def _square(scores: Ragged, s: int, length: int) -> np.ndarray | None:
    """Span scores of one sentence as (L+1, L+1); None where the grammar gives it no probability."""
    if not len(row := scores.row(s)):
        return None
    square = np.zeros((length + 1, length + 1), np.float32)
    square[cell_bounds(length)] = row
    return square if square.max() > 0 else None


# ---- models ----------------------------------------------------------------------------------------------------------


def model_folders(inputs: Inputs) -> dict[str, Path]:
    """Every pre-trained model by name."""
    return {path.parent.name: path.parent for path in sorted(inputs["pretrain"].root.glob("models/*/config.json"))}


def untrained_folder(inputs: Inputs, name: str) -> Path:
    """The model as it was before training."""
    return inputs["pretrain"].path(f"untrained/{name}")


def load_encoder(folder: Path, *, attention: str = "sdpa") -> tuple[Any, Any]:
    """(model, tokenizer) of a Hugging Face folder."""
    logging.set_verbosity_error()  # it warns of heads that no probe reads
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, add_prefix_space=True, local_files_only=True)
        model = AutoModel.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32,
                                          local_files_only=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} cannot be loaded as an encoder with its tokenizer ({error}); give a folder written "
                         f"by save_pretrained of both") from error
    if not tokenizer.is_fast:
        raise UsageError(f"the tokenizer in {folder} does not say which word a piece belongs to; save its fast version "
                         f"(tokenizer.json) there")
    return model.eval(), tokenizer


# ---- hidden states on disk -------------------------------------------------------------------------------------------


def store_states(model: Any, tokenizer: Any, corpora: Mapping[str, Corpus], folder: Path, *, precision: str,
                 max_tokens: int, device: str, progress: Callable[..., Iterable], pooling: Pooling = "first") -> None:
    """Write the hidden states of every layer and corpus below `folder`; what a finished earlier run wrote is kept."""
    limit, longest = max_pieces(model), max(int(corpus.lengths.max()) for corpus in corpora.values())
    if limit is not None and longest + 2 > limit:
        raise StageError(f"a sentence of {longest} words does not fit into the {limit} positions of the model; "
                         f"lower probe.max_length to {limit - 2}")
    for name, corpus in corpora.items():
        place = folder / name
        if (place / "done").is_file():
            continue
        place.mkdir(parents=True, exist_ok=True)

        def new_array(layer: int, shape: tuple[int, int], place: Path = place) -> np.ndarray:
            return np.lib.format.open_memmap(place / f"L{layer}.npy", mode="w+", dtype=precision, shape=shape)

        extract(model, tokenizer, corpus.sentences, new_array, pooling=pooling, max_tokens=max_tokens, device=device,
                progress=lambda batches, name=name: progress(batches, desc=f"hidden states, {name}"))
        (place / "done").touch()


def stored_layer(corpora: Mapping[str, Corpus], folder: Path, layer: int) -> dict[str, Layer]:
    """The corpora as one stored layer sees them, memory-mapped."""
    return {name: Layer(corpus, np.load(folder / name / f"L{layer}.npy", mmap_mode="r", allow_pickle=False))
            for name, corpus in corpora.items()}


def run_fits(fit: Callable[[Any, Any], Any], units: Sequence[Unit], context: Any, n_inputs: int) -> Iterator[Any]:
    """fit(context, unit) for every unit, in processes that memory allows; `context` has `corpora` and `machine`.

    Only 2-layer probes use a GPU: they come first, a few processes on each, then the linear ones on all cores.
    """
    machine = context.machine
    n_workers = workers_that_fit(machine.n_workers, context.corpora, n_inputs)
    groups = [(units, n_workers)]
    if machine.device == "cuda":
        nets = [unit for unit in units if unit.probe == TWO_LAYER]
        groups = [(nets, min(n_workers, FITS_PER_GPU * n_gpus(machine))),
                  ([unit for unit in units if unit.probe != TWO_LAYER], n_workers)]
    try:
        for group, n in groups:
            yield from run_jobs(fit, group, context, n)
    except torch.OutOfMemoryError as error:
        raise StageError(f"a fit found no memory on its GPU ({error}); what is finished is kept: run the same command "
                         f"again with --set machine.n_workers=1") from error


def n_gpus(machine: Machine) -> int:
    return machine.n_gpus or torch.cuda.device_count()


def device_of(machine: Machine) -> str:
    """The device of this worker process: the workers of a pool are numbered, and go round the GPUs."""
    if machine.device != "cuda":
        return machine.device
    number = int(multiprocessing.current_process().name.rpartition("-")[2])
    return f"cuda:{number % n_gpus(machine)}"


def workers_that_fit(n_workers: int, corpora: Mapping[str, Corpus], n_inputs: int) -> int:
    """As many workers as memory holds: each needs its inputs once and as much again for the fit's own arrays."""
    n_rows = max(int(corpus.lengths.sum()) for corpus in corpora.values())
    return max(1, min(n_workers, available_memory() // (2 * 4 * n_rows * n_inputs + WORKER_BYTES)))
