"""README.md of a saved model: its data, its recipe, and how far it is from the best that can be predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.metrics.models import CAUSAL, MASKED
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.model import parse_shape


class Kind(NamedTuple):
    """What cards of masked and of causal models say differently."""

    what: str
    architecture: str
    pipeline: str
    loader: str
    unused: tuple[str, ...]  # settings of a profile that its models do not have


KINDS = {MASKED: Kind("masked", "RoBERTa", "fill-mask", "AutoModelForMaskedLM", ()),
         CAUSAL: Kind("causal", "GPT-2", "text-generation", "AutoModelForCausalLM",
                      ("mask_rate", "corruption", "layer_norm"))}
HOW_SHARED_OUT = ("models", "causal_models", "batch_tokens", "processes", "save_every", "n_kept", "validate_every",
                  "n_curve", "n_exact", "exact_max_length", "control_texts", "windows",
                  "layer_use")  # settings that are no part of the recipe
PERPLEXITIES = ("perplexity", "exact_perplexity", "unigram_perplexity")

TEXT = """---
library_name: transformers
pipeline_tag: {kind.pipeline}
tags: [pcfg, synthetic]
---

# {name}: a {kind.what} language model of sentences{text} drawn from a PCFG

{kind.architecture}'s architecture, {state}; one token for each word of the grammar.

## Data

{n_sentences:,} sentences{text} drawn from a PCFG of {n_interminals:,} in-terminals, {n_preterminals:,} pre-terminals
and {n_words:,} words, learned from a treebank (the run's folder `grammar`), whose licence applies to the words.

## Recipe

| setting | value |
|---|---|
{recipe}

## Distance from the optimum

{distance}

## Use

```python
from transformers import {kind.loader}, AutoTokenizer
model, tokenizer = {kind.loader}.from_pretrained(DIR), AutoTokenizer.from_pretrained(DIR)
```

Rare words are read as their signatures: `PCFG.load(GRAMMAR).as_read(words)`.
"""
MEASURED = """The grammar's own exact prediction is the best possible. Perplexity of {what} on up to
{n:,} held-out sentences, and the mean KL divergence from the exact distribution to the model's, in nats:

| {first} | model | exact | unigram | KL |
|---|---|---|---|---|
{rows}"""
OF_TEXT = {"": "", "shuffled": ", the words of each in random order,", "bigram": " with the word bigrams of those"}
NOT_MEASURED = "Not measured: the model on its way, kept for comparison with the trained one."


def model_card(name: str, grammar: PCFG, n_sentences: int, settings: Mapping[str, Any], distance: str | None = None,
               step: int = 0) -> str:
    """The text of README.md: of the trained model, or where no distance is given of the model after `step` steps."""
    shape, steps = parse_shape(name), settings["steps"]
    kind = KINDS[shape.mark]
    if distance:
        state = f"trained for {steps:,} steps"
    else:
        state = f"after {step:,} of {steps:,} steps of training" if step else "as it was before its first step"
    recipe = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in settings.items()
                       if key not in (*HOW_SHARED_OUT, *kind.unused))
    return TEXT.format(name=name, kind=kind, text=OF_TEXT[shape.control], state=state, n_sentences=n_sentences,
                       n_interminals=grammar.n_interminals, n_preterminals=grammar.n_preterminals,
                       n_words=grammar.n_words, recipe=recipe, distance=distance or NOT_MEASURED)


def masked_distance(name: str, n: int, metrics: Sequence[Metric], masks: Sequence[str]) -> str:
    """A masked model under each of the named masks, on n sentences."""
    rows = [_row(mask, [m for m in metrics if (m.table, m.model, m.input, m.group) == ("masked_words", name, mask, "")])
            for mask in masks]
    return MEASURED.format(what="masked words", n=n, first="masks", rows="\n".join(rows))


def next_word_distance(n: int, metrics: Sequence[Metric]) -> str:
    """A causal model at every word and at the end of n sentences."""
    return MEASURED.format(what="next words and ends", n=n, first="predicted", rows=_row("next word", metrics))


def _row(first: str, metrics: Sequence[Metric]) -> str:
    found = {m.metric: m.value for m in metrics}
    return f"| {first} | " + " | ".join(f"{found[name]:.2f}" for name in PERPLEXITIES) + f" | {found['kl']:.4f} |"
