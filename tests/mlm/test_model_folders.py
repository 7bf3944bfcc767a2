"""Model folders from others: what does not fit is refused by name, and nothing in them is executed."""

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pcfg_artifact.cli import main
from pcfg_artifact.errors import UsageError
from pcfg_artifact.mlm.encoders import load_encoder, load_masked_lm
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.mlm.tokenizer import build_tokenizer

NOUNS, VERBS = ("dog", "cat", "bird", "cow"), ("sees", "hears", "likes")
WORDS = ("the", ".", *NOUNS, *VERBS)
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def treebank(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bank") / "trees.mrg"
    path.write_text("".join(f"(S (NP (DT the) (NN {a})) (VP (VBZ {verb}) (NP (DT the) (NN {b}))) (. .))\n"
                            for a in NOUNS for b in NOUNS for verb in VERBS))
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A model of two layers and width 8 with its tokenizer, as save_pretrained writes them."""
    folder = tmp_path_factory.mktemp("sound")
    config = build_config(parse_shape("A2L2"), n_words=len(WORDS), width=8, max_length=10, dropout=0.0)
    build_model(config, 0).save_pretrained(folder)
    build_tokenizer(WORDS, 10).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def probe(folder: Path, treebank: Path) -> int:
    return main(["probe", "--model", str(folder), "--treebank", str(treebank), "--train", "30", "--test", "10"])


def change_weights(folder: Path, change) -> None:
    save_file({change(name)[0]: change(name)[1](tensor) for name, tensor in load_file(folder / WEIGHTS).items()},
              folder / WEIGHTS, metadata={"format": "pt"})


def change_config(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def rename_tensors(folder):
    change_weights(folder, lambda name: (f"student.{name}", torch.clone))


def drop_a_layer(folder):
    save_file({name: tensor for name, tensor in load_file(folder / WEIGHTS).items() if "layer.1." not in name},
              folder / WEIGHTS, metadata={"format": "pt"})


def fill_with(number):
    return lambda folder: change_weights(folder, lambda name: (name, lambda tensor: torch.full_like(tensor, number)))


def add_tokens(folder):
    build_tokenizer((*WORDS, "one", "more"), 10).save_pretrained(folder)


def truncate(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-40])


def remove_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


def move_a_token(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["cow"] = 100_000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


NO_MODEL = "config.json describes no model that transformers knows"
DAMAGES = {
    "renamed tensors": (rename_tensors, "are not in its safetensors: embeddings.LayerNorm.bias, .* others instead: "
                                        "student.lm_head.bias"),
    "a layer is missing": (drop_a_layer, "16 weights of the RobertaModel .*: encoder.layer.1.attention"),
    "NaN weights": (fill_with(float("nan")), "a hidden state of the model is nan"),
    "another shape": (lambda folder: change_config(folder, hidden_size=16),
                      r"weights of .* have another shape .*: embeddings.LayerNorm.bias is 8, expected 16, "),
    "fewer words than tokens": (add_tokens, "has 16 tokens, the model has embeddings for 14"),
    "truncated weights": (truncate(WEIGHTS), "cannot be loaded as an encoder"),
    "a list for a config": (lambda folder: (folder / "config.json").write_text("[]"), NO_MODEL),
    "nothing for a config": (lambda folder: (folder / "config.json").write_text("null"), NO_MODEL),
    "layers of text": (lambda folder: change_config(folder, num_hidden_layers="x"),
                       f"{NO_MODEL}.*num_hidden_layers.*got str"),
    "an unknown kind": (lambda folder: change_config(folder, model_type="oracle"), NO_MODEL),
    "fewer than no layers": (lambda folder: change_config(folder, num_hidden_layers=-1), "a model of -1 layers"),
    "a million layers": (lambda folder: change_config(folder, num_hidden_layers=10**6), "a model of 1,000,000 layers"),
    "more layers than it says": (lambda folder: change_config(folder, num_hidden_layers=1),
                                 "hold more layers than its config.json describes: roberta.encoder.layer.1;"),
    "a token far away": (move_a_token, "has 100001 tokens, the model has embeddings for 14"),
    "damaged tokenizer": (truncate("tokenizer.json"), "its tokenizer is damaged"),
    "no tokenizer": (remove_tokenizer, "holds no tokenizer"),
}


def test_a_sound_folder_is_probed_though_it_has_no_pooler(sound, treebank, capsys):
    assert probe(sound, treebank) == 0
    assert "best layer" in capsys.readouterr().out


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_that_does_not_fit_is_refused_by_name(damage, folder, treebank, capsys):
    change, expected = DAMAGES[damage]
    change(folder)
    assert probe(folder, treebank) == 2
    said = capsys.readouterr()
    assert "best layer" not in said.out
    assert "Traceback" not in said.err
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert re.search(expected, errors[0]), errors[0]


def test_a_tokenizer_without_a_padding_token_is_no_obstacle(folder, treebank, capsys):
    assert probe(folder, treebank) == 0
    expected = capsys.readouterr().out
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    assert load_encoder(folder)[1].pad_token_id is None
    assert probe(folder, treebank) == 0
    assert capsys.readouterr().out == expected


def test_enormous_weights_end_with_an_answer_or_one_message(folder, treebank, capsys):
    """Layer norms may bring them back to numbers; what they must not do is raise inside a library."""
    fill_with(1e30)(folder)
    assert probe(folder, treebank) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_pickled_weights_are_refused_and_not_executed(folder, treebank, capsys, tmp_path):
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    assert probe(folder, treebank) == 2
    assert "the weights as safetensors" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("kind", ["roberta", "bomb"])
def test_code_in_a_model_folder_never_runs_whatever_the_user_answers(kind, folder, treebank, capsys, tmp_path,
                                                                      monkeypatch):
    """`yes | run_all.sh probe ...`: nobody is asked, and a kind that only its own code defines is refused."""
    (folder / "bomb.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'executed')!r}).touch()\n"
                                    f"class Config: pass\nclass Model: pass\nclass Tokenizer: pass\n")
    auto_map = {"AutoConfig": "bomb.Config", "AutoModel": "bomb.Model", "AutoModelForMaskedLM": "bomb.Model"}
    change_config(folder, model_type=kind, auto_map=auto_map)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(
        tokenizer | {"auto_map": {"AutoTokenizer": ["bomb.Tokenizer", "bomb.Tokenizer"]}}))
    asked = []
    monkeypatch.setattr("builtins.input", lambda *prompt: asked.append(prompt) or "yes")
    assert probe(folder, treebank) == (0 if kind == "roberta" else 2)
    assert asked == []
    assert not (tmp_path / "executed").exists()


def test_a_masked_model_is_loaded_with_its_head_or_refused(folder):
    model, _ = load_masked_lm(folder)
    assert torch.equal(model.lm_head.dense.weight, load_file(folder / WEIGHTS)["lm_head.dense.weight"])
    save_file({name: tensor for name, tensor in load_file(folder / WEIGHTS).items() if "lm_head.dense" not in name},
              folder / WEIGHTS, metadata={"format": "pt"})
    load_encoder(folder)  # which reads no head
    with pytest.raises(UsageError, match="lm_head.dense.bias, lm_head.dense.weight"):
        load_masked_lm(folder)
