"""Surprisal of words under a causal Hugging Face model: its word pieces, summed by word.

Word borders.  The words are joined by one blank and cut into pieces as one text; a piece belongs to the word that holds
its first character that is no blank.  A blank before a word, which many tokenizers put into the word's first piece, is
so counted with the word that it precedes; what the model thinks of a border after a word is counted with the next
word.
With border="previous" it is moved to the word before: after every word the border has the probability of all tokens
that begin a word, and of the end.  It is taken off the next word (or the end) and added to this one, so that
probabilities of words sum to 1 (Pimentel and Meister 2024, Oh and Schuler 2024).  Tokens begin a word if they are
marked so (a blank, as most byte-level and sentencepiece tokenizers write it), or if those that do not are marked (##);
without any mark every token begins a word, and a border is certain.
The sentence begins after the model's begin token (else its end token) and ends with its end token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pcfg_artifact.errors import UsageError

COLUMNS = ("model_surprisal_bits", "model_entropy_bits", "model_pieces")
BLANK = ("Ġ", "▁")  # what a tokenizer writes for the blank before a word
CONTINUES = "##"  # marks tokens that go on with a word, where those that begin one are not marked
SAME = 1e-3  # of logits: what a later token may change in an earlier prediction by rounding alone


@dataclass(frozen=True)
class WordScore:
    """Bits of surprisal and, before its first piece, of entropy; NaN with a reason where the model cannot say."""

    surprisal: float
    entropy: float
    n_pieces: int
    reason: str = ""


class CausalModel:
    """A causal language model and its tokenizer, from a folder on disk."""

    def __init__(self, folder: Path, border: str = "next") -> None:
        from pcfg_artifact.mlm.encoders import load_causal_lm  # here: it takes seconds

        if not (folder / "config.json").is_file():
            raise UsageError(f"--model {folder} is no model folder (it has no config.json); give the folder of a "
                             f"causal Hugging Face model")
        self.model, self.tokenizer = load_causal_lm(folder)
        if not self.tokenizer.is_fast:
            raise UsageError(f"--model {folder} has a tokenizer that does not say where its pieces lie; save it with "
                             f"its fast tokenizer (tokenizer.json)")
        self.begin = next((token for token in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
                           if token is not None), None)
        self.end: int | None = self.tokenizer.eos_token_id
        self.border = border
        self.begins_word = self._tokens_that_begin_words()
        self.longest = getattr(self.model.config, "max_position_embeddings", None)
        self._check_causal(folder)

    def description(self) -> str:
        """One line on how words were scored."""
        begin = "nothing (its first piece is not predicted)" if self.begin is None else \
            repr(self.tokenizer.convert_ids_to_tokens(self.begin))
        end = "not predicted: the tokenizer has no end token" if self.end is None else \
            repr(self.tokenizer.convert_ids_to_tokens(self.end))
        return (f"model: pieces are summed by word; a piece belongs to the word of its first character that is no "
                f"blank; a border between words counts to the {self.border} one; a sentence begins after {begin}, "
                f"[END] is {end}; model_entropy_bits is of the first piece")

    def scores(self, words: list[str], read_as: list[str]) -> list[WordScore]:
        """One score a word, and one for the end.

        read_as: the grammar's words; one is taken where the model's tokenizer has it as a token but not the word.
        """
        known = self.tokenizer.get_vocab()
        unknown = self.tokenizer.unk_token_id
        if unknown is not None:
            words = [other if other in known and self._ids(word) == [unknown] else word
                     for word, other in zip(words, read_as, strict=True)]
        pieces, word_of = self._pieces(words)
        context = [self.begin] if self.begin is not None else []
        ended = [self.end] if self.end is not None else []
        ids = [*context, *pieces, *ended]
        if self.longest is not None and len(ids) > self.longest:
            return [WordScore(math.nan, math.nan, 0, f"more pieces ({len(ids)}) than the model's {self.longest}")
                    ] * (len(words) + 1)
        n_pieces = np.bincount(word_of, minlength=len(words) + 1)
        n_pieces[len(words)] = len(ended)
        surprisal, entropy = np.zeros(len(words) + 1), np.full(len(words) + 1, np.nan)
        before = np.zeros(len(words) + 1)  # bits of the border before each word
        if len(ids) > 1:
            log_probs = self._log_probs(ids)  # row n predicts token n + 1
            for n, token in enumerate(ids[1:]):
                piece = n + 1 - len(context)
                word = word_of[piece] if piece < len(pieces) else len(words)
                if np.isnan(entropy[word]):
                    if piece > 0:
                        before[word] = -np.logaddexp.reduce(log_probs[n, self.begins_word]) / math.log(2)
                    entropy[word] = -(np.exp(log_probs[n]) @ log_probs[n]) / math.log(2)
                surprisal[word] -= log_probs[n, token] / math.log(2)
        if self.border == "previous":
            surprisal += np.append(before[1:], 0.0) - before
        if not context and len(pieces):
            surprisal[word_of[0]] = entropy[word_of[0]] = math.nan
        nothing = WordScore(math.nan, math.nan, 0, "the model has no piece for it")
        return [WordScore(float(s), float(h), int(n)) if n else nothing
                for s, h, n in zip(surprisal, entropy, n_pieces, strict=True)]

    def _tokens_that_begin_words(self) -> np.ndarray:
        """(tokens of the model,) whether each begins a word, or is the end."""
        tokens = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        begins = np.array([token.startswith(BLANK) for token in tokens])
        if not begins.any():
            begins = ~np.array([token.startswith(CONTINUES) for token in tokens])
        if self.end is not None:
            begins[self.end] = True
        n_tokens = self.model.get_output_embeddings().out_features
        return np.append(begins, np.zeros(max(n_tokens - len(begins), 0), bool))[:n_tokens]

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _pieces(self, words: list[str]) -> tuple[list[int], np.ndarray]:
        """Token ids of the sentence and the word of each."""
        text = " ".join(words)
        if not text:
            return [], np.zeros(0, np.int64)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        word_at = np.concatenate([np.full(len(word) + 1, w) for w, word in enumerate(words)])
        is_blank = np.array([character == " " for character in text])
        starts = []
        for begin, _ in encoded["offset_mapping"]:
            while begin < len(text) - 1 and is_blank[begin]:
                begin += 1
            starts.append(begin)
        return list(encoded["input_ids"]), word_at[np.array(starts, np.int64)]

    def _log_probs(self, ids: list[int]) -> np.ndarray:
        """(n - 1, tokens) log probabilities of tokens 1 .. n-1 given those before."""
        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([ids])).logits[0, :-1]
        log_probs = torch.log_softmax(logits.double(), dim=-1).numpy()
        if np.isnan(log_probs).any():
            raise UsageError("a prediction of the model is nan: its weights are damaged, or training went astray; use "
                             "another --model")
        return log_probs

    def _check_causal(self, folder: Path) -> None:
        """An encoder loads as a causal model too, and sees the word it should predict."""
        n_tokens = self.model.get_input_embeddings().num_embeddings
        first, other = [0, 1 % n_tokens, 0], [0, 1 % n_tokens, n_tokens - 1]
        if n_tokens > 1 and np.abs(self._log_probs(first) - self._log_probs(other)).max() > SAME:
            raise UsageError(f"--model {folder} is not causal: its prediction of a word changes with the word itself; "
                             f"give a model that reads from left to right")
