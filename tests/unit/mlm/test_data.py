"""What a step sees depends on the seed and the step, never on how many processes share it."""

import numpy as np
import pytest

from pcfg_artifact.errors import StageError
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.data import MaskedCorpus, assemble, cut_by_tokens
from pcfg_artifact.parsing.masks import Masking, hide, uniform
from pcfg_artifact.ragged import Ragged

N_WORDS = 50


def make_corpus(n=300, batch_size=32, batch_tokens=64, max_length=20, **masking):
    rng = np.random.default_rng(0)
    sentences = Ragged.from_rows([rng.integers(0, N_WORDS, rng.integers(1, 25)) for _ in range(n)], np.uint16)
    return MaskedCorpus(sentences, n_words=N_WORDS, masking=Masking(**{"rate": 0.15, **masking}), seed=3,
                        batch_size=batch_size, batch_tokens=batch_tokens, max_length=max_length)


def rows_of(share):
    """Every row of a share as (visible tokens, masked positions, targets), padding removed; sorted."""
    found = []
    for batch in share.batches:
        width = batch.input_ids.shape[1]
        row, column = np.divmod(batch.where, width)
        for r, ids in enumerate(batch.input_ids):
            n = width if batch.attention_mask is None else int(batch.attention_mask[r].sum())
            assert (ids[n:] == tokens.PAD).all()
            assert ids[0] == tokens.BEGIN
            assert ids[n - 1] == tokens.END
            found.append((tuple(ids[:n]), tuple(column[row == r]), tuple(batch.targets[row == r])))
    return sorted(found)


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_processes_share_out_exactly_the_batch_of_one_process(world_size):
    corpus = make_corpus()
    for step in (0, 7, 30):  # step 7 straddles two epochs
        alone = corpus.step(step)
        shares = [corpus.step(step, rank, world_size) for rank in range(world_size)]
        assert sorted(row for share in shares for row in rows_of(share)) == rows_of(alone)
        assert {share.n_masked for share in shares} == {alone.n_masked}
        assert alone.n_masked == sum(len(batch.targets) for batch in alone.batches)
        assert all(share.batches for share in shares)


def test_every_sentence_comes_once_per_epoch_in_another_order():
    corpus = make_corpus()
    n = len(corpus.usable)
    stream = np.concatenate([corpus.sentences_of(step)[0] for step in range(2 * n // 32 + 1)])
    assert sorted(stream[:n]) == sorted(stream[n:2 * n]) == corpus.usable.tolist()
    assert (stream[:n] != stream[n:2 * n]).any()


def test_masks_of_a_sentence_change_with_the_epoch_and_repeat_with_the_step():
    corpus = make_corpus(n=32, max_length=25)  # a step is an epoch
    assert rows_of(corpus.step(4)) == rows_of(corpus.step(4))
    masks = [{targets for _, _, targets in rows_of(corpus.step(step))} for step in (0, 1)]
    assert masks[0] != masks[1]


def test_masked_positions_hide_the_word_and_targets_name_it():
    sentence = np.array([[4, 9, 2]])
    is_masked = np.array([[False, True, False]])
    batch = assemble(sentence, np.where(is_masked, -1, sentence), is_masked, np.array([3]))
    first = tokens.FIRST_WORD
    assert batch.input_ids.tolist() == [[tokens.BEGIN, 4 + first, tokens.MASK, 2 + first, tokens.END]]
    assert batch.attention_mask is None
    assert batch.where.tolist() == [2]
    assert batch.targets.tolist() == [9 + first]


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


def test_runs_keep_to_the_token_limit_and_lose_no_row():
    widths = np.sort(np.random.default_rng(1).integers(3, 60, 500))[::-1]
    runs = cut_by_tokens(np.arange(500), widths, 256)
    assert np.concatenate(runs).tolist() == list(range(500))
    assert all(len(run) == 1 or len(run) * widths[run[0]] <= 256 for run in runs)
    padded = sum(len(run) * widths[run[0]] for run in runs)
    assert 1 - widths.sum() / padded < 0.1


def test_sentences_longer_than_the_model_are_left_out_and_counted():
    corpus = make_corpus(max_length=10)
    assert corpus.n_left_out == (np.diff(corpus.sentences.offsets) > 10).sum() > 0
    with pytest.raises(StageError, match="none of the 300 sentences has 1 to 0 words"):
        make_corpus(max_length=0)
