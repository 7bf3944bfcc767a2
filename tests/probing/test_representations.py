"""Batched, padded, pooled hidden states and attention against the model run on one sentence at a time."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

from pcfg_artifact.errors import UsageError
from pcfg_artifact.probing.attention_heads import head_statistics
from pcfg_artifact.probing.representations import (
    eos_rows,
    extract,
    fitting_sentences,
    length_buckets,
    offsets_of,
    span_rows,
    window_rows,
)
from pcfg_artifact.probing.tasks import ROWS

PADDING = 2e-6  # float32: padded and unpadded attention add up in another order
SENTENCES = [["ab", "a", "abab"], ["a"], ["b", "ba", "b", "ab", "a", "b", "bbb"], ["aa", "b"]]


@pytest.fixture(scope="module")
def tokenizer():
    """Letters as pieces, so that words have one to four pieces."""
    vocabulary = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>", "a", "b", "##a", "##b"])}
    raw = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>", max_input_chars_per_word=9))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                   unk_token="<unk>")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return RobertaForMaskedLM(RobertaConfig(
        vocab_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=18, pad_token_id=1, bos_token_id=0, eos_token_id=2, attn_implementation="eager")).eval()


def run_alone(model, tokenizer, words, **options):
    encoded = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    with torch.inference_mode():
        return encoded.word_ids(0), model(**{k: encoded[k] for k in ("input_ids", "attention_mask")}, **options)


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_every_row_of_every_layer_equals_the_sentence_run_alone(model, tokenizer, pooling):
    layers = extract(model, tokenizer, SENTENCES, lambda layer, shape: np.full(shape, np.nan, np.float32),
                     pooling=pooling, max_tokens=20)
    offsets = offsets_of([len(words) for words in SENTENCES])
    assert len(layers) == 4
    for s, words in enumerate(SENTENCES):
        word_ids, output = run_alone(model, tokenizer, words, output_hidden_states=True)
        for layer, hidden in enumerate(output.hidden_states):
            hidden = hidden[0].numpy()
            rows = layers[layer][offsets[s]:offsets[s + 1]]
            assert rows[0] == pytest.approx(hidden[0], abs=PADDING)
            assert rows[-1] == pytest.approx(hidden[-1], abs=PADDING)
            for w in range(len(words)):
                pieces = hidden[[p for p, of in enumerate(word_ids) if of == w]]
                expected = {"first": pieces[0], "last": pieces[-1], "mean": pieces.mean(axis=0)}[pooling]
                assert rows[1 + w] == pytest.approx(expected, abs=PADDING)


def test_layer_zero_is_the_embedding_with_its_position(model, tokenizer):
    layers = extract(model, tokenizer, [["a", "a"]], lambda layer, shape: np.empty(shape, np.float32))
    assert np.abs(layers[0][1] - layers[0][2]).max() > 0.1  # one word at two positions
    longer = extract(model, tokenizer, [["a", "b"]], lambda layer, shape: np.empty(shape, np.float32))
    assert (layers[0][1] == longer[0][1]).all()  # and no context
    assert np.abs(layers[1][1] - longer[1][1]).max() > 1e-3


def test_half_precision_arrays_are_filled_within_their_rounding(model, tokenizer):
    half = extract(model, tokenizer, SENTENCES, lambda layer, shape: np.empty(shape, np.float16))
    full = extract(model, tokenizer, SENTENCES, lambda layer, shape: np.empty(shape, np.float32))
    for h, f in zip(half, full, strict=True):
        assert h.astype(np.float32) == pytest.approx(f, rel=1e-3, abs=1e-3)


def test_sentences_that_do_not_fit_are_named(model, tokenizer):
    long = ["a"] * 14  # with BOS and EOS exactly the 16 positions of this model
    assert fitting_sentences(model, tokenizer, [["a"], long, [*long, "b"], []]).tolist() == [0, 1]
    extract(model, tokenizer, [long], lambda layer, shape: np.empty(shape, np.float32))


def test_a_tokenizer_without_begin_and_end_marks_is_refused(model, tokenizer):
    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 3, "a": 4}, "<unk>")),
                                   pad_token="<unk>", unk_token="<unk>")
    with pytest.raises(UsageError, match="no marks before and after"):
        fitting_sentences(model, bare, [["a"]])


def test_length_buckets_cover_every_sentence_once_within_the_budget():
    lengths = [3, 50, 7, 7, 1, 12, 9]
    buckets = [bucket.tolist() for bucket in length_buckets(lengths, 24)]
    assert sorted(s for bucket in buckets for s in bucket) == list(range(7))
    assert all(len(b) == 1 or len(b) * max(lengths[s] for s in b) <= 24 for b in buckets)


def test_rows_choose_the_words_that_the_paper_names():
    # Two sentences of 3 and 1 words: rows BOS a b c EOS BOS d EOS.
    assert eos_rows([3, 1]).tolist() == [[1, 4], [2, 4]]
    assert window_rows([3, 1], 1).tolist() == [[0, 1, 2], [1, 2, 3]]  # the paper's ADJ
    assert window_rows([3, 2], 2).tolist() == [[0, 0, 1, 2, 3], [0, 1, 2, 3, 4], [5, 5, 6, 7, 8]]  # and never beyond
    assert span_rows([3, 1], 2, 1).tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]  # each row once
    assert span_rows([4], 4, 1).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert span_rows([9], 9, 1).tolist() == [[0, 1, 2, 8, 9, 10]]
    assert span_rows([3, 1], 2).tolist() == [[1, 2], [2, 3]]
    assert span_rows([3, 1], 3).tolist() == [[1, 3]]
    assert span_rows([3, 4], 4).tolist() == [[6, 9]]


@pytest.mark.parametrize("name", ROWS)
def test_every_input_reads_its_own_sentence_at_every_word_but_the_last(name):
    lengths = np.array([4, 1, 2, 3])
    rows, offsets = ROWS[name](lengths), offsets_of(lengths)
    sentence = np.repeat(np.arange(4), lengths - 1)
    assert len(rows) == len(sentence)
    assert ((offsets[sentence, None] <= rows) & (rows < offsets[sentence + 1, None])).all()


def test_statistics_of_heads_equal_the_mean_over_sentences_run_alone(model, tokenizer):
    found = head_statistics(model, tokenizer, SENTENCES, max_tokens=20)
    expected, entropy, uniform = np.zeros((3, 4)), np.zeros((3, 4)), 0.0
    for words in SENTENCES:
        _, output = run_alone(model, tokenizer, words, output_attentions=True)
        for layer, attention in enumerate(output.attentions):
            for head, matrix in enumerate(attention[0].numpy()):
                n = len(matrix)
                expected[layer, head] += sum(abs(i - j) * matrix[i, j] for i in range(n) for j in range(n)) / n
                entropy[layer, head] -= (matrix * np.log(matrix)).sum() / n
        uniform += sum(abs(i - j) / n for i in range(n) for j in range(n)) / n
    assert found.distance.numpy() == pytest.approx(expected / len(SENTENCES), abs=1e-5)
    assert found.entropy.numpy() == pytest.approx(entropy / len(SENTENCES), abs=1e-5)
    assert found.uniform_distance == pytest.approx(uniform / len(SENTENCES))
    assert found.off_by < 1e-5
