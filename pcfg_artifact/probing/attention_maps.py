"""Where the layers of an encoder look in one sentence, word by word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


@torch.inference_mode()
def attention_maps(model: Any, tokenizer: Any, words: Sequence[str], device: str = "cpu") -> np.ndarray:
    """(layers, L, L) attention from word to word, the mean over heads; what goes to <s> and </s> is missing in rows.

    The first piece of a word looks; all pieces of a word are looked at.  The model must be loaded with attention
    "eager": fused kernels give no attention back.
    """
    encoded = tokenizer([list(words)], is_split_into_words=True, return_tensors="pt")
    word_of = encoded.word_ids(0)
    attentions = model.to(device).eval()(**encoded.to(device), output_attentions=True).attentions
    heads = torch.stack([a[0].double().mean(0) for a in attentions]).cpu().numpy()  # (layers, pieces, pieces)
    first = [word_of.index(w) for w in range(len(words))]
    belongs = np.array([[float(of == w) for w in range(len(words))] for of in word_of])
    return heads[:, first] @ belongs
