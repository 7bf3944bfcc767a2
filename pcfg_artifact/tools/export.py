"""Write the sampled corpora of a run as a datasets.DatasetDict with a dataset card and Croissant metadata.

Splits: pretraining, validation, probe_train, probe_test.  Columns: words, token_ids, tree (bracketed, as in a
treebank), log_prob and span_scores (null where the run did not compute them).  The trees of pretraining are not stored
in a run: they are drawn again, and compared with the stored sentences.  The treebank's own trees are not exported:
they are not ours to pass on.  croissant.json (Croissant 1.0 with the fields of responsible AI) leaves url,
creator and datePublished to whoever publishes the folder.  The folder appears whole or not at all.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from pcfg_artifact import results
from pcfg_artifact.errors import ArtifactError, CorruptArtifact, StageError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import Sampler
from pcfg_artifact.metrics.schema import GIVEN
from pcfg_artifact.mlm.tokenizer import FIRST_WORD
from pcfg_artifact.run import stage_folder
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.stage_folder import Folder, Manifest
from pcfg_artifact.system import storage
from pcfg_artifact.system.progress import progress
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import derive_seed
from pcfg_artifact.tools.arguments import named_path
from pcfg_artifact.treebank.binarise import is_artificial, unbinarise
from pcfg_artifact.treebank.reading import EMBEDDED, source_hash
from pcfg_artifact.treebank.tree import Tree
from pcfg_artifact.workers.shards import BLOCK

if TYPE_CHECKING:
    import datasets

EXAMPLE = "run_all.sh export --run runs/smoke --out my_corpus"
SPLITS = ("pretraining", "validation", "probe_train", "probe_test")
STAGES = ("grammar", "sample")  # that must be done; marginals adds columns where it is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", required=True, type=Path, metavar="RUN", help="output folder of a run")
    parser.add_argument("--out", required=True, type=named_path, metavar="DIR", help="a new or empty folder")
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=SPLITS, metavar="SPLIT",
                        help=f"of {', '.join(SPLITS)} (all)")
    parser.add_argument("--licence", metavar="ID", help="of the treebank, for the card, e.g. cc-by-3.0")


def run(args: argparse.Namespace) -> int:
    manifests = results.finished(args.run)
    if missing := [stage for stage in STAGES if stage not in manifests]:
        raise UsageError(f"the stage {missing[0]} is not done in {args.run}; run it first, e.g. with --to sample")
    corpora = Corpora(args.run, manifests)
    with new_folder(args.out) as scratch:
        made = build(corpora, args.splits, scratch / "cache")
        made.save_to_disk(str(scratch / "whole"))
        sizes = {split: len(made[split]) for split in made}
        storage.write_text(scratch / "whole" / "README.md", card(corpora, sizes, args.licence))
        storage.write_json(scratch / "whole" / "croissant.json", croissant(corpora, scratch / "whole", sizes,
                                                                           args.licence))
    print(f"{args.out}: " + ", ".join(f"{split} {n:,} sentences" for split, n in sizes.items()))
    return 0


class Corpora:
    """The sampled sentences of a finished run, row by row."""

    def __init__(self, root: Path, manifests: dict[str, Manifest]) -> None:
        self.manifests = {stage: manifests[stage] for stage in (*STAGES, "marginals") if stage in manifests}
        for stage, manifest in self.manifests.items():
            manifest.verify(root / stage)
        self.inputs = Inputs({stage: root / stage for stage in self.manifests}, "")
        self.grammar: PCFG = self.inputs.pcfg()
        sizes = self.inputs["grammar"].json("sizes")
        self.variant, self.given = sizes["variant"], Path(sizes.get("source", "")).name
        self.source_hash = self.manifests["grammar"].inputs["treebank"]
        self.is_embedded = self.source_hash == source_hash(EMBEDDED)

    @property
    def origin(self) -> str:
        """Where the grammar comes from."""
        if self.variant == GIVEN:
            return f"is the one that the run was given ({self.given})"
        return "was learned from " + ("the generated treebank of the package pcfg_artifact" if self.is_embedded else
                                      "a treebank")

    def n_sentences(self, split: str) -> int:
        return self.inputs.sentences(split).n_rows

    def is_scored(self, split: str) -> bool:
        return "marginals" in self.manifests and self.inputs["marginals"].has(f"{split}/log_probs.npy")

    def rows(self, split: str) -> Iterator[dict[str, Any]]:
        """The sentences of a split in order, as rows of the exported table."""
        words = np.array(self.grammar.words, dtype=object)
        bracketed, tokens = Bracketing(self.grammar), self.inputs.sentences(split)
        scores = Scores(self.inputs["marginals"], split) if self.is_scored(split) else None
        for s, rules in enumerate(self._rules(split, tokens)):
            ids = tokens.row(s)
            log_prob, span_scores = scores.of(s) if scores else (None, None)
            yield {"words": words[ids].tolist(), "token_ids": np.asarray(ids, np.int32), "tree": bracketed(rules),
                   "log_prob": log_prob, "span_scores": span_scores}

    def _rules(self, split: str, tokens: Ragged) -> Iterator[np.ndarray]:
        """The rules of every tree: stored, or drawn again block by block."""
        sample = self.inputs["sample"]
        if sample.has(f"{split}/rules.values.npy"):
            yield from sample.ragged(f"{split}/rules", memory_map=True).rows()
            return
        cfg = self.manifests["sample"].config
        sampler = Sampler(self.grammar, derive_seed(cfg["seed"], "sample", split), cfg["max_length"])
        for first in range(0, tokens.n_rows, BLOCK):
            block = sampler.draw(first, min(BLOCK, tokens.n_rows - first))
            low, high = tokens.offsets[first], tokens.offsets[first + len(block)]
            if not np.array_equal(block.tokens.values, tokens.values[low:high]):
                raise CorruptArtifact(f"{sample.path(split)}: sentences {first} to {first + len(block) - 1} are not "
                                      f"those that this release draws with seed {cfg['seed']}, so their trees are not "
                                      f"known; run the stage sample again with this release, or leave the split out "
                                      f"with --splits")
            yield from block.rules.rows()


class Scores:
    """Log probabilities and span scores of a split, None where the run has none."""

    def __init__(self, marginals: Folder, split: str) -> None:
        self._log_probs, self._attempts = marginals.array(f"{split}/log_probs"), marginals.array(f"{split}/attempts")
        self._span_scores = marginals.ragged(f"{split}/span_scores", memory_map=True)

    def of(self, s: int) -> tuple[float | None, np.ndarray | None]:
        if self._attempts[s] != 1:  # left out because it is too long, or scored with other words
            return None, None
        scores = self._span_scores.row(s)
        return float(self._log_probs[s]), scores if len(scores) else None


def build(corpora: Corpora, splits: tuple[str, ...], cache: Path) -> datasets.DatasetDict:
    """The splits as tables on disk below `cache`, made offline and with our progress bar."""
    os.environ["HF_DATASETS_OFFLINE"] = "1"  # read when the library is first imported
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({
        "words": datasets.List(datasets.Value("string")), "token_ids": datasets.List(datasets.Value("int32")),
        "tree": datasets.Value("string"), "log_prob": datasets.Value("float64"),
        "span_scores": datasets.List(datasets.Value("float32"))})
    made = {}
    for split in dict.fromkeys(splits):
        mark = storage.fingerprint([split, *(manifest.output_hash for manifest in corpora.manifests.values())])[:16]
        rows = progress(corpora.rows(split), total=corpora.n_sentences(split), desc=f"exporting {split}")
        try:
            made[split] = datasets.Dataset.from_generator(
                lambda rows=rows: rows, features=features, cache_dir=str(cache), split=datasets.NamedSplit(split),
                fingerprint=mark)
        except datasets.exceptions.DatasetGenerationError as error:  # wraps what went wrong
            if isinstance(error.__cause__, ArtifactError | OSError):
                raise error.__cause__ from error
            raise
    return datasets.DatasetDict(made)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A scratch folder beside `path`; without an error its folder `whole` becomes `path`, and the rest is removed."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"--out {path} exists already and is not an empty folder; give another name, or remove it")
    target = Path(os.path.abspath(path))
    scratch = target.with_name(f"{storage.TEMPORARY}{target.name}")
    with stage_folder.lock(scratch):
        try:
            for name in ("cache", "whole"):  # of an export that was killed
                shutil.rmtree(scratch / name, ignore_errors=True)
            yield scratch
            os.rename(scratch / "whole", target)
        except OSError as error:
            raise StageError(f"cannot write {path}: {error.strerror or error}; free space or choose another --out, "
                             f"then run the same command again") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


class Bracketing:
    """Rules of a tree in preorder -> str(unbinarise(tree)), without building a tree: millions are exported."""

    def __init__(self, grammar: PCFG) -> None:
        names = grammar.nonterminals
        self._n_binary = len(grammar.binary)
        # A node that factoring made leaves its children to its parent: no brackets of its own.
        self._around = [("", "") if is_artificial(names[a]) else _brackets(names[a]) for a in grammar.binary[:, 0]]
        self._leaf = [str(unbinarise(Tree(names[a], word=grammar.words[word]))) for a, word in grammar.lexical]

    def __call__(self, rules: np.ndarray) -> str:
        """The tree of one preorder rule sequence, whose root is a symbol of the treebank."""
        stack: list[str] = []
        for rule in rules[::-1].tolist():  # from the right, children are complete before their parent
            if rule >= self._n_binary:
                stack.append(self._leaf[rule - self._n_binary])
            else:
                before, after = self._around[rule]
                stack.append(f"{before}{stack.pop()} {stack.pop()}{after}")
        return stack[0]


def _brackets(label: str) -> tuple[str, str]:
    """The text before and after the children of a node; a collapsed unary chain is several nodes."""
    before, after = str(unbinarise(Tree(label, word="\0"))).split("\0")
    return before, after


TITLE = "Sentences and trees drawn from a PCFG"

# ---- the card --------------------------------------------------------------------------------------------------------

CARD = """\
---
{front}---

