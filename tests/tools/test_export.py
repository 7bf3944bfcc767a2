"""`export` on a small run: the corpora in it are those of the arrays, and other programs can use them."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml

from pcfg_artifact.cli import main
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import SampledTrees
from pcfg_artifact.run import stage_folder
from pcfg_artifact.run.stage_folder import Folder, Manifest
from pcfg_artifact.system import storage
from pcfg_artifact.tools import export
from pcfg_artifact.treebank.binarise import unbinarise
from pcfg_artifact.treebank.reading import read_treebank

SIZES = {"sample.n_pretraining": 130, "sample.n_validation": 12, "sample.n_probe_train": 8, "sample.n_probe_test": 9,
         "sample.max_length": 12, "marginals.max_length": 8, "marginals.n_train": 5, "marginals.n_masked": 2,
         "marginals.mask_max_length": 8}
SPLITS = {"pretraining": 130, "validation": 12, "probe_train": 8, "probe_test": 9}

# Knows nothing of this package, and refuses to.
READER = """
import json, sys
sys.modules["pcfg_artifact"] = None
import datasets
corpus = datasets.load_from_disk(sys.argv[1])
json.dump({split: rows.to_dict() for split, rows in corpus.items()}, sys.stdout)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("export")
    noun_phrases = ["(NP (DT the) (NN dog))", "(NP (NNS cats))",
                    "(NP (DT a) (JJ big) (NN dog) (PP (IN in) (NP (NNS parks))))"]
    trees = [f"(S {subject} (VP (VBP see) {thing}) (. .))" for subject in noun_phrases for thing in noun_phrases] * 30
    (root / "trees.mrg").write_text("\n".join(trees))
    arguments = ["--treebank", str(root / "trees.mrg"), "--out", str(root / "run"), "--to", "marginals"]
    assert main([*arguments, *(f"--set={key}={value}" for key, value in SIZES.items())]) == 0
    return root / "run"


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """The folder, written in blocks that are smaller than the corpus."""
    folder = tmp_path_factory.mktemp("exported") / "corpus"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "BLOCK", 50)
        assert main(["export", "--run", str(run), "--out", str(folder)]) == 0
    return folder


def alone(script, *arguments, cwd):
    environment = {**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], cwd=cwd, env=environment,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def read_elsewhere(exported, tmp_path_factory):
    return json.loads(alone(READER, exported, cwd=tmp_path_factory.mktemp("elsewhere")))


def test_a_process_without_this_package_reads_the_sentences_of_the_arrays(run, read_elsewhere):
    words = PCFG.load(run / "grammar" / "vm").words
    assert {split: len(columns["words"]) for split, columns in read_elsewhere.items()} == SPLITS
    for split, columns in read_elsewhere.items():
        tokens = Folder(run / "sample").ragged(f"{split}/tokens")
        assert columns["token_ids"] == [row.tolist() for row in tokens.rows()]
        assert columns["words"] == [[words[w] for w in row] for row in tokens.rows()]


def test_every_tree_is_the_one_that_was_drawn(run, read_elsewhere):
    grammar = PCFG.load(run / "grammar" / "vm")
    for split in ("validation", "probe_train", "probe_test"):
        drawn = SampledTrees(grammar, Folder(run / "sample").ragged(f"{split}/rules"), 0)
        assert read_elsewhere[split]["tree"] == [str(unbinarise(tree)) for tree in drawn]
    drawn_again = read_elsewhere["pretraining"]
    for tree, words in zip(drawn_again["tree"], drawn_again["words"], strict=True):
        assert [part.split(")")[0] for part in tree.split() if not part.startswith("(")] == words


def test_scores_are_those_of_marginals_and_null_where_there_are_none(run, read_elsewhere):
    for split in ("pretraining", "validation"):
        assert set(read_elsewhere[split]["log_prob"]) == {None}
        assert read_elsewhere[split]["span_scores"] == [None] * SPLITS[split]
    left_out = 0
    for split in ("probe_train", "probe_test"):
        folder = Folder(run / "marginals")
        scores, log_probs = folder.ragged(f"{split}/span_scores"), folder.array(f"{split}/log_probs")
        for s, attempts in enumerate(folder.array(f"{split}/attempts")):
            found = read_elsewhere[split]["log_prob"][s], read_elsewhere[split]["span_scores"][s]
            assert found == ((log_probs[s], scores.row(s).tolist()) if attempts == 1 else (None, None))
            left_out += attempts != 1
    assert left_out


def test_the_trainer_of_transformers_trains_on_it(exported, tmp_path):
    """As its user would: their own tokenizer over `words`, nothing of this package."""
    import datasets
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        DataCollatorForLanguageModeling,
        PreTrainedTokenizerFast,
        RobertaConfig,
        RobertaForMaskedLM,
        Trainer,
        TrainingArguments,
    )

    corpus = datasets.load_from_disk(str(exported))["pretraining"]
    names = ["<pad>", "<unk>", "<mask>", *sorted({word for words in corpus["words"] for word in words})]
    level = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=level, pad_token="<pad>", mask_token="<mask>",
                                        unk_token="<unk>")
    encoded = corpus.map(lambda row: {"input_ids": tokenizer(" ".join(row["words"]))["input_ids"]},
                         remove_columns=corpus.column_names, keep_in_memory=True)
    model = RobertaForMaskedLM(RobertaConfig(vocab_size=len(names), hidden_size=16, num_hidden_layers=1, pad_token_id=0,
                                             num_attention_heads=2, intermediate_size=32, max_position_embeddings=64))
    before = model.lm_head.bias.detach().clone()
    arguments = TrainingArguments(str(tmp_path), max_steps=4, per_device_train_batch_size=8, report_to=[], use_cpu=True,
                                  disable_tqdm=True, save_strategy="no", logging_strategy="no", seed=0)
    done = Trainer(model, arguments, DataCollatorForLanguageModeling(tokenizer), encoded).train()
    assert done.global_step == 4
    assert done.training_loss > 0
    assert not before.equal(model.lm_head.bias)


