"""What a step sees depends on the seed and the step, never on how many processes share it."""

import numpy as np
import pytest

from pcfg_artifact.errors import ConfigError, StageError
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.data import MaskedCorpus
from pcfg_artifact.mlm.packing import cut_by_tokens, pack
from pcfg_artifact.parsing.masks import Masking, hide, uniform
from pcfg_artifact.system.ragged import Ragged

N_WORDS = 50


def make_corpus(n=300, batch_size=32, batch_tokens=64, max_length=20, packing=None, lengths=(1, 25), **masking):
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.integers(0, N_WORDS, rng.integers(*lengths)) for _ in range(n)], np.uint16)
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(**{"rate": 0.15, **masking}), seed=3,
                        batch_size=batch_size, batch_tokens=batch_tokens, max_length=max_length, packing=packing)


def rows_of(share):
    """Every row of a share as (visible tokens, masked positions, targets), padding removed; sorted."""
    found = []
    for batch in share.batches:
        begin = 0
        for (n_rows, width), is_token in zip(batch.shapes, batch.is_token, strict=True):
            for r in range(n_rows):
                ids, positions = (part[begin:begin + width] for part in (batch.input_ids, batch.position_ids))
                n = width if is_token is None else int(is_token[r].sum())
                assert (ids[n:] == tokens.PAD).all()
                assert (positions[n:] == tokens.PAD).all()
                assert positions[:n].tolist() == list(range(tokens.PAD + 1, tokens.PAD + 1 + n))
                assert ids[0] == tokens.BEGIN
                mine = (batch.where >= begin) & (batch.where < begin + width)
                found.append((tuple(ids[:n]), tuple(batch.where[mine] - begin), tuple(batch.targets[mine])))
                begin += width
        assert begin == len(batch.input_ids)
    return sorted(found)


@pytest.mark.parametrize("packing", [None, 16])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_processes_share_out_exactly_the_batch_of_one_process(world_size, packing):
    corpus = make_corpus(packing=packing)
    for step in (0, 7, 30):  # step 7 straddles two epochs
        alone = corpus.step(step)
        shares = [corpus.step(step, rank, world_size) for rank in range(world_size)]
        assert sorted(row for share in shares for row in rows_of(share)) == rows_of(alone)
        assert sum(share.n_predicted for share in shares) == alone.n_predicted
        assert all(share.batches for share in shares)


