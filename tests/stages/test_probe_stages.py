"""The probing stages on a small world: complete tables, no test sentence in training, resume, and the tool."""

import re
from pathlib import Path

import numpy as np
import pytest
from small_treebank import write_treebank

from pcfg_artifact import cli
from pcfg_artifact.errors import ConfigError
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.mlm.model import build_config, build_model, parse_shape
from pcfg_artifact.mlm.tokenizer import build_tokenizer
from pcfg_artifact.parsing.charts import cell_bounds
from pcfg_artifact.parsing.decoding import labelled_recall
from pcfg_artifact.parsing.engine import inside_outside
from pcfg_artifact.probing.control_tasks import sensitivity_metrics
from pcfg_artifact.probing.probes import PROBES as REGISTRY
from pcfg_artifact.probing.probes import check_names
from pcfg_artifact.run import config, pipeline, stage_folder
from pcfg_artifact.run.corpora import read_corpora
from pcfg_artifact.run.example_sentence import example_trees
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.stage_folder import StageDir
from pcfg_artifact.stages import attention, control, probe
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.storage import read_sealed_json

MODELS = ("A2L1", "A2L2")
PROBES = ("linear", "2-layer")
SETTINGS = ("sampled", "treebank", "ood")
WIDTHS = (2, 3)
SMALL = ["sample.n_pretraining=10", "sample.n_validation=10", "sample.n_probe_train=120", "sample.n_probe_test=60",
         "sample.max_length=14", "probe.n_train=100", "probe.n_test=50", "probe.max_length=14", "probe.widths=[2, 3]",
         "probe.epochs=4", "probe.milestones=[2]", "probe.batch_size=256", "probe.n_seeds=2",
         "probe.nary=base", "probe.linear_iterations=30",
         "probe.n_scatter=20", "probe.windows=[1, 2]", "attention.n_sentences=20", "attention.max_length=14",
         "attention.by_layer=true"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A treebank drawn from a written grammar, its grammar and sample stages, exact span scores, untrained models."""
    root = tmp_path_factory.mktemp("world")
    profile = config.load_profile("smoke", SMALL, write_treebank(root, 600))
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
        shape = build_config(parse_shape(name), n_words=grammar.n_words, width=16, max_length=20, dropout=0.0,
                             initial_scale=0.2)
        for seed, part in enumerate(("models", "untrained")):
            build_model(shape, seed).save_pretrained(out / "pretrain" / part / name)
            build_tokenizer(grammar.words, 20).save_pretrained(out / "pretrain" / part / name)
    return profile, inputs, out


def run_stage(stage, name, world):
    profile, inputs, root = world
    folder = stage_folder.begin(root / name, "test")
    stage.run(profile.stage(name), inputs, folder, Machine("cpu", 2))
    return folder


@pytest.fixture(scope="module")
def probed(world):
    return run_stage(probe, "probe", world)


def dimensions(folder, table, *names):
    """The combinations of these dimensions that a table has."""
    return {tuple(getattr(metric, name) for name in names) for metric in folder.metrics() if metric.table == table}


def test_no_test_sentence_is_in_a_training_set_of_its_probe(world):
    profile, inputs, _ = world
    cfg = profile.probe
    corpora, left_out = read_corpora(inputs, cfg.max_length, cfg.n_train, cfg.n_test)
    training = {tuple(words) for name in ("sampled train", "treebank train") for words in corpora[name].sentences}
    for name in ("sampled test", "treebank test"):
        assert not training & {tuple(words) for words in corpora[name].sentences}
        n_seen = left_out[name]["seen_in_training"]
        assert n_seen > 0  # this grammar repeats short sentences
        assert n_seen + len(corpora[name]) <= cfg.n_test
        assert max(corpora[name].lengths) <= cfg.max_length


def test_sentences_that_are_too_long_are_left_out_and_counted(world):
    _, inputs, _ = world
    _, left_out = read_corpora(inputs, 6, 10, 10_000)
    for name, split in (("sampled test", "probe_test"), ("treebank test", "test")):
        trees = inputs.sampled_trees(split) if split.startswith("probe") else inputs.trees(split)
        assert left_out[name]["too_long"] == sum(len(tree.words()) > 6 for tree in trees) > 0


def test_every_score_of_every_layer_is_there(probed):
    last = {"A2L1": 1, "A2L2": 2, "A2L2-random": 2}
    fits = {(model, layer, probe, setting) for model in last for layer in range(last[model] + 1)
            for probe in PROBES for setting in SETTINGS}
    f1 = {("PB", "sentence_f1"), ("PB", "corpus_f1"), ("KIM", "sentence_f1"), ("KIM", "corpus_f1")}
    found = dimensions(probed, "parsing", "model", "layer", "probe", "setting", "input", "group", "bin", "convention",
                       "metric")
    trees = {(*fit, "EOS", "", "", *score) for fit in fits for score in ({("", "accuracy")} | f1)}
    adjacent = {(*fit, "ADJ", *rest) for fit, (_, *rest) in ((row[:4], row[4:]) for row in trees) if fit[0] == "A2L2"}
    nary = {(*fit, "EOS", "n-ary", "", "", "accuracy") for fit in fits if fit[0] == "A2L2"} | {
        (*fit, "EOS", "n-ary", decoded, "KIM", metric) for fit in fits if fit[0] == "A2L2"
        for decoded in ("", "decoded as binary") for metric in ("sentence_f1", "corpus_f1")}
    windows = {(*fit, "ADJ 2", *rest) for fit, (_, *rest) in ((row[:4], row[4:]) for row in adjacent) if fit[1] == 0}
    assert {row for row in found if row[1] is not None} == trees | adjacent | nary | windows
    assert dimensions(probed, "marginals", "model", "layer", "probe", "setting", "input", "width", "metric") == {
        *((*fit, "", width, metric) for fit in fits if fit[1] in (0, last[fit[0]]) for width in WIDTHS
          for metric in ("pearson", "spearman")),
        *((*fit, window, width, metric) for fit in fits if fit[:2] == ("A2L2", 0) for width in WIDTHS
          for window in ("ADJ", "ADJ 2") for metric in ("pearson", "spearman")),
        *(("", None, "", "treebank", "", width, "share_near_zero") for width in WIDTHS)}
    assert all(np.isfinite(m.value) for m in probed.metrics())
    assert {m.table for m in probed.metrics()} == {"parsing", "marginals", "probing_corpora"}


def test_f1_by_width_is_that_of_the_best_layer(probed):
    numbers = Numbers(probed.metrics())
    for model, name, setting in {(m.model, m.probe, m.setting) for m in numbers.metrics if m.group == "best layer"}:
        best, = numbers.select({"table": "parsing", "model": model, "layer": "best", "probe": name, "setting": setting,
                                "input": "EOS", "convention": "PB", "metric": "sentence_f1"})
        files = sorted(probed.path(f"fits/{model}").glob(f"L{best.layer}-{name}-*-EOS.json"))
        kept = [score for file in files for score in read_sealed_json(file)["scores"] if score["setting"] == setting
                and score["metric"] == "f1" and score["seed"] == 0]
        shown = [m for m in probed.metrics() if (m.model, m.probe, m.setting, m.group, m.seed)
                 == (model, name, setting, "best layer", 0)]
        assert {m.width: m.value for m in shown} == {score["width"]: score["value"] for score in kept
                                                     if score["width"] <= 10}
        assert shown


def test_scores_of_the_exact_parser_bound_the_trivial_ones(probed):
    for setting in SETTINGS:
        exact, *others = Numbers(probed.metrics()).select(
            {"table": "parsing", "model": ["IO", "right", "left", "balanced", "random"], "setting": setting,
             "convention": "PB", "metric": "sentence_f1"})
        assert exact.value > max(other.value for other in others)


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
    assert probed.json("example")["words"] == example_trees(inputs)[0].words()


def test_a_resumed_stage_refits_only_what_is_missing_and_ends_with_the_same_numbers(world, probed):
    before = probed.path("metrics.csv").read_bytes()
    fits = sorted(probed.path("fits").rglob("*.json"))
    # Of A2L1, A2L2 and A2L2-random; wider windows at layer 0 of A2L2.
    n_tree_tasks, n_span_tasks = 2 + 3 * 3 + 3 + 1, (3 * 2 + 2) * len(WIDTHS)
    assert len(fits) == 2 * len(PROBES) * (n_tree_tasks + n_span_tasks)  # 2: sampled text and the treebank
    removed = probed.path("fits/A2L2/L1-2-layer-treebank-train-EOS-n-ary.json")
    removed.unlink()
    stamps = {path: path.stat().st_mtime_ns for path in fits if path != removed}
    run_stage(probe, "probe", world)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert removed.is_file()
    assert probed.path("metrics.csv").read_bytes() == before
    assert not list(probed.root.glob("scratch/A*"))  # hidden states


def test_control_tasks_have_every_layer_and_selectivity_is_the_difference(world, probed):
    folder = run_stage(control, "control", world)
    assert {m.table for m in folder.metrics()} == {"control", "sensitivity"}
    groups = ("control", "selectivity")
    assert dimensions(folder, "control", "model", "layer", "probe", "input", "width", "group", "metric") == {
        *(("A2L2", layer, probe, "EOS", None, group, "accuracy")
          for layer in range(3) for probe in PROBES for group in groups),
        *(("A2L2", layer, probe, "", width, group, "pearson")
          for layer in (0, 2) for probe in PROBES for width in WIDTHS for group in groups)}
    assert dimensions(folder, "sensitivity", "probe", "group", "width", "metric") == {
        (probe, *case, metric) for probe in PROBES for metric in ("sensitivity", "selectivity")
        for case in (("trees", None), *(("marginals", width) for width in WIDTHS))}
    value = {(m.key, m.seed): m.value for m in (*folder.metrics(), *probed.metrics())}
    for m in folder.metrics():
        if (m.table, m.group) == ("control", "selectivity"):
            task = m.at(table="parsing" if m.width is None else "marginals", group=m.bin, bin="")
            expected = value[task.key, m.seed] - value[m.at(group="control", bin="").key, m.seed]
            assert m.value == pytest.approx(expected)
    # Layer 0 knows the word, so the linear probe learns its random label almost by heart.
    by_heart, = Numbers(folder.metrics()).select({"table": "control", "model": "A2L2", "layer": 0, "probe": "linear",
                                                  "setting": "treebank", "input": "EOS", "group": "control",
                                                  "metric": "accuracy"})
    assert by_heart.value > 0.9


def test_sensitivity_is_the_gain_over_the_embeddings_by_hand():
    def score(layer, value, seed=0, **dimensions):
        return Metric(model="A2L2", layer=layer, probe="my probe", setting="treebank", seed=seed, value=value,
                      **{"table": "parsing", "n": 9, "unit": "fraction", **dimensions})

    trees = {"input": "EOS", "convention": "PB", "metric": "sentence_f1", "unit": "percent"}
    marginals = {"table": "marginals", "width": 3, "metric": "pearson"}
    accuracy = {"table": "control", "input": "EOS", "group": "selectivity", "metric": "accuracy"}
    pearson = {**marginals, "table": "control", "group": "selectivity"}
    numbers = Numbers([
        score(0, 10, **trees), score(1, 40, **trees), score(1, 50, seed=1, **trees), score(2, 30, **trees),
        score(0, 0.2, **marginals), score(1, 0.9, **marginals), score(2, 0.7, **marginals, n=8),
        score(0, 0.1, **accuracy), score(1, 0.3, **accuracy), score(0, 0.4, **pearson), score(2, -0.1, **pearson)])
    found = {(m.metric, m.group, m.width): m for m in sensitivity_metrics(numbers, "A2L2", "my probe", "treebank")}
    assert {key: pytest.approx(m.value) for key, m in found.items()} == {
        ("sensitivity", "trees", None): 35, ("sensitivity", "marginals", 3): 0.5,
        ("selectivity", "trees", None): 0.3, ("selectivity", "marginals", 3): -0.1}
    assert found["sensitivity", "trees", None].unit == "percent"
    assert found["sensitivity", "marginals", 3].n == 8


def test_attended_distances_are_sorted_and_cover_every_head(world):
    folder = run_stage(attention, "attention", world)
    assert dimensions(folder, "attention", "model", "layer", "setting", "index", "metric") == {
        (f"A2L{n}", layer, setting, *rest)
        for n in (1, 2) for setting in ("sampled", "treebank") for layer in range(1, n + 1)
        for rest in ((1, "attended_distance"), (2, "attended_distance"), (None, "entropy"), (None, "distance_ratio"))}
    found = {m.key: m.value for m in folder.metrics()}
    distances = [m for m in folder.metrics() if m.metric == "attended_distance"]
    assert all(found[m.at(index=1).key] <= m.value for m in distances)


def test_a_new_probe_is_one_class_and_one_entry_and_has_every_number(world, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # where worker processes find it too
    from neighbour_probe import NeighbourProbe

    monkeypatch.setitem(REGISTRY, NeighbourProbe.name, NeighbourProbe)
    _, _, root = world
    profile = config.load_profile("smoke", [*SMALL, f"probe.probes=[linear, {NeighbourProbe.name}]",
                                            "probe.random_weights=false", "probe.nary=none", "probe.adjacent=none"],
                                  "embedded")
    inputs = Inputs({name: (tmp_path if name == "probe" else root) / name
                     for name in ("grammar", "sample", "marginals", "pretrain", "probe")}, "")
    metrics = []
    for stage, name in ((probe, "probe"), (control, "control")):
        folder = stage_folder.begin(tmp_path / name, "test")
        stage.run(profile.stage(name), inputs, folder, Machine("cpu", 2))
        metrics += folder.metrics()
    old, new = ({m.at(probe="").key for m in metrics if m.probe == name and m.metric != "f1"}
                for name in ("linear", NeighbourProbe.name))
    assert old == new
    assert {key[0] for key in new} == {"parsing", "marginals", "control", "sensitivity"}
    # F1 by width is there for the widths that either tree has.
    assert {m.setting for m in metrics if m.probe == NeighbourProbe.name and m.metric == "f1"} == set(SETTINGS)


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
    rows = stage_folder.read_csv(tmp_path / "table.csv")
    assert {(row["model"], row["layer"]) for row in rows if row["metric"] == "sentence_f1"} == {
        ("A2L2", "0"), ("A2L2", "1"), ("A2L2", "2")}
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_the_tool_refuses_a_folder_that_is_no_model(tmp_path, capsys):
    assert cli.main(["probe", "--model", str(tmp_path), "--treebank", "embedded"]) == 2
    assert "has no config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert cli.main(["probe", "--model", str(tmp_path), "--treebank", "embedded"]) == 2
    assert "describes no model that transformers" in capsys.readouterr().err
