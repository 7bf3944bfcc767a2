"""One token per grammar terminal: the tokenizer that transformers loads, and the ids that training uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from pcfg_artifact.errors import GrammarError, StageError

# RoBERTa's order, with <mask> before the words instead of after them: word w of the grammar is token FIRST_WORD + w.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BEGIN, PAD, END, UNK, MASK = range(5)
FIRST_WORD = len(SPECIAL_TOKENS)


def of_words(words: np.ndarray) -> np.ndarray:
    """Token ids of the grammar's words; -1 is <mask>."""
    return np.where(words < 0, MASK, words + FIRST_WORD)


def build_tokenizer(words: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    """The word-level tokenizer of a grammar's terminals: `<s> w_1 .. w_n </s>`, words separated by white space."""
    for word in words:
        if word in SPECIAL_TOKENS or word.split() != [word]:
            raise GrammarError(f"the terminal {word!r} cannot be one token: it is a special token or holds white "
                               f"space; rename it in the treebank")
    vocabulary = {token: i for i, token in enumerate((*SPECIAL_TOKENS, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BEGIN), ("</s>", END)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=max_length + 2, bos_token="<s>", cls_token="<s>", eos_token="</s>",
        sep_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")


def check_vocabulary(tokenizer: PreTrainedTokenizerFast, words: Sequence[str], where: str) -> None:
    """Refuse a model whose tokens are not exactly the special tokens and the grammar's words, in order."""
    expected = (*SPECIAL_TOKENS, *words)
    found = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    if tuple(found) == expected:
        return
    where_differs = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
                         min(len(found), len(expected)))
    shown = [names[where_differs] if where_differs < len(names) else "nothing" for names in (found, expected)]
    raise StageError(f"{where}: the vocabulary does not match the grammar: {len(found)} tokens, expected "
                     f"{len(expected)}; token {where_differs} is {shown[0]!r}, expected {shown[1]!r}; "
                     f"use the model with the grammar it was trained on, or train it again")
