"""`scale`: every kept checkpoint a row, a line through the finished models, and what it says of the paper's size."""

import numpy as np
import pandas as pd
import pytest

from pcfg_artifact.cli import main
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.mlm.model import build_config, count_parameters, parse_shape
from pcfg_artifact.run.stage_folder import Manifest, StageDir
from pcfg_artifact.system import storage
from pcfg_artifact.tools.scale import PAPER_PARAMETERS, Line

TREES = {"probe": "linear", "setting": "treebank", "input": "EOS", "convention": "PB", "metric": "sentence_f1",
         "unit": "percent"}
STEPS = (0, 10, 100)


def f1(parameters: int) -> float:
    return 10 + 5 * np.log10(parameters)


def write_run(root, width: int, model: str = "A2L2"):
    config = build_config(parse_shape(model), n_words=9, width=width, max_length=10, dropout=0.0)
    parameters = count_parameters(config)[0]
    config.save_pretrained(root / "pretrain" / "models" / model)
    of = {"model": model, "n": 9}
    tables = {
        "pretrain": [Metric(table="perplexity", group="validation", metric="perplexity", value=9.0,
                            unit="perplexity", **of),
                     Metric(table="layers_used", input="mask 0.15", metric="share_of_way", value=width, unit="percent",
                            **of)],
        "probe": [Metric(table="parsing", layer=layer, value=f1(parameters) - 3 * (2 - layer), **of, **TREES)
                  for layer in range(3)]
        + [Metric(table="marginals", layer=2, probe="linear", setting="treebank", width=5, metric="pearson",
                  value=0.5, unit="fraction", **of)],
        "attention": [Metric(table="attention", layer=layer, setting="treebank", index=head, metric="attended_distance",
                             value=layer + head, unit="tokens", **of) for layer in (1, 2) for head in (1, 2)],
        "dynamics": [metric for step in STEPS for metric in (
            Metric(table="dynamics", step=step, metric="excess", value=1 / (1 + step), unit="nats", **of),
            Metric(table="dynamics", step=step, value=20 + step / 10, **of, **TREES))]}
    inputs: dict[str, str] = {}
    for stage, metrics in tables.items():
        folder = StageDir(root / stage)
        folder.write_metrics(metrics)
        manifest = Manifest(stage, "f", {}, dict(inputs), {"metrics.csv": storage.sha256(folder.path("metrics.csv"))})
        manifest.write(folder.root)
        inputs[stage] = manifest.output_hash
    return root


def test_the_line_and_its_interval_are_those_of_statsmodels_formula():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=12), rng.normal(size=12)
    line = Line.through(x.tolist(), y.tolist())
    design = np.stack([np.ones(12), x], axis=1)
    weights, residuals, *_ = np.linalg.lstsq(design, y, rcond=None)
    variance = residuals[0] / 10
    at = np.array([1.0, 3.0])
    error = np.sqrt(variance * (1 + at @ np.linalg.inv(design.T @ design) @ at))
    value, half = line.at(3.0)
    assert value == pytest.approx(at @ weights)
    assert half == pytest.approx(2.2281388519649385 * error)  # t of 10 degrees of freedom, 97.5%
    assert Line.through([1.0, 2.0], [1.0, 2.0]) is None
    assert Line.through([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


def test_runs_of_several_sizes_are_put_side_by_side(tmp_path, capsys):
    runs = [write_run(tmp_path / f"width-{width}", width) for width in (16, 32, 64, 128)]
    assert main(["scale", *map(str, runs), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    points, models = (pd.read_csv(tmp_path / "out" / name) for name in ("points.csv", "models.csv"))
    assert len(points) == 4 * len(STEPS)
    assert points.loc[points["run"] == "width-32", "excess"].tolist() == [1 / (1 + step) for step in STEPS]
    assert models["share_of_way"].tolist() == [16, 32, 64, 128]
    assert models["sentence_f1"].tolist() == pytest.approx([f1(n) for n in models["parameters"]])  # of the best layer
    assert models["attended_distance_first_layer"].tolist() == [2.5] * 4
    assert models["attended_distance_last_layer"].tolist() == [3.5] * 4
    assert (tmp_path / "out" / "scale.png").read_bytes().startswith(b"\x89PNG")
    assert "sentence_f1, linear probe: +5 ±" in said
    assert f"would give {f1(PAPER_PARAMETERS):.3g}" in said
    assert "Nobody has run it" in said


def test_a_run_without_dynamics_is_refused_if_no_other_has_them(tmp_path, capsys):
    root = write_run(tmp_path / "a", 16)
    (root / "dynamics" / "manifest.json").unlink()
    assert main(["scale", str(root), "--out", str(tmp_path / "out")]) == 2
    assert "run them to the end" in capsys.readouterr().err
