"""Constructed transformers as checkpoints: charts bit-equal after the round trip through AutoModel."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pcfg_artifact.constructions.approximate_relative import ApproximateInsideOutside, MergedInsideOutside
from pcfg_artifact.constructions.constructed_model import ConstructedModel, register_with_transformers
from pcfg_artifact.constructions.hard import HardAttentionInsideOutside
from pcfg_artifact.constructions.relative import RelativeInsideOutside
from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG

GRAMMAR = PCFG.from_rules(
    {"S": 0.9, "A": 0.1},
    [("S", "S", "S", 0.2), ("S", "A", "B", 0.4), ("S", "T", "B", 0.4), ("T", "A", "S", 0.5), ("T", "B", "B", 0.5)],
    [("A", "x", 0.3), ("A", "y", 0.7), ("B", "x", 1 / 3), ("B", "z", 2 / 3)],
    symbol_counts={"S": 10, "T": 5, "A": 9, "B": 11}, word_counts={"x": 10, "y": 5, "z": 5})
SENTENCES = [["x"], ["y", "x", "x", "z"], ["x", "z"]]
BUILDERS = {
    "hard": lambda: HardAttentionInsideOutside(GRAMMAR, 4),
    "relative, dense": lambda: RelativeInsideOutside(GRAMMAR, max_length=4, backend="dense"),
    "relative, structured, float32": lambda: RelativeInsideOutside(GRAMMAR, 4, backend="structured",
                                                                   dtype=torch.float32, rescale=True),
    "few symbols": lambda: ApproximateInsideOutside(GRAMMAR, 4, 1, 2, None),
    "low rank": lambda: ApproximateInsideOutside(GRAMMAR, 4, 2, 2, 1),
    "merged": lambda: MergedInsideOutside(GRAMMAR, 4, n_heads=2),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_charts_are_bit_equal_after_the_round_trip_through_automodel(name, tmp_path):
    from transformers import AutoConfig, AutoModel

    built = BUILDERS[name]()
    ConstructedModel.of(built).save_pretrained(tmp_path / "m")
    register_with_transformers()
    loaded = AutoModel.from_pretrained(tmp_path / "m")
    assert type(loaded.transformer) is type(built)
    for sentence in SENTENCES:
        for ours, theirs in zip(built.read_charts(built(sentence)),
                                loaded.transformer.read_charts(loaded.transformer(sentence)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    config = AutoConfig.from_pretrained(tmp_path / "m")
    assert [config.num_hidden_layers, config.hidden_size] == [built.n_layers, built.embedding_dim]
    assert max(stop for _, _, stop in config.residual_blocks) == built.embedding_dim
    assert {"hard": "inside_start 0"}.get(name, "inside 0") in [block for block, _, _ in config.residual_blocks]
    assert config.computes[0] == ["inside", 2]
    assert {path.name for path in (tmp_path / "m").iterdir()} == {
        "config.json", "model.safetensors", "README.md", "grammar.json", "grammar.npz"}


def test_the_forward_pass_of_transformers_reads_word_ids_in_padded_batches(tmp_path):
    built = RelativeInsideOutside(GRAMMAR, 4)
    model = ConstructedModel.of(built)
    ids = torch.tensor([[1, 0, 0, 2], [0, 2, 0, 0]])
    out = model(ids, attention_mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), output_hidden_states=True)
    assert len(out.hidden_states) == built.n_layers + 1
    inside, _ = built.read_charts(out.last_hidden_state[1])
    np.testing.assert_array_equal(inside, built.read_charts(built(["x", "z"]))[0])


def test_weights_come_from_the_file_and_not_from_the_construction(tmp_path):
    ConstructedModel.of(RelativeInsideOutside(GRAMMAR, 3)).save_pretrained(tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["transformer.emission"] *= 2
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    inside, _ = (model := ConstructedModel.from_pretrained(tmp_path / "m").transformer).read_charts(model(["y"]))
    assert inside[0, 1, GRAMMAR.nonterminal_index["A"]] == 2 * 0.7


@pytest.mark.parametrize(("damage", "message"), [
    (lambda folder: (folder / "model.safetensors").unlink(), "holds no constructed transformer"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 50), "holds no constructed transformer"),
    (lambda folder: edit(folder, construction="os.system"), "the construction 'os.system' is unknown"),
    (lambda folder: (folder / "grammar.npz").unlink(), "holds no constructed transformer"),
    (lambda folder: edit(folder, arguments={"max_length": 4}), "is no weight of it"),
    (lambda folder: edit(folder, arguments={"max_length": 3, "dtype": "float32"}), "expected torch.float32"),
])
def test_a_damaged_checkpoint_is_refused(damage, message, tmp_path):
    ConstructedModel.of(RelativeInsideOutside(GRAMMAR, 3, backend="dense")).save_pretrained(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(UsageError, match=message):
        ConstructedModel.from_pretrained(tmp_path / "m")


def edit(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize("code", [
    "import pcfg_artifact as pa; from transformers import AutoConfig, AutoModel; pa.register_with_transformers()",
    "from transformers import AutoConfig, AutoModel; AutoModel; import pcfg_artifact as pa; "
    "pa.register_with_transformers(); pa.register_with_transformers()",
])
def test_automodel_knows_a_checkpoint_once_it_is_registered(code, tmp_path):
    ConstructedModel.of(RelativeInsideOutside(GRAMMAR, 2)).save_pretrained(tmp_path / "m")
    code = f"import sys; {code}; print(AutoConfig.from_pretrained(sys.argv[1]).construction, " \
           f"type(AutoModel.from_pretrained(sys.argv[1])).__name__)"
    command = [sys.executable, "-c", code, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["RelativeInsideOutside", "ConstructedModel"], done.stderr


def test_our_own_loader_needs_no_registration_and_the_package_loads_neither_torch_nor_transformers(tmp_path):
    ConstructedModel.of(RelativeInsideOutside(GRAMMAR, 2)).save_pretrained(tmp_path / "m")
    code = ("import sys, pcfg_artifact as pa, pcfg_artifact.constructions; assert not {'torch', 'transformers'} & set("
            "sys.modules); print(type(pa.ConstructedModel.from_pretrained(sys.argv[1]).transformer).__name__)")
    command = [sys.executable, "-c", code, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["RelativeInsideOutside"], done.stderr