# Sentences and trees drawn from a PCFG

Every sentence was drawn from one probabilistic context-free grammar, so that its tree and its exact probability are
known. The grammar {origin}.

| split | sentences | log_prob, span_scores |
|---|---:|---|
{splits}

Load it with `datasets.load_from_disk(FOLDER)`.

| column | what it is |
|---|---|
| `words` | the sentence |
| `token_ids` | the ids of the words in the grammar, from 0; the models of the run have token {first_word} + id |
| `tree` | the tree that was drawn, bracketed, with the labels before binarisation |
| `log_prob` | natural logarithm of the sentence's probability, over all its trees; null where it was not computed |
| `span_scores` | one number for every span of words i .. j-1, ordered by i, then j (see below); null likewise |

The score of a span is the largest posterior probability, given the sentence, that a non-terminal of the grammar covers
it. A sentence of L words has L (L + 1) / 2 spans: (0, 1), (0, 2), .., (0, L), (1, 2), ..

## How it was made

- {source}: SHA-256 `{source_hash}`
- grammar: variant `{variant}`, {sizes}; SHA-256 of `{variant}/grammar.json`: `{grammar_hash}`
- seed: {seed}; longest sentence allowed: {max_length}
- {versions}

Sentence s of a split depends on the grammar, the seed, the split and s alone: the same settings give the same corpus.

