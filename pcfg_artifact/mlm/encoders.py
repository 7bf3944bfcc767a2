"""Models on disk: Hugging Face folders, those of a run's stage `pretrain` and anybody's.

A folder may come from anyone: no code in it is run, no pickle is read, and weights that do not fit the model it
describes are refused, since transformers would put random numbers in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging

from pcfg_artifact.errors import UsageError

UNREAD = ("pooler.",)  # weights that no probe reads, and that models trained on masked words do not have
KINDS = {AutoModel: "an encoder", AutoModelForMaskedLM: "a masked model", AutoModelForCausalLM: "a causal model"}
SHOWN_NAMES = 3
MOST_LAYERS = 1000  # the deepest models that people share have less than 200
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.tiktoken")  # one of them, in any tokenizer


def load_encoder(folder: Path, *, attention: str = "sdpa") -> tuple[Any, Any]:
    """(model, tokenizer) of a Hugging Face folder."""
    tokenizer = load_tokenizer(folder, add_prefix_space=True)
    if not tokenizer.is_fast:
        raise UsageError(f"the tokenizer in {folder} does not say which word a piece belongs to; save its fast version "
                         f"(tokenizer.json) there")
    model = _load_weights(AutoModel, folder, attn_implementation=attention, dtype=torch.float32)
    if getattr(model.config, "is_encoder_decoder", False):
        raise UsageError(f"{folder} holds a model with a decoder; give an encoder such as BERT or RoBERTa")
    _check_vocabulary(model, tokenizer, folder)
    return model.eval(), tokenizer


def load_config(folder: Path) -> Any:
    """The sizes of a model, without its weights."""
    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def load_masked_lm(folder: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a masked language model, its head included."""
    return _load_weights(AutoModelForMaskedLM, folder).eval(), load_tokenizer(folder)


def load_causal_lm(folder: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a causal language model, its head included."""
    model, tokenizer = _load_weights(AutoModelForCausalLM, folder), load_tokenizer(folder)
    _check_vocabulary(model, tokenizer, folder)
    return model.eval(), tokenizer


def load_tokenizer(folder: Path, **options: Any) -> Any:
    _check_config(folder)  # before the tokenizer, which reads it too and would be blamed
    if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
        # transformers would make one without words from config.json
        raise UsageError(f"{folder} holds no tokenizer (none of {', '.join(VOCABULARIES)}); save the model's own there "
                         f"with save_pretrained")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # tokenizers raises bare Exceptions, and a foreign file can cause any
        raise UsageError(f"{folder} cannot be loaded: its tokenizer is damaged ({_one_line(error)}); save a fast "
                         f"tokenizer there with save_pretrained") from error


def _check_config(folder: Path) -> None:
    try:
        n_layers = getattr(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False),
                           "num_hidden_layers", 0)
    except Exception as error:  # a foreign config.json can cause any
        raise UsageError(f"{folder / 'config.json'} describes no model that transformers knows ({_one_line(error)}); "
                         f"give a folder written by save_pretrained") from error
    # Each layer is an object in memory before a weight is read: a number in a small file must not fill the machine.
    if isinstance(n_layers, int) and not 0 <= n_layers <= MOST_LAYERS:
        raise UsageError(f"{folder / 'config.json'} describes a model of {n_layers:,} layers, expected 0 to "
                         f"{MOST_LAYERS:,}")


def _check_vocabulary(model: Any, tokenizer: Any, folder: Path) -> None:
    n_tokens, n_embedded = 1 + max(tokenizer.get_vocab().values()), model.get_input_embeddings().num_embeddings
    if n_tokens > n_embedded:
        raise UsageError(f"the tokenizer in {folder} has {n_tokens} tokens, the model has embeddings for {n_embedded}; "
                         f"give a folder whose model and tokenizer were saved together")


def _load_weights(kind: Any, folder: Path, **options: Any) -> Any:
    """The model of a folder, every weight of it from the folder's safetensors."""
    logging.set_verbosity_error()  # it warns of heads that no probe reads
    logging.disable_progress_bar()
    _check_config(folder)
    try:
        model, found = kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False,
                                            use_safetensors=True, output_loading_info=True,
                                            ignore_mismatched_sizes=True, **options)  # refused below, by name
    except Exception as error:  # a foreign file can cause any
        raise UsageError(f"{folder} cannot be loaded as {KINDS[kind]} ({_one_line(error)}); give a folder written "
                         f"by save_pretrained, with config.json and the weights as safetensors") from error
    other_shapes = sorted(f"{name} is {_shape(there)}, expected {_shape(wanted)}"
                          for name, there, wanted in found["mismatched_keys"])
    if other_shapes:
        raise UsageError(f"{len(other_shapes)} weights of {folder} have another shape than {folder / 'config.json'} "
                         f"describes: {_some(other_shapes)}; correct config.json, or save the model again")
    missing = sorted(name for name in found["missing_keys"] if not name.startswith(UNREAD))
    if missing:
        others = sorted(found["unexpected_keys"])
        raise UsageError(f"{len(missing)} weights of the {type(model).__name__} that {folder / 'config.json'} "
                         f"describes are not in its safetensors: {_some(missing)}"
                         + (f"; there are {len(others)} others instead: {_some(others)}" if others else "")
                         + "; save the model again, or give its tensors the names that transformers gives them")
    surplus = sorted(_surplus_layers(model, found["unexpected_keys"]))
    if surplus:
        raise UsageError(f"the safetensors of {folder} hold more layers than its config.json describes: "
                         f"{_some(surplus)}; correct num_hidden_layers, or save the model again")
    return model


def _surplus_layers(model: Any, names: Iterable[str]) -> set[str]:
    """Of the weights that the model does not use, those of layers behind its last one; heads are no layers."""
    lengths = {name: len(module) for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)}
    surplus = set()
    for name in names:
        for match in re.finditer(r"\.(\d+)\.", name):
            stack = name[:match.start()]
            # A file of a model with a head has the name of the model without it in front.
            length = lengths.get(stack, lengths.get(stack.partition(".")[2]))
            if length is not None and int(match[1]) >= length:
                surplus.add(name[:match.end() - 1])
    return surplus


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes))


def _one_line(error: Exception) -> str:
    """What a library says, in one line; some say nothing."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__
