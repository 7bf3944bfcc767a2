"""Prefixes: the exact next word, the probability of what was read, and what is already known of the tree.

A prefix is read word by word; one more word costs one more column of the chart.  After t words the grammar gives
P(w_{t+1} | w_1 .. w_t) over all its words and the end of the sentence, the posterior of every span of the words read,
and the expected number of constituents that are open: those that hold word t and word t + 1.

Jelinek and Lafferty (1991) sum over left corners once per grammar, as we do.  Read by columns, with the weights of
what may begin at each position kept (as Stolcke's Earley parser keeps them), everything but the inside values is
quadratic in the length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import column_cell_of
from pcfg_artifact.parsing.charts import log_of
from pcfg_artifact.parsing.cpu_kernels import semiring
from pcfg_artifact.parsing.leaves import Sentence, word_ids
from pcfg_artifact.parsing.prefix import prefix_kernels as kernels
from pcfg_artifact.parsing.prefix.prefix_grammar import PrefixGrammar, prefix_grammar
from pcfg_artifact.system.machine import available_memory

FIRST_ROOM = 31  # words: one word of a mask holds 32 fenceposts and more
SMALL = 32 << 20  # bytes that are had without asking: the question takes longer than a short sentence


@dataclass(frozen=True, eq=False)
class SpanPosteriors:
    """Probability of every node (symbol, start, end) inside the `length` words read; one entry for each, (E,)."""

    length: int
    n_nonterminals: int
    starts: np.ndarray
    ends: np.ndarray
    symbols: np.ndarray
    probability: np.ndarray

    @property
    def spans(self) -> np.ndarray:
        """(t+1, t+1) probability that (i, j) is a span of the tree, whatever its label."""
        dense = np.zeros((self.length + 1, self.length + 1))
        np.add.at(dense, (self.starts, self.ends), self.probability)  # a span has one node at most
        return dense

    @property
    def labelled(self) -> np.ndarray:
        """(t+1, t+1, N) probability of a node A over (i, j)."""
        dense = np.zeros((self.length + 1, self.length + 1, self.n_nonterminals))
        dense[self.starts, self.ends, self.symbols] = self.probability
        return dense


@dataclass(frozen=True, eq=False)
class NextWords:
    """Every prefix of one sentence of L words.

    next_word (L+1, V+1): row t is P(w_{t+1} | w_1 .. w_t) over the V words of the grammar and, last, the end.
    log_prefix (L+1,): log probability of all sentences that begin with the first t words; log_prefix[0] is the log
    of the total probability of finite trees, 0 for a grammar whose trees all end.
    log_probs (L+1,): log probability of each word given those before it, and of the end after the last; -inf for 0.
    tree_update, word_choice (L+1,): the surprisal -log_probs as a sum.  Take the tree without its words, down to its
    pre-terminals.  A word changes the belief about that tree: tree_update is the relative entropy of the belief after
    the word to that before it.  word_choice is the surprisal of the word among those of its pre-terminal, averaged
    over the belief after it; 0 for the end, which is a fact of the tree.  NaN where a word is impossible.
    log_prob: of the whole sentence, as Inside-Outside gives it.  n_open (L+1,): expected number of open constituents.
    impossible_at: the first word (0-based) that cannot follow those before it, None if all can; rows after it are 0.
    """

    ids: np.ndarray
    next_word: np.ndarray
    log_prefix: np.ndarray
    log_probs: np.ndarray
    tree_update: np.ndarray
    word_choice: np.ndarray
    n_open: np.ndarray
    log_prob: float
    impossible_at: int | None

    @property
    def entropy(self) -> np.ndarray:
        """(L+1,) entropy of every row in nats, NaN where the prefix has no probability."""
        p = self.next_word
        terms = p * np.log(np.where(p > 0, p, 1.0))
        return np.where(self.log_prefix > -np.inf, -terms.sum(axis=1), np.nan)


class Prefix:
    """The words read so far; `extend` reads one more.

    next_word (V+1,): probability of each word to come, the end last.  log_prob: of all sentences that begin like this.
    n_open: expected number of open constituents.  impossible_at: the first word that could not follow, else None; from
    then on all probabilities are 0.
    """

    def __init__(self, grammar: PCFG, longest: int = FIRST_ROOM) -> None:
        self.grammar: PrefixGrammar = prefix_grammar(grammar)
        self.ids: list[int] = []
        self.next_word: np.ndarray
        self.log_prob: float
        self.n_open: float
        self.impossible_at: int | None = None
        # In log space from the start where a rule is so rare that products with it are not safe.
        self._begin(longest, True if self.grammar.smallest_prob < semiring.SMALLEST_RULE else None)

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def is_possible(self) -> bool:
        return self.impossible_at is None

    def extend(self, word: str | int) -> Prefix:
        """Read a word of the sentence (an unknown one as its signature), or a word id of the grammar."""
        w = int(self.grammar.pcfg.encode([""] * self.length + [word])[-1]) if isinstance(word, str) else int(word)
        if w >= self.grammar.pcfg.n_words:
            raise UsageError(f"word id {w} is outside this grammar's {self.grammar.pcfg.n_words} words")
        self._read(np.array([w]))
        return self

    def log_next(self, w: int) -> float:
        """Log probability that word w comes next (-1: that nothing does); right even where next_word rounds to 0."""
        if not self.is_possible:
            return -np.inf
        return float(self._logarithm(self._row[w]))

    def ending_spans(self) -> np.ndarray:
        """(t,) probability that (i, t) is a span of the tree, given the t words read: known without looking back."""
        found = np.zeros(self.length)
        if not self.is_possible or not self.length:
            return found
        state, t = self._state, self.length
        for i in range(t):
            cell = column_cell_of(i, t)
            entries = slice(state.offsets[cell], state.offsets[cell + 1])
            values, forward = state.values[entries], state.forward[i, state.symbols[entries]]
            found[i] = np.exp(values + forward).sum() if self._log else values @ forward
        return found

    def log_belief(self, t: int) -> np.ndarray:
        """(N,) logarithms of a row of `beliefs`."""
        forward = self._state.forward[t]
        return forward.copy() if self._log else log_of(forward)

    def beliefs(self) -> np.ndarray:
        """(t+1, N) forward vectors: what may come next after 0 .. t words, given these; 0 after an impossible one.

        Of a pre-terminal: the probability that the next word is one of its (what they lack to 1 is the end's); of an
        in-terminal: the expected number of its constituents that begin with the next word.
        """
        found = np.zeros((self.length + 1, self.grammar.pcfg.n_nonterminals))
        last = self.length if self.impossible_at is None else self.impossible_at
        for t in range(last + 1):
            found[t] = np.exp(self.log_belief(t))
        return found

    def n_begun(self) -> float:
        """Expected number of constituents of two words or more that begin with the last word read; 0 before any."""
        if not self.is_possible or not self.length:
            return 0.0
        return float(kernels.n_begun(self._tables, self._state, self.length - 1, self.ids[-1], self._log))

    def posteriors(self, t: int | None = None, has_ended: bool = False) -> SpanPosteriors:
        """Posterior of every node inside words 1 .. t, given these (default: all words read), and the end if has_ended.

        Costs one pass over the chart, cubic in t.  Zeros where the words (and the end) have no probability.
        """
        t = self.length if t is None else t
        if not 0 <= t <= self.length:
            raise UsageError(f"t is {t}, expected 0 to {self.length}, the number of words read")
        n = self.grammar.pcfg.n_nonterminals
        if t == 0 or (self.impossible_at is not None and self.impossible_at < t):
            empty = np.zeros(0, np.int64)
            return SpanPosteriors(t, n, empty, empty, empty, np.zeros(0))
        probability = kernels.posteriors(self._tables, self._state, t, has_ended, self._log)
        ends = np.repeat(np.arange(1, t + 1), np.arange(1, t + 1))
        starts = ends - 1 - (np.arange(len(ends)) - ends * (ends - 1) // 2)  # cells run by j, then by falling i
        counts = np.diff(self._state.offsets[:len(ends) + 1])
        return SpanPosteriors(t, n, np.repeat(starts, counts), np.repeat(ends, counts),
                              self._state.symbols[:len(probability)].astype(np.int64), probability)

    @property
    def n_bytes(self) -> int:
        """Memory that the words read take."""
        return sum(array.nbytes for array in self._state)

    # ---- the chart behind it -----------------------------------------------------------------------------------------

    def _begin(self, longest: int, log: bool | None) -> None:
        self._log = log
        self._tables = self.grammar.tables if log is None else self.grammar.log_tables
        self._longest = longest
        try:  # nothing of it is touched yet, so that even far too much may be given
            self._state = kernels.new_state(self._tables, longest)
        except MemoryError as error:
            raise UsageError(f"the chart of {longest:,} words cannot be held in memory ({error}); leave out sentences "
                             f"of that length") from error
        _check_memory(self.n_bytes, longest)
        self._row = np.empty(self.grammar.pcfg.n_words + 1)
        self.log_prob, self.n_open = self.grammar.log_total, 0.0
        if not kernels.begin(self._tables, self._state, self._row, log):
            self._begin(longest, True)
        self.next_word = self._probability(self._row)

    def _read(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read the words; next_word (n+1, V+1) and n_open (n+1,) before each and at the end, and log_probs (n,)."""
        n, t = len(words), self.length
        rows, n_open, log_probs = np.empty((n + 1, len(self._row))), np.zeros(n + 1), np.full(n, -np.inf)
        rows[0], n_open[0] = self._row, self._weight(self.n_open)
        status, done = kernels.DONE, 0
        if self.is_possible:
            while self._longest < t + n:
                self._widen()
            status, done = kernels.read_words(self._tables, self._state, t, words, 0, status, rows, n_open, self._log)
            while status >= 0:
                self._make_room()
                status, done = kernels.read_words(self._tables, self._state, t, words, done, status, rows, n_open,
                                                  self._log)
        if status == kernels.OUT_OF_RANGE:
            return self._read_in_log_space(words)
        if status == kernels.IMPOSSIBLE:
            self.impossible_at = t + done
        log_probs[:done] = self._logarithm(rows[np.arange(done), words[:done]])
        rows[done + 1:], n_open[done + 1:] = self._weight(0.0), self._weight(0.0)
        self.ids += words.tolist()
        self._row = rows[-1]
        rows, n_open = self._probability(rows), self._probability(n_open)
        self.next_word, self.n_open, self.log_prob = rows[-1], float(n_open[-1]), self.log_prob + float(log_probs.sum())
        return rows, n_open, log_probs

    def _read_in_log_space(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Begin again with logarithms, which hold any value."""
        before, self.ids = np.array(self.ids, np.int64), []
        self._begin(self._longest, True)
        rows, n_open, log_probs = self._read(np.append(before, words))
        return rows[len(before):], n_open[len(before):], log_probs[len(before):]

    def _probability(self, values: np.ndarray) -> np.ndarray:
        return values if self._log is None else np.exp(values)

    def _logarithm(self, values: np.ndarray) -> np.ndarray:
        return log_of(values) if self._log is None else values

    def _weight(self, value: float) -> float:
        return value if self._log is None else float(log_of(np.array(value)))

    def _make_room(self) -> None:
        """Half as many rows again, or entries, whichever are used up."""
        state, n = self._state, self.grammar.pcfg.n_nonterminals
        if state.n_rows[0] + n > len(state.alpha):
            _check_memory(3 * state.alpha.nbytes // 2, self.length)
            self._state = state._replace(alpha=_larger(state.alpha, 3 * len(state.alpha) // 2 + n))
        else:
            _check_memory(3 * (state.symbols.nbytes + state.values.nbytes) // 2, self.length)
            n_entries = 3 * len(state.symbols) // 2 + n
            self._state = state._replace(symbols=_larger(state.symbols, n_entries),
                                         values=_larger(state.values, n_entries))

    def _widen(self) -> None:
        """Twice the fenceposts."""
        before, longest = self._state, 2 * self._longest + 1
        _check_memory(3 * self.n_bytes, self.length)
        wider = kernels.new_state(self._tables, longest)
        rows = {"alpha": (len(before.alpha), longest + 1), "symbols": before.symbols.shape,
                "values": before.values.shape}
        shapes = {name: rows.get(name, getattr(wider, name).shape) for name in wider._fields}
        for name, shape in shapes.items():
            old, new = getattr(before, name), getattr(wider, name)
            if new.shape != shape:
                wider = wider._replace(**{name: np.empty(shape, new.dtype)})
            getattr(wider, name)[tuple(map(slice, old.shape))] = old
        self._state, self._longest = wider, longest


def _larger(array: np.ndarray, n: int) -> np.ndarray:
    """The array with room for n along its first axis."""
    larger = np.empty((n, *array.shape[1:]), array.dtype)
    larger[:len(array)] = array
    return larger


def _check_memory(needed: int, length: int) -> None:
    """Refuse a sentence whose chart may not fit, instead of being killed half-way."""
    if needed <= SMALL:
        return
    available = available_memory()
    if needed > available:
        raise UsageError(f"the chart of the first {length:,} words takes {needed / 1e9:.1f} GB more with this grammar, "
                         f"{available / 1e9:.1f} GB are free; leave out sentences of that length")


# ---- whole sentences -------------------------------------------------------------------------------------------------


def next_words(grammar: PCFG, sentence: Sentence) -> NextWords:
    """The next-word distribution after every prefix of a sentence (words, or word ids), in one pass from the left."""
    ids = word_ids(grammar, sentence)
    prefix = Prefix(grammar, longest=max(len(ids), 1))
    next_word, n_open, log_probs = prefix._read(ids)
    log_prefix = prefix.grammar.log_total + np.append(0.0, np.cumsum(log_probs))
    log_probs = np.append(log_probs, prefix.log_next(-1))
    tree_update, word_choice = _surprisal_parts(prefix, log_probs)
    return NextWords(ids=ids, next_word=next_word, log_prefix=log_prefix, log_probs=log_probs, tree_update=tree_update,
                     word_choice=word_choice, n_open=n_open, log_prob=float(log_prefix[-1] + log_probs[-1]),
                     impossible_at=prefix.impossible_at)


def beliefs(grammar: PCFG, sentence: Sentence) -> np.ndarray:
    """(L+1, N) forward vectors of all prefixes of a sentence (Prefix.beliefs)."""
    ids = word_ids(grammar, sentence)
    prefix = Prefix(grammar, longest=max(len(ids), 1))
    prefix._read(ids)
    return prefix.beliefs()


def _surprisal_parts(prefix: Prefix, log_probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tree_update and word_choice of NextWords.

    A word tells of the tree only which pre-terminal p it has: the belief in each tree changes by the factor
    P(p -> w) / P(w | words before).  So with q(p) given the words up to w, both parts are sums over p alone.
    """
    tables, tree_update, word_choice = prefix.grammar.tables, *np.full((2, len(log_probs)), np.nan)
    for t in np.flatnonzero(log_probs > -np.inf):
        if t == prefix.length:
            tree_update[t], word_choice[t] = -log_probs[t] + 0.0, 0.0
            continue
        heads = slice(tables.head_first[prefix.ids[t]], tables.head_first[prefix.ids[t] + 1])
        log_word = np.log(tables.head_prob[heads])
        log_before = prefix.log_belief(int(t))[tables.head[heads]]
        is_possible = log_before > -np.inf
        log_word = log_word[is_possible]
        posterior = np.exp(log_before[is_possible] + log_word - log_probs[t])
        tree_update[t] = max(posterior @ (log_word - log_probs[t]), 0.0)  # rounding may make 0 negative
        word_choice[t] = -(posterior @ log_word)
    return tree_update, word_choice


def incremental_posteriors(grammar: PCFG, sentence: Sentence) -> Iterator[SpanPosteriors]:
    """Posteriors given the first t words, for t = 0 .. L, and last given the whole sentence and its end."""
    ids = word_ids(grammar, sentence)
    prefix = Prefix(grammar, longest=max(len(ids), 1))
    yield prefix.posteriors()
    for w in ids:
        yield prefix.extend(int(w)).posteriors()
    yield prefix.posteriors(has_ended=True)
