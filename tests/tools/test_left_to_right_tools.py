"""The tools next and surprisal: what a user types, sees and gets wrong."""

import csv
import io
import json
import math
import re

import numpy as np
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.engine import inside_outside

UNKNOWN_WORDS = PCFG.from_rules(
    root={"S": 1.0}, binary=[("S", "N", "V", 0.5), ("S", "N", "S", 0.5)],
    lexical=[("N", "dogs", 0.75), ("N", "UNK-LC-s", 0.25), ("V", "bark", 0.5), ("V", "UNK-LC", 0.5)])


@pytest.fixture
def grammar_folder(tmp_path):
    UNKNOWN_WORDS.save(tmp_path / "grammar")
    return str(tmp_path / "grammar")


def table(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out), delimiter="\t", quoting=csv.QUOTE_NONE))


def surprisal(arguments, text, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["surprisal", *arguments]) == 0
    out, err = capsys.readouterr()
    return table(out), out, err


# ---- next ------------------------------------------------------------------------------------------------------------


def test_next_ranks_continuations_with_the_end_among_them(grammar_folder, capsys):
    assert main(["next", "--grammar", grammar_folder, "dogs cats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["words"] == ["dogs", "cats"]
    assert found["next"] == pytest.approx({"dogs": 0.375, "bark": 0.25, "UNK-LC": 0.25, "UNK-LC-s": 0.125})
    assert found["read_as"] == {"cats": "UNK-LC-s"}
    assert found["open"] == pytest.approx(2.0 - 0.5 + 0.5)  # the S of each N: V closes both, another N leaves both open
    assert main(["next", "--grammar", grammar_folder, "dogs bark"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["probability", "next", "word"]
    assert lines[1].startswith("after 'dogs bark' (log probability -1.6740 nats, 0.00 constituents open")
    assert lines[2].split() == ["1.000000", "[END]"]


def test_next_after_nothing_predicts_the_first_word(grammar_folder, capsys):
    for prefix in ([], [""], ["  "]):
        assert main(["next", "--grammar", grammar_folder, *prefix, "-n", "1"]) == 0
        assert capsys.readouterr().out.splitlines()[2].split() == ["0.750000", "dogs"]


def test_next_says_how_an_unknown_word_was_read(grammar_folder, capsys):
    assert main(["next", "--grammar", grammar_folder, "zibs"]) == 0
    assert "'zibs' is unknown, read as UNK-LC-s" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [
    (["next", "bark"], "word 1 of the prefix, 'bark': no sentence of the grammar begins with it"),
    (["next", "dogs bark dogs"], "word 3 of the prefix, 'dogs': no sentence of the grammar goes on with it"),
    (["next", "dogs 42"], "word 2 of the prefix, '42': the grammar has no word and no signature for it"),
    (["next", "dogs", "-n", "0"], "-n is 0, expected 1 or more"),
    (["surprisal", "missing.txt"], "cannot read sentences from missing.txt"),
    (["surprisal", "--model", "missing"], "--model missing is no model folder"),
])
def test_refusals_say_what_is_wrong_and_exit_with_2(grammar_folder, capsys, arguments, message):
    assert main([arguments[0], "--grammar", grammar_folder, *arguments[1:]]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("tool", [["next", "x"], ["surprisal", "-"]])
def test_a_grammar_without_a_left_corner_closure_is_refused(tmp_path, capsys, monkeypatch, tool):
    monkeypatch.setattr("sys.stdin", io.StringIO("x\n"))
    (tmp_path / "rules.txt").write_text("ROOT -> S 1.0\nS -> S A 1.0\nA -> 'x' 1.0\n")
    assert main([tool[0], "--grammar", str(tmp_path / "rules.txt"), *tool[1:]]) == 2
    assert "spectral radius 1.000000, expected below 1" in capsys.readouterr().err


# ---- surprisal -------------------------------------------------------------------------------------------------------


def test_surprisal_is_a_table_of_words_and_ends_that_adds_up_to_the_sentence(grammar_folder, capsys, monkeypatch):
    rows, out, err = surprisal(["--grammar", grammar_folder], "dogs dogs bark\ndogs zibs purr\n", monkeypatch, capsys)
    assert out.splitlines()[0].split("\t")[:8] == [
        "sentence", "position", "word", "surprisal_bits", "tree_bits", "word_bits", "entropy_bits", "open_constituents"]
    for row in rows:
        if math.isfinite(float(row["surprisal_bits"])):
            both = float(row["tree_bits"]) + float(row["word_bits"])
            assert both == pytest.approx(float(row["surprisal_bits"]), abs=1e-9)
    assert [(row["sentence"], row["position"], row["word"]) for row in rows] == [
        ("1", "1", "dogs"), ("1", "2", "dogs"), ("1", "3", "bark"), ("1", "4", "[END]"),
        ("2", "1", "dogs"), ("2", "2", "zibs"), ("2", "3", "purr"), ("2", "4", "[END]")]
    charts = inside_outside(UNKNOWN_WORDS, [["dogs", "dogs", "bark"], ["dogs", "zibs", "purr"]])
    for sentence, chart in zip("12", charts, strict=True):
        total = sum(float(row["surprisal_bits"]) for row in rows if row["sentence"] == sentence)
        assert total == pytest.approx(-chart.log_prob / math.log(2), rel=1e-9)
    assert [row["note"] for row in rows[4:]] == ["", "unknown, read as UNK-LC-s", "unknown, read as UNK-LC", ""]
    assert float(rows[0]["entropy_bits"]) == pytest.approx(-(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)))
    assert [float(row["open_constituents"]) for row in rows[:4]] == pytest.approx([1.0, 2.0, 0.0, 0.0])
    assert rows[3]["surprisal_bits"] == "0"
    assert err == ""


def test_a_word_that_cannot_follow_has_surprisal_inf_and_the_reason(grammar_folder, capsys, monkeypatch):
    rows, _, _ = surprisal(["--grammar", grammar_folder], "dogs bark dogs dogs\n\ndogs\ndogs 42\n", monkeypatch, capsys)
    found = {(row["sentence"], row["position"]): (row["surprisal_bits"], row["entropy_bits"], row["note"])
             for row in rows}
    assert found["1", "3"] == ("inf", "0", "no sentence of the grammar goes on with it")
    after = "the words up to word 3 have no probability, so nothing follows"
    assert found["1", "4"] == found["1", "5"] == ("inf", "nan", after)
    assert found["2", "1"][::2] == ("inf", "no sentence of the grammar is empty")
    assert found["3", "2"][::2] == ("inf", "the sentence cannot end here")
    assert found["4", "2"][::2] == ("inf", "the grammar has no word and no signature for it")


def test_surprisal_as_json_has_the_numbers_of_the_table(grammar_folder, capsys, monkeypatch):
    text = "dogs zibs bark\nbark\n"
    rows, _, _ = surprisal(["--grammar", grammar_folder], text, monkeypatch, capsys)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["surprisal", "--grammar", grammar_folder, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["words"] for line in lines] == [["dogs", "zibs", "bark"], ["bark"]]
    found = [row for line in lines for row in line["surprisals"]]
    for one, row in zip(found, rows, strict=True):
        for name, value in one.items():
            assert row[name] == (value if isinstance(value, str) else "inf" if value is None and name ==
                                 "surprisal_bits" else "nan" if value is None else f"{value:.12g}")


def test_a_line_of_a_thousand_words_is_answered(grammar_folder, capsys, monkeypatch):
    rows, _, _ = surprisal(["--grammar", grammar_folder], "dogs " * 999 + "bark\n", monkeypatch, capsys)
    assert len(rows) == 1001
    assert sum(float(row["surprisal_bits"]) for row in rows) == pytest.approx(1000 + 999 * -math.log2(0.75), rel=1e-9)


def test_a_grammar_whose_trees_may_not_end_is_said_to_be_one(tmp_path, capsys, monkeypatch):
    (tmp_path / "rules.txt").write_text("ROOT -> S 1.0\nS -> S S 0.7\nS -> A A 0.3\nA -> 'x' 1.0\n")
    rows, _, err = surprisal(["--grammar", str(tmp_path / "rules.txt")], "x x\n", monkeypatch, capsys)
    assert "finite trees of this grammar have probability 0.428571" in err
    assert 2 ** -sum(float(row["surprisal_bits"]) for row in rows) == pytest.approx(0.3 / (3 / 7))


@pytest.mark.parametrize("tool", ["next", "surprisal"])
@pytest.mark.parametrize("how", ["refused", "given and never touched"])
def test_a_sentence_whose_chart_does_not_fit_is_refused(tool, how, grammar_folder, capsys, monkeypatch):
    def refuse(*_):
        raise MemoryError("Unable to allocate 47.7 GiB")

    if how == "refused":
        monkeypatch.setattr("pcfg_artifact.parsing.prefix.left_to_right.kernels.new_state", refuse)
    else:
        monkeypatch.setattr("pcfg_artifact.parsing.prefix.left_to_right.available_memory", lambda: 10_000)
        monkeypatch.setattr("pcfg_artifact.parsing.prefix.left_to_right.SMALL", 0)
    monkeypatch.setattr("sys.stdin", io.StringIO("dogs " * 60 + "\n"))
    assert main([tool, "--grammar", grammar_folder, *(["dogs " * 60] if tool == "next" else [])]) == 2
    said = capsys.readouterr().err
    assert re.search("the chart of (60|the first 60) words", said), said


@pytest.mark.parametrize(("data", "code", "message"), [
    (b"\xef\xbb\xbfdogs bark\r\n", 0, "\t1\tdogs\t"), (b"dogs\0bark\n", 2, "holds a NUL"),
    (b"dogs b\xe4rk\n", 2, "cannot read sentences")])
def test_surprisal_reads_text_files_as_parse_does(data, code, message, grammar_folder, tmp_path, capsys):
    (tmp_path / "s.txt").write_bytes(data)
    assert main(["surprisal", "--grammar", grammar_folder, str(tmp_path / "s.txt")]) == code
    said = capsys.readouterr()
    assert message in said.out + said.err
    assert "unknown" not in said.out


def test_surprisal_without_standard_input_is_refused(grammar_folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["surprisal", "--grammar", grammar_folder]) == 2
    assert "standard input is closed" in capsys.readouterr().err


# ---- a causal model --------------------------------------------------------------------------------------------------


def tiny_gpt2(folder, pieces: list[str], n_positions: int = 16, is_word_level: bool = False):
    """A random GPT-2 whose tokenizer knows letters and some merged pieces, blanks written as in GPT-2."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    if is_word_level:
        vocabulary = {token: n for n, token in enumerate(["<end>", "<unk>", *pieces])}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        special = {"eos_token": "<end>", "bos_token": "<end>", "unk_token": "<unk>"}
    else:
        letters = sorted({c for piece in pieces for c in piece} | {"Ġ"})
        merges = [(piece[:n - 1], piece[n - 1]) for piece in pieces for n in range(2, len(piece) + 1)]
        tokens = ["<end>", *letters, *dict.fromkeys("".join(merge) for merge in merges)]
        tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, list(dict.fromkeys(merges))))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        special = {"eos_token": "<end>", "bos_token": "<end>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(fast), n_positions=n_positions, n_embd=8, n_layer=2, n_head=2,
                        initializer_range=0.5)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return fast


def test_model_columns_sum_the_pieces_of_each_word(grammar_folder, tmp_path, capsys, monkeypatch):
    import torch
    from transformers import GPT2LMHeadModel

    folder = tmp_path / "model"
    tokenizer = tiny_gpt2(folder, ["dogs", "Ġbark"])
    rows, out, err = surprisal(["--grammar", grammar_folder, "--model", str(folder)], "dogs dogs bark\n", monkeypatch,
                               capsys)
    assert out.splitlines()[0].split("\t")[8:] == [
        "model_surprisal_bits", "model_entropy_bits", "model_pieces", "note"]
    assert "a piece belongs to the word of its first character that is no blank" in err
    assert [row["model_pieces"] for row in rows] == ["1", "2", "1", "1"]  # dogs | Ġ dogs | Ġbark | <end>
    ids = tokenizer.convert_tokens_to_ids(["<end>", "dogs", "Ġ", "dogs", "Ġbark", "<end>"])
    with torch.no_grad():
        logits = GPT2LMHeadModel.from_pretrained(folder)(torch.tensor([ids])).logits[0]
        log_probs = torch.log_softmax(logits.double(), -1)
    by_piece = [-float(log_probs[n, token]) / math.log(2) for n, token in enumerate(ids[1:])]
    expected = [by_piece[0], sum(by_piece[1:3]), by_piece[3], by_piece[4]]
    np.testing.assert_allclose([float(row["model_surprisal_bits"]) for row in rows], expected, rtol=1e-5)
    begins = [n for n, token in enumerate(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
              if token[0] == "Ġ" or token == "<end>"]
    border = {n: -float(torch.logsumexp(log_probs[n, begins], 0)) / math.log(2) for n in (1, 3, 4)}
    moved = [expected[0] + border[1], expected[1] - border[1] + border[3], expected[2] - border[3] + border[4],
             expected[3] - border[4]]
    other, _, err = surprisal(["--grammar", grammar_folder, "--model", str(folder), "--border", "previous"],
                              "dogs dogs bark\n", monkeypatch, capsys)
    assert "a border between words counts to the previous one" in err
    np.testing.assert_allclose([float(row["model_surprisal_bits"]) for row in other], moved, rtol=1e-5)
    assert sum(moved) == pytest.approx(sum(expected), rel=1e-9)
    entropy = [-float((row.exp() * row).sum()) / math.log(2) for row in log_probs]
    np.testing.assert_allclose([float(row["model_entropy_bits"]) for row in rows], [entropy[n] for n in (0, 1, 3, 4)],
                               rtol=1e-5)


def test_a_model_of_the_grammars_words_gets_signatures_too(grammar_folder, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "model"
    tiny_gpt2(folder, list(UNKNOWN_WORDS.words), is_word_level=True)
    arguments = ["--grammar", grammar_folder, "--model", str(folder)]
    unknown, _, _ = surprisal(arguments, "dogs zibs bark\n", monkeypatch, capsys)
    known, _, _ = surprisal(arguments, "dogs UNK-LC-s bark\n", monkeypatch, capsys)
    assert [row["model_surprisal_bits"] for row in unknown] == [row["model_surprisal_bits"] for row in known]
    # Every token is a word: borders are certain, so that it does not matter to which word they count.
    other, _, _ = surprisal([*arguments, "--border", "previous"], "dogs zibs bark\n", monkeypatch, capsys)
    np.testing.assert_allclose(*([float(row["model_surprisal_bits"]) for row in rows] for rows in (other, unknown)),
                               rtol=1e-12)


def test_a_sentence_longer_than_the_model_reads_is_said_to_be(grammar_folder, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "model"
    tiny_gpt2(folder, ["dogs", "Ġbark"], n_positions=5)
    rows, _, _ = surprisal(["--grammar", grammar_folder, "--model", str(folder)],
                           "dogs dogs dogs bark\n\ndogs bark\n", monkeypatch, capsys)
    assert [row["model_surprisal_bits"] for row in rows[:5]] == ["nan"] * 5
    assert "more pieces (8) than the model's 5" in rows[0]["note"]
    assert all(math.isfinite(float(row["model_surprisal_bits"])) for row in rows[5:])


def test_a_model_that_is_not_causal_is_refused(grammar_folder, tmp_path, capsys):
    from transformers import RobertaConfig, RobertaForMaskedLM

    folder = tmp_path / "model"
    tiny_gpt2(folder, ["dogs"])
    (folder / "model.safetensors").unlink()
    RobertaForMaskedLM(RobertaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                     intermediate_size=8, initializer_range=0.5)).save_pretrained(folder)
    assert main(["surprisal", "--grammar", grammar_folder, "--model", str(folder)]) == 2
    assert "is not causal" in capsys.readouterr().err


def change_weights(folder, change):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), folder / "model.safetensors", metadata={"format": "pt"})


def pickled(folder):
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(("damage", "message"), [
    (lambda folder: (folder / "model.safetensors").write_bytes(b"no weights"), "cannot be loaded as a causal model"),
    (lambda folder: change_weights(folder, lambda w: {f"x.{name}": w[name] for name in w}),
     "weights of the GPT2LMHeadModel .* are not in its safetensors"),
    (lambda folder: change_weights(folder, lambda w: {name: w[name] * math.nan for name in w}),
     "a prediction of the model is nan"),
    (lambda folder: change_weights(folder, lambda w: w | {
        f"transformer.h.2.{part}": w[f"transformer.h.1.{part}"].clone() for part in ("ln_1.weight", "ln_1.bias")}),
     "more layers than"),
    (pickled, "the weights as safetensors"),
    (lambda folder: (folder / "config.json").write_text("[]"), "describes no model that transformers knows"),
    (lambda folder: (folder / "tokenizer.json").write_text("[]"), "its tokenizer is damaged"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "holds no tokenizer"),
    (lambda folder: tiny_gpt2(folder / "more", ["dogs", "cats", "bark"]).save_pretrained(folder),
     "tokens, the model has embeddings for"),
])
def test_a_damaged_model_folder_is_refused(damage, message, grammar_folder, tmp_path, capsys):
    folder = tmp_path / "model"
    tiny_gpt2(folder, ["dogs"])
    damage(folder)
    assert main(["surprisal", "--grammar", grammar_folder, "--model", str(folder)]) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert [line.startswith("error: ") for line in said.splitlines()].count(True) == 1


def test_with_borders_at_their_end_words_sum_to_1(tmp_path):
    """All words of at most two pieces, and what is left to longer ones, after a word and a border."""
    from pcfg_artifact.tools.causal import CausalModel

    folder = tmp_path / "model"
    tokenizer = tiny_gpt2(folder, ["a", "b", "Ġa", "Ġb"])
    model = CausalModel(folder, border="previous")
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    inside = [n for n, token in enumerate(tokens) if token in ("a", "b")]
    begins = np.flatnonzero(model.begins_word)
    assert sorted(np.array(tokens)[begins]) == ["<end>", "Ġ", "Ġa", "Ġb"]
    end, first = model.end, tokenizer.convert_tokens_to_ids("a")
    last = {}  # ids -> log probabilities of the next token

    def after(*ids):
        if ids not in last:
            last[ids] = model._log_probs([end, first, *ids, end])[1 + len(ids)]
        return last[ids]

    border = np.logaddexp.reduce(after()[begins])
    total = np.exp(after()[end] - border)  # the sentence ends
    for one in (n for n in begins if n != end):
        total += np.exp(after()[one] + np.logaddexp.reduce(after(one)[begins]) - border)
        for two in inside:  # the rest of the mass: this word goes on, perhaps with a border at once
            total += np.exp(after()[one] + after(one)[two] - border)
    assert total == pytest.approx(1.0, abs=1e-6)
    # One of these words by the tool's own sum.
    scored = model.scores(["a", "b"], ["a", "b"])[1]
    piece = tokenizer.convert_tokens_to_ids("Ġb")
    expected = after()[piece] - border + np.logaddexp.reduce(after(piece)[begins])
    assert scored.surprisal == pytest.approx(-expected / math.log(2), rel=1e-6)
