"""The PCFG value type: names, rules in Chomsky normal form, a root distribution."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.unknown import UNKNOWN, signature
from pcfg_artifact.grammar.written import MASS_TOLERANCE, ROOT, Word, WrittenGrammar, rule_text
from pcfg_artifact.system import storage

FORMAT = "pcfg_artifact grammar"
VERSION = 1


@dataclass(frozen=True, eq=False)
class PCFG:
    """A PCFG in Chomsky normal form over in-terminals (A -> B C) and pre-terminals (A -> word).

    Non-terminals are numbered in-terminals first, then pre-terminals; R binary and E lexical rules, sorted.
    root (N,); binary (R, 3) int32 parent, left, right; binary_prob (R,);
    lexical (E, 2) int32 non-terminal, word; lexical_prob (E,).
    symbol_counts (N,) and word_counts (V,) are occurrences in the training trees, None for a written grammar.
    `is_proper` is False for a grammar whose rules were cut: mass up to 1 is then enough.
    `written` is the grammar that this is the normal form of, None where it was in normal form from the beginning.
    """

    interminals: tuple[str, ...]
    preterminals: tuple[str, ...]
    words: tuple[str, ...]
    root: np.ndarray
    binary: np.ndarray
    binary_prob: np.ndarray
    lexical: np.ndarray
    lexical_prob: np.ndarray
    symbol_counts: np.ndarray | None = None
    word_counts: np.ndarray | None = None
    is_proper: bool = True
    written: WrittenGrammar | None = None

    def __post_init__(self) -> None:
        self._check_shapes()
        self._sort_rules()
        self._check()

    # ---- names -------------------------------------------------------------------------------------------------

    @cached_property
    def nonterminals(self) -> tuple[str, ...]:
        return self.interminals + self.preterminals

    @property
    def n_interminals(self) -> int:
        return len(self.interminals)

    @property
    def n_preterminals(self) -> int:
        return len(self.preterminals)

    @property
    def n_nonterminals(self) -> int:
        return len(self.interminals) + len(self.preterminals)

    @property
    def n_words(self) -> int:
        return len(self.words)

    @cached_property
    def nonterminal_index(self) -> dict[str, int]:
        return {name: a for a, name in enumerate(self.nonterminals)}

    @cached_property
    def word_index(self) -> dict[str, int]:
        return {word: w for w, word in enumerate(self.words)}

    def as_read(self, sentence: Sequence[str]) -> list[str]:
        """Words as a model trained on this grammar's text reads them: rare and unknown ones as their signature."""
        return [self.words[w] if w >= 0 else "<unk>" for w in self.encode(sentence)]

    def encode(self, sentence: Sequence[str], rare_below: int | None = None) -> np.ndarray:
        """Word ids (L,) int32: the word, else its signature, else UNK, else -1 (nothing in the grammar fits).

        `rare_below` sends known words with that training count or less to their signature as well.
        """
        index = self.word_index
        ids = np.empty(len(sentence), dtype=np.int32)
        for position, word in enumerate(sentence):
            w = index.get(word, -1)
            is_rare = rare_below is not None and w >= 0 and self.word_counts is not None \
                and self.word_counts[w] <= rare_below
            if w < 0 or is_rare:
                fallback = index.get(signature(word, position, index), index.get(UNKNOWN, -1))
                w = fallback if fallback >= 0 else w
            ids[position] = w
        return ids

    # ---- building ----------------------------------------------------------------------------------------------

    @classmethod
    def from_rules(
        cls,
        root: Mapping[str, float],
        binary: Iterable[tuple[str, str, str, float]],
        lexical: Iterable[tuple[str, str, float]],
        *,
        is_proper: bool = True,
        symbol_counts: Mapping[str, int] | None = None,
        word_counts: Mapping[str, int] | None = None,
        written: WrittenGrammar | None = None,
    ) -> PCFG:
        """A grammar from named rules; symbols and words are numbered in the order in which they first head a rule."""
        binary, lexical = list(binary), list(lexical)
        interminals = tuple(dict.fromkeys(a for a, _, _, _ in binary))
        preterminals = tuple(dict.fromkeys(a for a, _, _ in lexical))
        words = tuple(dict.fromkeys(w for _, w, _ in lexical))
        both = set(interminals) & set(preterminals)
        if both:
            head, word = next((a, w) for a, w, _ in lexical if a in both)
            left, right = next((b, c) for a, b, c, _ in binary if a == head)
            raise GrammarError(
                f"{head!r} heads both binary and lexical rules, {rule_text(head, left, right)} and "
                f"{rule_text(head, Word(word))}; in-terminals and pre-terminals must be disjoint: give the words a "
                f"symbol of their own", head)
        index = {name: a for a, name in enumerate(interminals + preterminals)}
        word_index = {w: i for i, w in enumerate(words)}
        for a, b, c, _ in binary:
            for name in (b, c):
                if name not in index:
                    raise GrammarError(f"{name!r} in the rule {rule_text(a, b, c)} heads no rule; every non-terminal "
                                       f"needs at least one", name)
        for name in root:
            if name not in index:
                raise GrammarError(f"{name!r} in the root distribution heads no rule; every non-terminal needs at "
                                   f"least one", name)
        root_vector = np.zeros(len(index))
        for name, p in root.items():
            root_vector[index[name]] = p
        return cls(
            interminals=interminals, preterminals=preterminals, words=words, root=root_vector,
            binary=np.array([(index[a], index[b], index[c]) for a, b, c, _ in binary], np.int32).reshape(-1, 3),
            binary_prob=np.array([p for *_, p in binary], np.float64),
            lexical=np.array([(index[a], word_index[w]) for a, w, _ in lexical], np.int32).reshape(-1, 2),
            lexical_prob=np.array([p for *_, p in lexical], np.float64),
            symbol_counts=None if symbol_counts is None else np.array([symbol_counts.get(a, 0) for a in index]),
            word_counts=None if word_counts is None else np.array([word_counts.get(w, 0) for w in words]),
            is_proper=is_proper, written=written)

    @classmethod
    def from_nltk(cls, grammar: Any) -> PCFG:
        """The normal form of an nltk.PCFG, unary, longer and mixed rules included: the same probability of every
        sentence.  `written` is the grammar as it came; its trees: normal_form.NormalForm.restored."""
        from pcfg_artifact.grammar.nltk_grammars import grammar_from_nltk
        return grammar_from_nltk(grammar)

    def to_nltk(self) -> Any:
        """An nltk.PCFG with the same sentences, probabilities and trees."""
        from pcfg_artifact.grammar.nltk_grammars import grammar_to_nltk
        return grammar_to_nltk(self)

    def with_word_order(self, order: Sequence[int]) -> PCFG:
        """The same grammar with its vocabulary listed as words[order[0]], words[order[1]], ..."""
        new_id = np.empty(self.n_words, np.int32)
        new_id[np.asarray(order)] = np.arange(self.n_words, dtype=np.int32)
        return replace(
            self, words=tuple(self.words[w] for w in order),
            lexical=np.stack([self.lexical[:, 0], new_id[self.lexical[:, 1]]], axis=1),
            word_counts=None if self.word_counts is None else self.word_counts[np.asarray(order)])

    def _check_shapes(self) -> None:
        n = self.n_nonterminals
        shapes = [("binary", self.binary, (len(self.binary), 3), "iu"),
                  ("lexical", self.lexical, (len(self.lexical), 2), "iu"),
                  ("root", self.root, (n,), "iuf"), ("binary_prob", self.binary_prob, (len(self.binary),), "iuf"),
                  ("lexical_prob", self.lexical_prob, (len(self.lexical),), "iuf"),
                  ("symbol_counts", self.symbol_counts, (n,), "iuf"),
                  ("word_counts", self.word_counts, (self.n_words,), "iuf")]
        for name, array, shape, kinds in shapes:
            if array is not None and (array.shape != shape or array.dtype.kind not in kinds):
                raise GrammarError(f"{name} has shape {array.shape} and type {array.dtype}, expected {shape} "
                                   f"{'integers' if kinds == 'iu' else 'numbers'}; the grammar is inconsistent")

    def _sort_rules(self) -> None:
        order = np.lexsort(self.binary.T[::-1])
        object.__setattr__(self, "binary", np.ascontiguousarray(self.binary[order], np.int32))
        object.__setattr__(self, "binary_prob", np.ascontiguousarray(self.binary_prob[order], np.float64))
        order = np.lexsort(self.lexical.T[::-1])
        object.__setattr__(self, "lexical", np.ascontiguousarray(self.lexical[order], np.int32))
        object.__setattr__(self, "lexical_prob", np.ascontiguousarray(self.lexical_prob[order], np.float64))
        object.__setattr__(self, "root", np.ascontiguousarray(self.root, np.float64))

    def _check(self) -> None:
        names, n_interminals = self.nonterminals, self.n_interminals
        if not self.preterminals or not self.words:
            raise GrammarError("the grammar has no lexical rule; it needs at least one pre-terminal with a word")
        if len(set(names)) != len(names):
            raise GrammarError("in-terminals and pre-terminals must be disjoint, and each name used once")
        if len(set(self.words)) != len(self.words):
            raise GrammarError("the vocabulary lists a word twice")
        ranges = [("binary parents", self.binary[:, 0], 0, n_interminals),
                  ("binary children", self.binary[:, 1:], 0, len(names)),
                  ("lexical heads", self.lexical[:, 0], n_interminals, len(names)),
                  ("lexical words", self.lexical[:, 1], 0, self.n_words)]
        for name, ids, low, high in ranges:
            if ids.size and not (ids.min() >= low and ids.max() < high):
                raise GrammarError(f"{name} run from {ids.min()} to {ids.max()}, expected {low} to {high - 1}")
        for name, rules in (("binary", self.binary), ("lexical", self.lexical)):
            if len(rules) > 1 and (np.diff(rules, axis=0) == 0).all(axis=1).any():
                raise GrammarError(f"a {name} rule is listed twice; add its probabilities into one rule")
        for name, prob in (("root", self.root), ("binary", self.binary_prob), ("lexical", self.lexical_prob)):
            if prob.size and not (prob.min() >= 0 and prob.max() <= 1 + MASS_TOLERANCE):  # False for NaN
                raise GrammarError(f"{name} probabilities run from {prob.min()} to {prob.max()}, expected 0 to 1")
        mass = np.concatenate([self.rule_mass(), [self.root.sum()]])
        off = mass - 1.0 if not self.is_proper else np.abs(mass - 1.0)
        worst = int(off.argmax())
        if not off[worst] <= MASS_TOLERANCE:
            symbol = names[worst] if worst < len(names) else ROOT
            what = f"the rules of {symbol!r}" if worst < len(names) else "the root distribution"
            raise GrammarError(f"{what} sum to {mass[worst]:.9f}, expected 1 within {MASS_TOLERANCE:g}; normalise the "
                               f"probabilities", symbol)

    def rule_mass(self) -> np.ndarray:
        """(N,) total probability of the rules that each non-terminal heads; 1 for a proper grammar."""
        heads = np.concatenate([self.binary[:, 0], self.lexical[:, 0]])
        return np.bincount(heads, np.concatenate([self.binary_prob, self.lexical_prob]), minlength=self.n_nonterminals)

    # ---- on disk -----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a grammar folder: grammar.json (names) and grammar.npz (arrays)."""
        meta = {"format": FORMAT, "version": VERSION, "interminals": self.interminals,
                "preterminals": self.preterminals, "words": self.words, "is_proper": self.is_proper}
        if self.written is not None:
            meta["written"] = self.written.as_json()
        arrays = {"root": self.root, "binary": self.binary, "binary_prob": self.binary_prob,
                  "lexical": self.lexical, "lexical_prob": self.lexical_prob}
        arrays |= {name: getattr(self, name) for name in ("symbol_counts", "word_counts")
                   if getattr(self, name) is not None}
        storage.save_bundle(Path(path), "grammar", meta, arrays)

    @classmethod
    def load(cls, path: str | Path) -> PCFG:
        """Read what `save` wrote; a truncated, inconsistent or foreign file is a GrammarError."""
        try:
            meta, arrays = storage.load_bundle(Path(path), "grammar", FORMAT, VERSION, GrammarError)
        except OSError as error:
            raise GrammarError(f"cannot read {error.filename or path}: {error.strerror or error}; expected a grammar "
                               f"folder that may be read") from error
        except zipfile.BadZipFile as error:
            raise GrammarError(f"{path}: grammar.npz is damaged ({error}); learn the grammar again") from error
        try:
            names = {key: meta[key] for key in ("interminals", "preterminals", "words")}
            if not all(isinstance(found, list) and all(isinstance(name, str) for name in found)
                       for found in names.values()) or not isinstance(meta["is_proper"], bool):
                raise GrammarError(f"{path}: grammar.json does not list names; learn the grammar again")
            written = WrittenGrammar.from_json(meta["written"]) if "written" in meta else None
            return cls(interminals=tuple(names["interminals"]), preterminals=tuple(names["preterminals"]),
                       words=tuple(names["words"]), is_proper=meta["is_proper"], written=written, **arrays)
        except GrammarError as error:
            raise GrammarError(f"{path}: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise GrammarError(f"{path}: the grammar's parts do not fit together ({error}); learn it again") from error
