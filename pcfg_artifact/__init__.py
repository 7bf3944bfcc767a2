"""Do transformers parse while predicting the masked word?  The paper's reproduction, as software.

`import pcfg_artifact as pa` has every public name below; one name does not load the modules of the others.  The
packages grammar, treebank, parsing, approximation, constructions, mlm and probing hand on those that are theirs.  All
other modules are private, and free to move.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from pcfg_artifact.errors import missing_package
from pcfg_artifact.system.compiled_cache import choose_folder

__version__ = "1.0.0"

# Module -> its public names, and what each is.  docs/reference/api.md is made of this list.
PUBLIC = {
    "grammar.pcfg": {"PCFG": "a grammar: from rules, text, counts or a folder; saved without pickle"},
    "grammar.learning": {"learn_pcfg": "learn a grammar from trees"},
    "grammar.latent": {"LatentPCFG": "a latent-variable grammar"},
    "grammar.spectral": {"learn_spectral": "learn a latent-variable grammar by spectral estimation"},
    "grammar.zoo_grammars": {"zoo": "a grammar of the zoo, built from its parameters"},
    "grammar.sampling": {"Sampler": "draw trees in blocks that depend on the seed alone"},
    "treebank.tree": {"Tree": "a labelled tree over words"},
    "treebank.brackets": {"parse_trees": "trees of bracketed text"},
    "treebank.reading": {"read_treebank": "read and clean a treebank in any known format"},
    "treebank.splits": {"split": "its training and test trees"},
    "parsing.engine": {"inside_outside": "charts of sentences, by the engine of your choice",
                       "each_chart": "the same one by one, in constant memory",
                       "log_probabilities": "log probability of every sentence",
                       "ENGINES": "engines by name", "Engine": "the role that an engine plays",
                       "EngineOptions": "which engine runs, and how"},
    "parsing.charts": {"Chart": "what Inside-Outside found in one sentence; dense arrays are built on access"},
    "parsing.decoding": {"labelled_recall": "the tree of the most probable spans",
                         "labelled_tree": "the same with labels",
                         "viterbi": "the most probable tree", "viterbi_trees": "the same of many sentences",
                         "best_binary_tree": "the binary tree of the largest sum of span scores",
                         "parses": "trees of sentences, retried where the grammar gives them no probability"},
    "parsing.best_trees": {"kbest": "the k most probable trees of sentences"},
    "parsing.tree_draws": {"sample_trees": "draw some trees: of the grammar, of given lengths, or of a given sentence"},
    "parsing.forest": {"tree_entropy": "entropy of a grammar's trees, or of those of a sentence",
                               "span_pairs": "joint and conditional probabilities of all pairs of spans"},
    "parsing.masking": {"masked_word_distribution": "exact distribution of masked words",
                        "masked_log_probs": "exact log probability of masked words under named masks",
                        "one_mask_log_probs": "the same of every word given all others",
                        "perplexity": "of log probabilities"},
    "parsing.masks": {"Masking": "rate and corruption of masks"},
    "parsing.prefix.left_to_right": {"Prefix": "read a sentence word by word", "NextWords": "what next_words returns",
                                     "next_words": "exact next-word distributions and prefix probabilities",
                                     "incremental_posteriors": "spans given the words so far"},
    "parsing.differentiable": {"RuleWeights": "log weights of rules as torch tensors, with gradients",
                               "em_step": "one round of expectation maximisation",
                               "normalised": "weights as a proper grammar"},
    "parsing.latent_engine": {"latent_inside_outside": "charts of a latent-variable grammar"},
    "parsing.scoring": {"span_f1": "unlabelled F1 under a named convention", "gold_spans": "the spans that F1 counts",
                        "CONVENTIONS": "the conventions by name"},
    "approximation.algorithm": {"Approximation": "Inside-Outside with few symbols or low rank"},
    "approximation.merging": {"merge_symbols": "a smaller grammar whose symbols are classes"},
    "constructions.hard": {"HardAttentionInsideOutside": "the transformer of Theorem 3.1"},
    "constructions.relative": {"RelativeInsideOutside": "the transformer of Theorem 3.2"},
    "constructions.approximate_relative": {"ApproximateInsideOutside": "the transformer of Theorem 3.4"},
    "constructions.constructed_model": {"ConstructedModel": "a constructed transformer as a Hugging Face model",
                                        "register_with_transformers": "make AutoModel know constructed checkpoints"},
    "mlm.data": {"MaskedCorpus": "masked batches that depend on seed, epoch and sentence alone"},
    "mlm.training": {"Recipe": "how a model is trained", "train": "train a model"},
    "mlm.model": {"build_config": "a model's configuration", "build_model": "a RoBERTa or GPT-2 model",
                  "parse_shape": "heads and layers of a model called A4L3"},
    "mlm.tokenizer": {"build_tokenizer": "one token for each word of a grammar"},
    "probing.probes": {"PROBES": "probes by name", "Probe": "the role that a probe plays"},
    "probing.representations": {"extract": "hidden states of every word and layer"},
    "probing.attention_heads": {"head_statistics": "how far every attention head looks, and how evenly"},
    "probing.targets": {"relative_depths": "the labels of a tree probe", "decode": "the tree of such labels"},
    "metrics.schema": {"Metric": "one number with its dimensions"},
}
MODULES = {"results": "every number of a run as one pandas frame"}  # public modules


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that hands on the public names of its modules."""
    module_of = {name: f"pcfg_artifact.{module}" for module, names in PUBLIC.items() for name in names
                 if f"pcfg_artifact.{module}".startswith(f"{package}.")}

    def __getattr__(name: str) -> Any:
        if package == __name__ and name in MODULES:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(module_of[name]), name)
        except ModuleNotFoundError as error:
            raise missing_package(error, f"{package}.{name}") or error from None
        setattr(sys.modules[package], name, value)  # asked for once
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of, *(MODULES if package == __name__ else ())})

    return __getattr__, __dir__


__getattr__, __dir__ = exports(__name__)
choose_folder()
