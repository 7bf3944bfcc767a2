"""README.md of a trained model: its data, its recipe, and how far it is from the best that can be predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pcfg_artifact import cells
from pcfg_artifact.artifacts import Metric
from pcfg_artifact.grammar import PCFG

HOW_SHARED_OUT = ("models", "batch_tokens", "processes", "save_every", "validate_every", "n_curve", "n_exact",
                  "exact_max_length")  # settings that are no part of the recipe

TEXT = """---
library_name: transformers
pipeline_tag: fill-mask
tags: [pcfg, synthetic]
---

# {name}: a masked language model of sentences drawn from a PCFG

RoBERTa's architecture, {state}; one token for each word of the grammar.

## Data

{n_sentences:,} sentences drawn from a PCFG of {n_interminals:,} in-terminals, {n_preterminals:,} pre-terminals and
{n_words:,} words, learned from a treebank (the run's folder `grammar`), whose licence applies to the words.

## Recipe

| setting | value |
|---|---|
{recipe}

## Distance from the optimum

{distance}

## Use

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer
model, tokenizer = AutoModelForMaskedLM.from_pretrained(DIR), AutoTokenizer.from_pretrained(DIR)
```

Rare words are read as their signatures: `PCFG.load(GRAMMAR).as_read(words)`.
"""
MEASURED = """The grammar's own exact prediction is the best possible. Perplexity of masked words on held-out sentences,
and the mean KL divergence from the exact distribution to the model's, in nats:

| masks | model | exact | unigram | KL |
|---|---|---|---|---|
{rows}"""
UNTRAINED = "Not measured: this is the model before its first step, kept for comparison."


def model_card(name: str, grammar: PCFG, n_sentences: int, settings: Mapping[str, Any],
               metrics: Sequence[Metric] | None, masks: Sequence[str] = ()) -> str:
    """The text of README.md; metrics None: of the untrained model."""
    if metrics is None:
        state, distance = "with random weights, before its first step of training", UNTRAINED
    else:
        state = f"trained for {settings['steps']:,} steps"
        distance = MEASURED.format(rows="\n".join(_row(name, mask, metrics) for mask in masks))
    recipe = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in settings.items()
                       if key not in HOW_SHARED_OUT)
    return TEXT.format(name=name, state=state, n_sentences=n_sentences, n_interminals=grammar.n_interminals,
                       n_preterminals=grammar.n_preterminals, n_words=grammar.n_words, recipe=recipe, distance=distance)


def _row(name: str, masks: str, metrics: Sequence[Metric]) -> str:
    found = {metric.column: metric.value for metric in metrics
             if (metric.table, metric.row) == cells.against_optimum(name, masks, "model")[:2]}
    return f"| {masks} | {found['model']:.2f} | {found['exact']:.2f} | {found['unigram']:.2f} | {found['kl']:.4f} |"