def test_every_sentence_comes_once_per_epoch_in_another_order():
    corpus = make_corpus()
    n = len(corpus.usable)
    stream = corpus.usable[np.concatenate([corpus.rows_of(step)[0] for step in range(2 * n // 32 + 1)])]
    assert sorted(stream[:n]) == sorted(stream[n:2 * n]) == corpus.usable.tolist()
    assert (stream[:n] != stream[n:2 * n]).any()


def test_masks_of_a_sentence_change_with_the_epoch_and_repeat_with_the_step():
    corpus = make_corpus(n=32, max_length=25)  # a step is an epoch
    assert rows_of(corpus.step(4)) == rows_of(corpus.step(4))
    masks = [{targets for _, _, targets in rows_of(corpus.step(step))} for step in (0, 1)]
    assert masks[0] != masks[1]


def test_masked_positions_hide_the_word_and_targets_name_it():
    first = tokens.FIRST_WORD
    truth = np.array([4 + first, 9 + first, 2 + first, tokens.END, 7 + first, tokens.END])
    is_masked = np.array([False, True, False, False, True, False])
    row, column = np.array([0, 0, 0, 0, 1, 1]), np.array([1, 2, 3, 4, 1, 2])
    batch = pack(row, column, np.where(is_masked, tokens.MASK, truth), is_masked, truth, [1, 1])
    assert batch.input_ids.tolist() == [tokens.BEGIN, 4 + first, tokens.MASK, 2 + first, tokens.END,
                                        tokens.BEGIN, tokens.MASK, tokens.END]
    assert batch.shapes == ((1, 5), (1, 3))
    assert batch.is_token == (None, None)
    assert batch.where.tolist() == [2, 6]
    assert batch.targets.tolist() == [9 + first, 7 + first]
    padded = pack(row, column, truth, is_masked, truth, [2])
    assert padded.input_ids[5:].tolist() == [tokens.BEGIN, 7 + first, tokens.END, tokens.PAD, tokens.PAD]
    assert padded.is_token[0].tolist() == [[True] * 5, [True] * 3 + [False] * 2]


# ---- packing ---------------------------------------------------------------------------------------------------------


def test_blocks_hold_all_sentences_end_to_end_each_with_its_separator():
    corpus = make_corpus(packing=16, rate=0.0)
    expected = [token for row in corpus.sentences.rows() for token in (*(row + tokens.FIRST_WORD), tokens.END)]
    blocks = [expected[at:at + 15] for at in range(0, len(expected), 15)]
    assert corpus.n_rows == len(blocks)
    assert corpus.n_left_out == 0  # longer than a block: cut, not left out
    step = make_corpus(packing=16, rate=0.0, batch_size=len(blocks)).step(0)
    assert [ids for ids, _, _ in rows_of(step)] == sorted((tokens.BEGIN, *block) for block in blocks)


def test_a_block_has_the_masks_of_its_sentences():
    """Masks belong to words of sentences: packed or not, the same ones are hidden, a separator never is."""
    packed, alone = make_corpus(packing=16, rate=0.4), make_corpus(rate=0.4, max_length=25)
    targets = [sorted(t for batch in corpus.in_order("validation") for t in batch.targets)
               for corpus in (packed, alone)]
    assert targets[0] == targets[1]
    assert len(targets[0]) > 1000
    for ids, columns, _ in rows_of(packed.step(2)):
        assert all(ids[c] == tokens.MASK for c in columns)


def test_packing_changes_nothing_where_a_block_holds_one_sentence():
    packed, alone = (make_corpus(packing=packing, lengths=(14, 15), rate=0.4, corruption="80/10/10")
                     for packing in (16, None))
    for step in (0, 7, 30):
        ours, theirs = packed.step(step), alone.step(step)
        assert ours.n_predicted == theirs.n_predicted
        for a, b in zip(ours.batches, theirs.batches, strict=True):
            assert a.shapes == b.shapes
            for part in ("input_ids", "position_ids", "where", "targets"):
                assert np.array_equal(getattr(a, part), getattr(b, part))


def test_shares_of_80_10_10():
    words = np.full(200_000, 7)
    is_masked, seen = hide(words, np.uint64(5), np.int64(0), np.arange(len(words)), Masking(0.3, "80/10/10"), N_WORDS)
    assert (seen[~is_masked] == 7).all()
    chosen = seen[is_masked]
    noise = 4 * np.sqrt(0.8 * 0.2 / len(chosen))  # four standard errors
    assert abs(is_masked.mean() - 0.3) < noise
    assert abs((chosen == -1).mean() - 0.8) < noise
    assert abs((chosen == 7).mean() - 0.1 - 0.1 / N_WORDS) < noise
    assert set(np.unique(chosen)) == set(range(-1, N_WORDS))


def test_uniform_numbers_are_uniform_and_do_not_depend_on_the_batch():
    sentence, position = np.meshgrid(np.arange(400), np.arange(50), indexing="ij")
    drawn = uniform(np.uint64(11), sentence, position)
    assert drawn[123, 7] == uniform(np.uint64(11), np.int64(123), np.int64(7))[0]
    assert np.abs(np.histogram(drawn, 20, (0, 1))[0] / drawn.size - 0.05).max() < 0.01
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.2
    assert abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 0.2


def test_micro_batches_keep_to_the_token_limit_and_lose_no_row():
    widths = np.sort(np.random.default_rng(1).integers(3, 60, 500))[::-1]
    batches = cut_by_tokens(np.arange(500), widths, 256)
    assert np.concatenate([rows for rows, _ in batches]).tolist() == list(range(500))
    padded = 0
    for rows, sizes in batches:
        assert sum(sizes) == len(rows)
        firsts = rows[np.cumsum([0, *sizes[:-1]])]
        tokens_here = int((widths[firsts] * sizes).sum())
        assert len(rows) == 1 or tokens_here <= 256
        padded += tokens_here
    assert 1 - widths.sum() / padded < 0.1


def test_a_batch_of_the_papers_size_is_few_micro_batches_and_little_padding():
    """4,096 sentences of 25 words on average over 8 processes, 16,384 tokens at a time: 1.0 micro-batches a process
    and 1.10 padded tokens for each real one.  Cutting the whole batch first and dealing out what results was measured
    beside it: 1.08, but 9 or 10 micro-batches for 8 processes, so that most of them would wait for the others."""
    rng = np.random.default_rng(0)
    widths = -np.sort(-np.clip(rng.gamma(3, 25 / 3, 4096).astype(int) + 1, 1, 126)) + 2
    shares = [cut_by_tokens(np.arange(rank, 4096, 8), widths[rank::8], 16_384) for rank in range(8)]
    assert [len(share) for share in shares] == [1] * 8
    longest = [widths[rows[at]] * size for share in shares for rows, sizes in share
               for at, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True)]
    assert sum(longest) / widths.sum() < 1.12
    whole = cut_by_tokens(np.arange(4096), widths, 16_384)
    assert len(whole) % 8


def test_sentences_longer_than_the_model_are_left_out_and_counted():
    corpus = make_corpus(max_length=10)
    assert corpus.n_left_out == (np.diff(corpus.sentences.offsets) > 10).sum() > 0
    with pytest.raises(StageError, match="none of the 300 sentences has 1 to 0 words"):
        make_corpus(max_length=0)


# ---- any token of a row may be hidden --------------------------------------------------------------------------------


def test_a_fixed_share_of_a_rows_tokens_is_hidden_ends_of_sentences_included():
    corpus = make_corpus(packing=16, rate=0.4, any_token=True)
    plain = make_corpus(packing=16, rate=0.4)
    counts, ends, n_ends = [], 0, 0
    for step in range(40):
        rows = rows_of(corpus.step(step))
        for ids, positions, targets in rows:
            counts.append(len(positions))
            assert 0 not in positions  # <s> stays
            assert [ids[at] for at in positions] == [tokens.MASK] * len(positions)
            assert tokens.MASK not in [token for at, token in enumerate(ids) if at not in positions]
            ends += targets.count(tokens.END)
            n_ends += targets.count(tokens.END) + ids.count(tokens.END)
        originals = [restored(row) for row in rows]
        assert sorted(originals) == sorted(restored(row) for row in rows_of(plain.step(step)))
    whole = [n for n in counts if n]
    assert set(whole) <= {5, 6, 7}  # 0.4 times 15 tokens is 6; 0.4 times fewer in the last row
    assert abs(ends / n_ends - 0.4) < 0.04  # ends are hidden as often as words


def restored(row):
    ids, positions, targets = row
    ids = list(ids)
    for at, target in zip(positions, targets, strict=True):
        ids[at] = target
    return tuple(ids)


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_out_rows_of_which_any_token_is_hidden(world_size):
    corpus = make_corpus(packing=16, rate=0.37, any_token=True)
    alone = corpus.step(7)
    shares = [corpus.step(7, rank, world_size) for rank in range(world_size)]
    assert sorted(row for share in shares for row in rows_of(share)) == rows_of(alone)
    assert sum(share.n_predicted for share in shares) == alone.n_predicted


def test_any_token_goes_with_masks_alone():
    with pytest.raises(ConfigError, match="hidden by <mask> alone, found the corruption '80/10/10'"):
        make_corpus(any_token=True, corruption="80/10/10")
