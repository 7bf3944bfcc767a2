"""The probing stages on a small world: complete tables, no test sentence in training, resume, and the tool."""

import re
from pathlib import Path

import numpy as np
import pytest

from pcfg_artifact import artifacts, cli, config, pipeline
from pcfg_artifact.artifacts import StageDir
from pcfg_artifact.cells import Cell
from pcfg_artifact.corpora import read_corpora
from pcfg_artifact.errors import ConfigError
from pcfg_artifact.example_sentence import example_tree
from pcfg_artifact.grammar import PCFG, sample_trees
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.mlm.model import Shape, build_config, build_model
from pcfg_artifact.mlm.tokenizer import build_tokenizer
from pcfg_artifact.owners import tables_of
from pcfg_artifact.parsing import inside_outside, labelled_recall
from pcfg_artifact.parsing.charts import cell_bounds
from pcfg_artifact.probing.probes import PROBES as REGISTRY
from pcfg_artifact.probing.probes import check_names
from pcfg_artifact.ragged import Ragged
from pcfg_artifact.roles import find_roles, roles_of
from pcfg_artifact.stages import attention, control, probe
from pcfg_artifact.verification.derived import derive
from pcfg_artifact.verification.measured import collect
from pcfg_artifact.verification.tables import lay_out

MODELS = ("A2L1", "A2L2")
PROBES = ("linear", "2-layer")
SETTINGS = ("PCFG", "PTB", "OOD")
WIDTHS = ("l=2", "l=3")
SMALL = ["sample.n_pretraining=10", "sample.n_validation=10", "sample.n_probe_train=120", "sample.n_probe_test=60",
         "sample.max_length=14", "probe.n_train=100", "probe.n_test=50", "probe.max_length=14", "probe.widths=[2, 3]",
         "probe.epochs=4", "probe.milestones=[2]", "probe.batch_size=256", "probe.n_seeds=2",
         "probe.nary=base", "probe.linear_iterations=30",
         "probe.n_scatter=20", "attention.n_sentences=20", "attention.max_length=14"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A treebank drawn from a written grammar, its grammar and sample stages, exact span scores, untrained models."""
    root = tmp_path_factory.mktemp("world")
    source = PCFG.from_rules(
        root={"S": 1.0},
        binary=[("S", "NP", "VP", 1.0), ("VP", "VBD", "NP", 0.6), ("VP", "VP", "PP", 0.4), ("PP", "IN", "NP", 1.0),
                ("NP", "DT", "NN", 0.7), ("NP", "NP", "PP", 0.3)],
        lexical=[("VBD", "saw", 0.5), ("VBD", "ate", 0.5), ("IN", "with", 0.5), ("IN", "in", 0.5), ("DT", "the", 0.6),
                 ("DT", "a", 0.4), ("NN", "dog", 0.4), ("NN", "cat", 0.3), ("NN", "park", 0.3)])
    (root / "treebank.trees").write_text("".join(f"{tree}\n" for tree in sample_trees(source, 600, 1, max_length=20)))
    profile = config.load_profile("smoke", SMALL, str(root / "treebank.trees"))
    out = root / "run"
    pipeline.run(profile, out, pipeline.select(last="sample"))
    inputs = Inputs({name: out / name for name in ("grammar", "sample", "marginals", "pretrain", "probe")}, "")
    grammar = inputs.pcfg()
    marginals = StageDir(out / "marginals")
    for split in ("probe_train", "probe_test", "train", "test"):
        trees = inputs.sampled_trees(split) if split.startswith("probe") else inputs.trees(split)[:130]
        charts = inside_outside(grammar, [tree.words() for tree in trees])
        # Every seventh sentence has no scores, as one without probability would.
        scores = [c.span_scores()[cell_bounds(c.length)] if s % 7 else np.zeros(0) for s, c in enumerate(charts)]
        marginals.write_ragged(f"{split}/span_scores", Ragged.from_rows(scores, np.float32))
        spans = [np.array(labelled_recall(chart)).reshape(-1) for chart in charts]
        marginals.write_ragged(f"{split}/spans", Ragged.from_rows(spans, np.int16))
    for name in MODELS:
        shape = build_config(Shape.parse(name), n_words=grammar.n_words, width=16, max_length=20, dropout=0.0,
                             initial_scale=0.2)
        for seed, part in enumerate(("models", "untrained")):
            build_model(shape, seed).save_pretrained(out / "pretrain" / part / name)
            build_tokenizer(grammar.words, 20).save_pretrained(out / "pretrain" / part / name)
    return profile, inputs, out


def run_stage(stage, name, world):
    profile, inputs, root = world
    folder = artifacts.begin(root / name, "test")
    stage.run(profile.stage(name), inputs, folder, Machine("cpu", 2))
    return folder


@pytest.fixture(scope="module")
def probed(world):
    return run_stage(probe, "probe", world)


def cells(folder, table):
    found = {}
    for metric in folder.metrics():
        if metric.table == table:
            found.setdefault(metric.row, set()).add(metric.column)
    return found


def test_no_test_sentence_is_in_a_training_set_of_its_probe(world):
    profile, inputs, _ = world
    cfg = profile.probe
    corpora, left_out = read_corpora(inputs, cfg.max_length, cfg.n_train, cfg.n_test)
    training = {tuple(words) for name in ("PCFG train", "PTB train") for words in corpora[name].sentences}
    for name in ("PCFG test", "PTB test"):
        assert not training & {tuple(words) for words in corpora[name].sentences}
        n_seen = left_out[name]["seen in training"]
        assert n_seen > 0  # this grammar repeats short sentences
        assert n_seen + len(corpora[name]) <= cfg.n_test
        assert max(corpora[name].lengths) <= cfg.max_length


def test_sentences_that_are_too_long_are_left_out_and_counted(world):
    _, inputs, _ = world
    _, left_out = read_corpora(inputs, 6, 10, 10_000)
    for name, split in (("PCFG test", "probe_test"), ("PTB test", "test")):
        trees = inputs.sampled_trees(split) if split.startswith("probe") else inputs.trees(split)
        assert left_out[name]["too long"] == sum(len(tree.words()) > 6 for tree in trees) > 0


def test_every_cell_of_the_probe_tables_is_filled(probed):
    columns = {"IO", "right", "left", "balanced", "random", *MODELS, "A2L2-random"}
    rows = {f"{p} {s} {m}" for p in PROBES for s in SETTINGS for m in ("sentence_f1", "corpus_f1")}
    assert cells(probed, "table4") == dict.fromkeys(rows, columns)
    assert cells(probed, "table5") == {w: {f"{m} {p}" for m in MODELS for p in PROBES} for w in WIDTHS}
    assert cells(probed, "table7") == {"l=2": {f"{m} {c}" for m in MODELS for c in ("pearson", "spearman")}}
    layers = cells(probed, "figure_layers")
    for model, last in (("A2L1", 1), ("A2L2", 2), ("A2L2-random", 2)):
        for row in (f"{model} {p} {s} EOS {m}" for p in PROBES for s in SETTINGS for m in (
                "accuracy", "sentence_f1", "corpus_f1", "sentence_f1_KIM", "corpus_f1_KIM")):
            assert layers.pop(row) == {f"L{layer}" for layer in range(last + 1)}
    assert {re.sub(" [a-z]+_f1_KIM.*| [a-z_0-9]+$", "", row) for row in layers} == {
        f"A2L2 {p} {s} {task}" for p in PROBES for s in SETTINGS for task in ("ADJ", "EOS nary")}
    for row, widths in cells(probed, "figure_marginals").items():
        assert widths == set(WIDTHS), row
    assert len(cells(probed, "figure_marginals")) == 3 * 2 * len(PROBES) * len(SETTINGS) * 2
    assert all(np.isfinite(m.value) for m in probed.metrics())
    assert {m.table for m in probed.metrics()} == set(tables_of("probe"))


def test_scores_of_the_exact_parser_bound_the_trivial_ones(probed):
    found = {(m.row, m.column): m.value for m in probed.metrics() if m.table == "table4"}
    for setting in ("PCFG", "PTB"):
        row = f"linear {setting} sentence_f1"
        assert found[row, "IO"] > max(found[row, name] for name in ("right", "left", "balanced", "random"))


def test_files_for_the_figures_say_what_the_report_needs(probed):
    scatter, example = probed.json("scatter"), probed.json("example")
    assert (scatter["model"], scatter["layer"]) == ("A2L2", 2)
    assert set(scatter["lengths"]) == {"2", "3"}
    assert len(scatter["lengths"]["2"]["true"]) == len(scatter["lengths"]["2"]["predicted"]) == 20
    n = len(example["words"])
    assert 8 <= n <= 12
    assert [0, n] in example["spans"]
    assert len(example["spans"]) == len(example["gold"]) == 2 * n - 1
    explored = probed.json("explored")
    assert (explored["model"], explored["words"][0], len(explored["layers"])) == ("A2L2", example["words"], 3)
    assert explored["layers"][explored["best"]][0] == example["spans"]


def test_the_example_is_the_sentence_that_the_constructions_show(world, probed):
    _, inputs, _ = world
    assert probed.json("example")["words"] == example_tree(inputs).words()


def test_a_resumed_stage_refits_only_what_is_missing_and_ends_with_the_same_numbers(world, probed):
    before = probed.path("metrics.csv").read_bytes()
    fits = sorted(probed.path("fits").rglob("*.json"))
    n_tree_tasks, n_span_tasks = 2 + 3 * 3 + 3, 3 * 2 * len(WIDTHS)  # of A2L1, A2L2 and A2L2-random
    assert len(fits) == 2 * len(PROBES) * (n_tree_tasks + n_span_tasks)  # 2: sampled text and the treebank
    removed = probed.path("fits/A2L2/L1-2-layer-PTB-train-EOS-nary.json")
    removed.unlink()
    stamps = {path: path.stat().st_mtime_ns for path in fits if path != removed}
    run_stage(probe, "probe", world)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert removed.is_file()
    assert probed.path("metrics.csv").read_bytes() == before
    assert not list(probed.root.glob("scratch/A*"))  # hidden states


def test_control_tables_are_filled_and_selectivity_is_the_difference(world, probed):
    folder = run_stage(control, "control", world)
    assert {m.table for m in folder.metrics()} == set(tables_of("control"))
    rows = lambda task: {f"{p} {r}" for p in PROBES for r in (task, "control", "selectivity")}  # noqa: E731
    assert cells(folder, "table6") == {row: {"L0", "L1", "L2"} for row in rows("relative_depth")}
    assert cells(folder, "table8") == {row: set(WIDTHS) for row in rows("marginal")}
    found = {m.key: m.value for m in folder.metrics()}
    for (table, row, column, seed), value in found.items():
        if row.endswith("selectivity"):
            task = "relative_depth" if table == "table6" else "marginal"
            before, after = (found[table, row.replace("selectivity", r), column, seed] for r in (task, "control"))
            assert value == pytest.approx(before - after)
    # Layer 0 knows the word, so the linear probe learns its random label almost by heart.
    assert found["table6", "linear control", "L0", 0] > 0.9


def test_attention_rows_are_sorted_and_cover_every_head(world):
    folder = run_stage(attention, "attention", world)
    assert {m.table for m in folder.metrics()} == set(tables_of("attention"))
    assert cells(folder, "figure_attention") == {
        f"A2L{n} {setting} L{layer}": {"head 1", "head 2"}
        for n in (1, 2) for setting in ("PCFG", "PTB") for layer in range(1, n + 1)}
    found = {(m.row, m.column): m.value for m in folder.metrics()}
    assert all(found[row, "head 1"] <= found[row, "head 2"] for row, _ in found)


def test_a_new_probe_is_one_class_and_one_entry_and_its_rows_are_in_the_tables(world, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # where worker processes find it too
    from neighbour_probe import NeighbourProbe

    monkeypatch.setitem(REGISTRY, "neighbour", NeighbourProbe)
    _, _, root = world
    profile = config.load_profile("smoke", [*SMALL, "probe.probes=[linear, neighbour]", "probe.random_weights=false",
                                            "probe.nary=none", "probe.adjacent=none"], "embedded")
    new = Inputs({name: (tmp_path if name == "probe" else root) / name
                  for name in ("grammar", "sample", "marginals", "pretrain", "probe")}, "")
    metrics = []
    for stage, name in ((probe, "probe"), (control, "control")):
        folder = artifacts.begin(tmp_path / name, "test")
        stage.run(profile.stage(name), new, folder, Machine("cpu", 2))
        metrics += folder.metrics()
    measured = collect(metrics)
    measured |= derive(measured, roles_of(MODELS))
    shown = {table.name: table for table in lay_out(measured, {}, [], find_roles(measured))}
    for setting in SETTINGS:
        assert Cell("table4", f"neighbour {setting} sentence_f1", "A2L2") in measured
    assert "neighbour PTB sentence_f1" in shown["table4"].rows
    assert "A2L1 neighbour" in shown["table5"].columns
    assert "neighbour selectivity" in shown["table6"].rows
    assert "neighbour selectivity" in shown["table8"].rows
    assert "neighbour parsing" in shown["sensitivity"].rows
    assert "neighbour OOD: A2L1 L" in shown["table4"].note


def test_a_probe_that_nobody_registered_is_refused():
    with pytest.raises(ConfigError, match="names 'square', expected some of linear, 2-layer"):
        check_names(["linear", "square"])


def test_the_tool_prints_a_row_per_layer_and_writes_table_and_plot(world, tmp_path, capsys):
    _, _, root = world
    code = cli.main(["probe", "--model", str(root / "pretrain" / "models" / "A2L2"),
                     "--grammar", str(root / "grammar" / "vm"), "--treebank", str(root.parent / "treebank.trees"),
                     "--train", "100", "--test", "200",
                     "--csv", str(tmp_path / "table.csv"), "--plot", str(tmp_path / "plot.png")])
    printed = capsys.readouterr().out
    assert code == 0
    assert re.findall(r"^L(\d)", printed, re.MULTILINE) == ["0", "1", "2"]
    assert "best layer" in printed
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 4
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_the_tool_refuses_a_folder_that_is_no_model(tmp_path, capsys):
    assert cli.main(["probe", "--model", str(tmp_path), "--treebank", "embedded"]) == 2
    assert "has no config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert cli.main(["probe", "--model", str(tmp_path), "--treebank", "embedded"]) == 2
    assert "describes no model that transformers" in capsys.readouterr().err