## Licence

{licence}
"""


def card(corpora: Corpora, sizes: Mapping[str, int], licence: str | None) -> str:
    """The text of README.md, with the hashes that the manifests record."""
    grammar, sample, pcfg = corpora.manifests["grammar"], corpora.manifests["sample"], corpora.grammar
    front = {"license": _licence_id(corpora, licence), "pretty_name": TITLE,
             "tags": ["pcfg", "constituency-parsing", "synthetic"], "task_categories": ["fill-mask"]}
    return CARD.format(
        front=yaml.safe_dump(front, sort_keys=False), first_word=FIRST_WORD, variant=corpora.variant,
        splits="\n".join(f"| {split} | {n:,} | {'yes' if corpora.is_scored(split) else 'no'} |"
                         for split, n in sizes.items()),
        origin=corpora.origin, source="given grammar" if corpora.variant == GIVEN else "treebank",
        source_hash=corpora.source_hash, grammar_hash=grammar.outputs[f"{corpora.variant}/grammar.json"],
        sizes=f"{pcfg.n_nonterminals:,} non-terminals, {len(pcfg.binary):,} binary rules, "
              f"{len(pcfg.lexical):,} lexical rules, {pcfg.n_words:,} words",
        seed=sample.config["seed"], max_length=sample.config["max_length"] or "any",
        versions=", ".join(f"{name} {sample.versions[name]}" for name in ("pcfg_artifact", "numpy", "numba")
                           if name in sample.versions),
        licence=_licence(corpora, licence))


def _licence_id(corpora: Corpora, licence: str | None) -> str:
    return licence or ("mit" if corpora.is_embedded else "other")


def _licence(corpora: Corpora, licence: str | None) -> str:
    if corpora.is_embedded:
        return "The treebank is generated by pcfg_artifact, which is under the MIT licence; so is this corpus."
    source = "grammar" if corpora.variant == GIVEN else "treebank"
    named = f"The licence of the {source}: {licence}." if licence else (
        f"The licence of the {source} was not given to `export --licence`: find it before you share this corpus.")
    if corpora.variant == GIVEN:
        return f"{named} Words, labels and rule probabilities are those of the grammar."
    return (f"{named} Words, labels and rule probabilities come from the treebank, so pass this corpus on only as that "
            f"licence allows.\nThe treebank's own trees are not in it, unless a draw repeats one by chance.")


# ---- Croissant metadata ----------------------------------------------------------------------------------------------

CROISSANT = "http://mlcommons.org/croissant/"
# The terms that Croissant's own context knows without a prefix; readers expect all of them.
TERMS = ("citeAs", "column", "equivalentProperty", "extract", "field", "fileObject", "fileProperty", "fileSet",
         "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet",
         "references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform")
COLUMNS = {"words": ("sc:Text", True, "the words of the sentence"),
           "token_ids": ("sc:Integer", True, "ids of the words in the grammar, from 0"),
           "tree": ("sc:Text", False, "the tree that was drawn, bracketed"),
           "log_prob": ("sc:Float", False, "natural logarithm of the probability of the sentence, over all its trees; "
                                           "null where it was not computed"),
           "span_scores": ("sc:Float", True, "for every span the largest posterior probability of a non-terminal that "
                                             "covers it, ordered by its first word, then its last; null likewise")}
ARROW = "application/vnd.apache.arrow.stream"


def croissant(corpora: Corpora, folder: Path, sizes: Mapping[str, int], licence: str | None) -> dict[str, Any]:
    """The dataset in `folder` in the vocabulary of Croissant 1.0, with the fields of responsible AI."""
    files = [{"@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name, "encodingFormat": ARROW,
              "contentSize": f"{(folder / name).stat().st_size} B", "sha256": storage.sha256(folder / name)}
             for split in sizes for name in sorted(f"{split}/{path.name}" for path in (folder / split).glob("*.arrow"))]
    sets = [{"@type": "cr:FileSet", "@id": f"{split}-files", "name": f"{split}-files", "encodingFormat": ARROW,
             "includes": f"{split}/*.arrow"} for split in sizes]
    return {
        "@context": {"@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
                     "cr": CROISSANT, "rai": f"{CROISSANT}RAI/", "dct": "http://purl.org/dc/terms/",
                     "conformsTo": "dct:conformsTo", "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
                     **{term: {"@id": f"cr:{term}", "@type": "@json"} for term in ("data", "examples")},
                     **{term: f"cr:{term}" for term in TERMS}},
        "@type": "sc:Dataset", "name": "pcfg-corpus", "alternateName": TITLE,
        "conformsTo": [f"{CROISSANT}1.0", f"{CROISSANT}RAI/1.0"],
        "description": f"Sentences and trees drawn from one probabilistic context-free grammar, so that the tree and "
                       f"the exact probability of each are known. The grammar {corpora.origin}.",
        "license": _licence_id(corpora, licence), "version": "1.0.0", "isLiveDataset": False,
        "keywords": ["pcfg", "constituency parsing", "synthetic"],
        "citeAs": "See CITATION.cff of pcfg_artifact, and the source of the grammar.",
        **responsible_ai(corpora, licence), "distribution": [*files, *sets],
        "recordSet": [{"@type": "cr:RecordSet", "@id": split, "name": split,
                       "description": f"{n:,} sentences", "field": [_column(split, name) for name in COLUMNS]}
                      for split, n in sizes.items()]}


def _column(split: str, name: str) -> dict[str, Any]:
    data_type, is_list, description = COLUMNS[name]
    return {"@type": "cr:Field", "@id": f"{split}/{name}", "name": name, "description": description,
            "dataType": data_type, **({"repeated": True} if is_list else {}),
            "source": {"fileSet": {"@id": f"{split}-files"}, "extract": {"column": name}}}


def responsible_ai(corpora: Corpora, licence: str | None) -> dict[str, Any]:
    """What tracks for datasets ask for."""
    sample, is_given = corpora.manifests["sample"], corpora.variant == GIVEN
    return {
        "rai:dataCollection": f"Drawn by the sampler of pcfg_artifact {sample.versions.get('pcfg_artifact', '')} with "
                              f"seed {sample.config['seed']} from a grammar that {corpora.origin}. The source has the "
                              f"SHA-256 {corpora.source_hash}.",
        "rai:dataCollectionType": ["Software Collection"],
        "rai:dataAnnotationProtocol": "None: the tree of a sentence is the one that it was drawn with.",
        "rai:dataBiases": "Every sentence follows the rules and frequencies of one grammar, "
                          + ("and nothing else." if is_given else "which has those of its treebank: its time, subjects "
                             "and writers."),
        "rai:dataLimitations": "The sentences have no meaning, and no dependence that a context-free grammar lacks; "
                               "results on them need not hold for text that people wrote.",
        "rai:dataUseCases": "Training and probing language models whose exact optimum is known; not a model of any "
                            "language, nor a source of facts.",
        "rai:personalSensitiveInformation": "No sentence was written by or about anybody; single words, names "
                                            "among them, are those of the grammar.",
        "rai:dataReleaseMaintenancePlan": "The same settings give the same corpus again, so nothing needs maintenance. "
                                          + _licence(corpora, licence),
        "rai:hasSyntheticData": True}