def test_the_card_names_grammar_seed_and_licence(run, exported):
    card = (exported / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "other"
    assert storage.sha256(run / "grammar" / "vm" / "grammar.json") in text
    assert Manifest.read(run / "grammar").inputs["treebank"] in text
    assert "seed: 0; longest sentence allowed: 12" in text
    assert "| pretraining | 130 | no |" in text
    assert "| probe_test | 9 | yes |" in text
    assert "The licence of the treebank was not given" in text
    assert max(map(len, text.splitlines())) < 250


def test_croissant_metadata_describe_every_file_and_column(exported, read_elsewhere):
    about = json.loads((exported / "croissant.json").read_text())
    nodes = {node["@id"]: node for node in [*about["distribution"], *about["recordSet"]]}
    assert len(nodes) == len(about["distribution"]) + len(about["recordSet"])
    files = {path.relative_to(exported).as_posix(): path for path in exported.rglob("*.arrow")}
    assert {name: nodes[name]["sha256"] for name in files} == {name: storage.sha256(path)
                                                              for name, path in files.items()}
    assert sorted(record_set["@id"] for record_set in about["recordSet"]) == sorted(SPLITS)
    for record_set in about["recordSet"]:
        fields = {field["name"]: field for field in record_set["field"]}
        assert fields.keys() == read_elsewhere[record_set["@id"]].keys()
        assert all(field["source"]["fileSet"]["@id"] in nodes for field in fields.values())
    prefixed = {key.partition(":")[0] for key in about if ":" in key}
    assert prefixed == {"rai"} <= about["@context"].keys()


def test_the_mlcroissant_package_accepts_the_metadata(exported):
    mlcroissant = pytest.importorskip("mlcroissant", reason="requirements-lint.txt is not installed")
    dataset = mlcroissant.Dataset(str(exported / "croissant.json"))  # an error is raised
    assert not dataset.metadata.ctx.issues.errors
    assert {record_set.name for record_set in dataset.metadata.record_sets} == set(SPLITS)


def test_an_exported_corpus_serves_as_a_treebank(exported, read_elsewhere):
    bank = read_treebank(exported / "probe_train")
    assert [tree.words() for tree in bank.trees] == read_elsewhere["probe_train"]["words"]


def test_splits_and_licence_can_be_chosen(run, tmp_path):
    assert main(["export", "--run", str(run), "--out", str(tmp_path / "one"), "--splits", "probe_test", "--licence",
                 "cc-by-3.0"]) == 0
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["README.md", "croissant.json", "dataset_dict.json", "probe_test"]
    assert "license: cc-by-3.0" in (tmp_path / "one" / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]


def refused(capsys, code, *arguments):
    assert main(["export", *map(str, arguments)]) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "Traceback" not in said
    return said


def test_a_folder_with_files_is_refused_and_left_alone(run, tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert "not an empty folder" in refused(capsys, 2, "--run", run, "--out", tmp_path)
    assert "not an empty folder" in refused(capsys, 2, "--run", run, "--out", tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert "is no run" in refused(capsys, 2, "--run", tmp_path, "--out", tmp_path / "new")


def test_an_export_in_progress_is_not_disturbed(run, tmp_path, capsys):
    with stage_folder.lock(tmp_path / f"{storage.TEMPORARY}corpus"):
        assert "in use" in refused(capsys, 2, "--run", run, "--out", tmp_path / "corpus")


def test_what_a_killed_export_left_is_removed(run, tmp_path):
    left = tmp_path / f"{storage.TEMPORARY}corpus" / "whole"
    left.mkdir(parents=True)
    (left / "half").write_text("")
    assert main(["export", "--run", str(run), "--out", str(tmp_path / "corpus"), "--splits", "validation"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert not (tmp_path / "corpus" / "half").exists()


def test_sentences_that_cannot_be_drawn_again_are_an_error_and_nothing_is_left(run, tmp_path, capsys):
    """As if another release had drawn them: the hash is right, the sentences are not this release's."""
    other = tmp_path / "run"
    for stage in ("grammar", "sample"):
        shutil.copytree(run / stage, other / stage)
    path = other / "sample" / "pretraining" / "tokens.values.npy"
    values = np.load(path)
    values[-1] = (values[-1] + 1) % 3
    storage.write_array(path, values)
    assert "does not have the SHA-256" in refused(capsys, 1, "--run", other, "--out", tmp_path / "corpus")
    manifest = Manifest.read(other / "sample")
    manifest.outputs["pretraining/tokens.values.npy"] = storage.sha256(path)
    manifest.write(other / "sample")
    said = refused(capsys, 1, "--run", other, "--out", tmp_path / "corpus")
    assert "sentences 0 to 129 are not those that this release draws with seed 0" in said
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
