import numpy as np
import pytest
import torch

from pcfg_artifact.errors import ConfigError, GrammarError, StageError
from pcfg_artifact.metrics.models import CAUSAL, MASKED, Shape
from pcfg_artifact.mlm.model import build_config, build_model, count_parameters, parse_shape
from pcfg_artifact.mlm.tokenizer import FIRST_WORD, build_tokenizer, check_vocabulary
from pcfg_artifact.mlm.training import Recipe

SIZES = {"n_words": 40, "max_length": 30, "dropout": 0.0}


def test_names_of_the_family():
    assert parse_shape("A12L3") == Shape(MASKED, 12, 3)
    assert parse_shape("C2L1") == Shape(CAUSAL, 2, 1)
    for name in ("L3A12", "A12L3-random"):  # an untrained model is not one to be trained
        with pytest.raises(ConfigError, match=f"'{name}' is not of the form"):
            parse_shape(name)
    with pytest.raises(ConfigError, match="width 64 is not divisible by 3 heads"):
        build_config(parse_shape("A3L1"), width=64, **SIZES)


@pytest.mark.parametrize("layer_norm", ["pre", "post"])
def test_parameter_count_is_that_of_the_model(layer_norm):
    for shape in (parse_shape("A2L1"), parse_shape("A4L3")):
        config = build_config(shape, width=32, layer_norm=layer_norm, **SIZES)
        model = build_model(config, 0)
        layers, total = count_parameters(config)
        assert total == sum(p.numel() for p in model.parameters())
        assert layers == sum(p.numel() for p in model.base_model.encoder.parameters())


def test_random_weights_depend_on_the_seed_alone():
    config = build_config(parse_shape("A2L1"), width=32, **SIZES)
    torch.manual_seed(5)
    before = torch.rand(3)
    torch.manual_seed(5)
    models = [build_model(config, seed) for seed in (0, 0, 1)]
    assert torch.equal(before, torch.rand(3))  # the global state was left alone
    weights = [m.roberta.embeddings.word_embeddings.weight for m in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_tokenizer_gives_one_token_per_word():
    words = ["the", "UNK-LC-ing", "n't", "-LRB-", "1,000", "%", "Ünïcode"]
    tokenizer = build_tokenizer(words, 30)
    assert tokenizer(" ".join(words))["input_ids"] == [0, *(FIRST_WORD + w for w in range(len(words))), 2]
    assert tokenizer("the <mask> unseen")["input_ids"] == [0, FIRST_WORD, 4, 3, 2]
    batch = tokenizer(["the the", "the"], padding=True)
    assert batch["attention_mask"] == [[1, 1, 1, 1], [1, 1, 1, 0]]
    with pytest.raises(GrammarError, match="'two words' cannot be one token"):
        build_tokenizer(["two words"], 30)
    with pytest.raises(GrammarError, match="'<mask>' cannot be one token"):
        build_tokenizer(["<mask>"], 30)


def test_vocabulary_of_another_grammar_is_refused():
    tokenizer = build_tokenizer(["a", "b"], 30)
    check_vocabulary(tokenizer, ["a", "b"], "here")
    with pytest.raises(StageError, match="here: the vocabulary does not match the grammar: 7 tokens, expected 7; "
                                         "token 6 is 'b', expected 'c'"):
        check_vocabulary(tokenizer, ["a", "c"], "here")
    with pytest.raises(StageError, match="7 tokens, expected 8; token 7 is 'nothing', expected 'c'"):
        check_vocabulary(tokenizer, ["a", "b", "c"], "here")


def test_schedule_of_the_paper():
    recipe = Recipe(steps=5000, schedule_steps=23000, warmup_steps=1380, learning_rate=2e-3, weight_decay=0.01,
                    clip=1.0)
    assert recipe.rate(0) == pytest.approx(2e-3 / 1380)
    assert recipe.rate(1379) == pytest.approx(2e-3)
    assert recipe.rate(1380) == pytest.approx(2e-3)
    assert recipe.rate(4999) == pytest.approx(2e-3 * 18001 / 21620)  # training stops high on the slope
    assert recipe.rate(23000) == 0
    assert np.diff([recipe.rate(s) for s in range(1380)]).min() > 0


def test_a_rate_that_is_held_falls_to_zero_afterwards():
    recipe = Recipe(steps=100, schedule_steps=100, warmup_steps=10, learning_rate=1.0, weight_decay=0.0, clip=None,
                    hold_steps=40)
    assert [recipe.rate(step) for step in (0, 9, 10, 49, 50)] == pytest.approx([0.1, 1, 1, 1, 1])
    assert [recipe.rate(step) for step in (75, 99, 100)] == pytest.approx([0.5, 0.02, 0])


def test_models_of_both_norms_are_loaded_by_transformers_as_what_they_are(tmp_path):
    from transformers import AutoModel

    for layer_norm, kind in (("pre", "RobertaPreLayerNormModel"), ("post", "RobertaModel")):
        model = build_model(build_config(parse_shape("A2L1"), width=32, layer_norm=layer_norm, **SIZES), 0)
        model.save_pretrained(tmp_path / layer_norm)
        loaded = AutoModel.from_pretrained(tmp_path / layer_norm)
        assert type(loaded).__name__ == kind
        for name, weights in loaded.encoder.named_parameters():
            assert torch.equal(weights, dict(model.base_model.encoder.named_parameters())[name])
