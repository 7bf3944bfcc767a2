"""Probes that are kept and applied again: the same answers, to treebanks and to plain text."""

import json

import numpy as np
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.mlm.tokenizer import build_tokenizer
from pcfg_artifact.probing.probes import PROBES, build_probes, probe_of, tensors_of

NOUNS, VERBS = ("dog", "cat", "bird", "cow"), ("sees", "hears", "likes")
WORDS = ("the", ".", *NOUNS, *VERBS)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A treebank, a model of two layers, and its probes as the tool keeps them."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "trees.mrg").write_text("".join(
        f"(S (NP (DT the) (NN {a})) (VP (VBZ {verb}) (NP (DT the) (NN {b}))) (. .))\n"
        for a in NOUNS for b in NOUNS for verb in VERBS))
    for name, layers in (("model", 2), ("deeper", 3)):
        config = build_config(parse_shape(f"A2L{layers}"), n_words=len(WORDS), width=8, max_length=10, dropout=0.0)
        build_model(config, 0).save_pretrained(folder / name)
        build_tokenizer(WORDS, 10).save_pretrained(folder / name)
    assert probe(folder, "--treebank", folder / "trees.mrg", "--train", 30, "--test", 10, "--save", folder / "p",
                 "--csv", folder / "fitted.csv") == 0
    return folder


def probe(folder, *arguments, model="model"):
    return main(["probe", "--model", str(folder / model), *map(str, arguments)])


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("targets", [np.array([0, 1, 2] * 10), np.linspace(0, 1, 30)], ids=["labels", "numbers"])
def test_a_kept_probe_answers_as_the_fitted_one(name, targets):
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    options = {"epochs": 3, "milestones": (1, 2)}
    fitted = build_probes([name], options)[name].fit(x.copy(), targets, (0, 1))
    tensors, numbers = tensors_of(fitted, "7.")
    again = probe_of(name, tensors, json.loads(json.dumps(numbers)), "7.")
    np.testing.assert_array_equal(again.predict(x), fitted.predict(x))


def test_kept_probes_score_the_same_sentences_as_the_fit_did(place, capsys):
    kept = sorted(path.name for path in (place / "p").iterdir())
    assert kept == ["probes.json", "probes.safetensors"]
    assert probe(place, "--treebank", place / "trees.mrg", "--test", 10, "--load", place / "p",
                 "--csv", place / "loaded.csv") == 0
    assert "probes fitted on" in capsys.readouterr().out
    assert (place / "loaded.csv").read_text() == (place / "fitted.csv").read_text()


def test_kept_probes_parse_plain_text(place, tmp_path, capsys):
    (tmp_path / "text").write_text("the dog sees the cat .\n\ndog\n")
    assert probe(place, "--load", place / "p", "--text", tmp_path / "text", "--layer", 1) == 0
    first, empty, one = capsys.readouterr().out.split("\n")[:3]
    assert first.replace("(", "").replace(")", "").split() == ["the", "dog", "sees", "the", "cat", "."]
    assert first.count("(") == first.count(")") == 5  # a binary tree over six words
    assert (empty, one) == ("", "dog")


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "give --treebank SOURCE"),
    (["--text", "x"], "give --treebank SOURCE"),
    (["--treebank", "embedded", "--load", "nowhere"], "is a folder that `probe --save DIR` wrote"),
    (["--treebank", "embedded", "--load", "p", "--save", "q"], "give one of them"),
    (["--load", "p", "--text", "x", "--layer", "9"], "layers 0 to 2"),
])
def test_requests_that_make_no_sense_are_refused(place, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(place)
    assert probe(place, *arguments) == 2
    assert message in capsys.readouterr().err


def test_probes_of_another_model_and_damaged_ones_are_refused(place, tmp_path, capsys):
    text = ("--treebank", place / "trees.mrg")
    assert probe(place, *text, "--load", place / "p", model="deeper") == 2
    assert "read 3 layers of 8 dimensions (of model); the model has 4 of 8" in capsys.readouterr().err
    for name, content in (("probes.json", "{}"), ("probes.safetensors", "no tensors")):
        for path in (place / "p").iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        (tmp_path / name).write_text(content)
        assert probe(place, *text, "--load", tmp_path) == 2
        assert "keep them again with --save" in capsys.readouterr().err
