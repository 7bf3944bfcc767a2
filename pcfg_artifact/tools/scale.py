"""Put the base models of several runs side by side: how what they hold of the tree grows with their size.

Each run is one size, e.g. `run_all.sh --profile laptop --set pretrain.width=96 --out runs/width-96`; a run that was
stopped goes on where it stopped, and what is finished of it is shown.  Written are points.csv (every kept checkpoint),
models.csv (finished models), scale.png and summary.txt, which says what a straight line through the finished models
gives for the paper's size.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import linregress, t

from pcfg_artifact import results
from pcfg_artifact.errors import UsageError
from pcfg_artifact.judge.drawing import MARKERS, SERIES, Drawing, colour, finish, new_figure, styled
from pcfg_artifact.metrics.models import shape_of
from pcfg_artifact.metrics.schema import Metric
from pcfg_artifact.metrics.selection import ALL, BEST, LAST, Numbers
from pcfg_artifact.metrics.views import measured
from pcfg_artifact.mlm.encoders import load_config
from pcfg_artifact.mlm.model import count_parameters
from pcfg_artifact.run.inputs import model_folders
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.system import storage

EXAMPLE = "run_all.sh scale runs/width-64 runs/width-96 runs/width-128 --out scale"
CONFIDENCE = 0.95  # of the interval in which one further model would lie
PAPER_PARAMETERS = 85_054_464  # in the 12 layers of width 768 of the paper's base model
TREES = {"table": "parsing", "setting": "treebank", "input": "EOS", "convention": "PB", "metric": "sentence_f1"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="output folders of runs, one a size")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where figure and tables go")


def run(args: argparse.Namespace) -> int:
    studies = [read_study(path) for path in args.runs]
    points = pd.concat([checkpoints(study) for study in studies], ignore_index=True)
    finished = pd.concat([finished_models(study) for study in studies], ignore_index=True)
    if not len(points) or not len(finished):
        raise UsageError("none of these runs has finished the stages probe and dynamics of its base model; run them to "
                         "the end")
    drawing = scale_figure(points, finished)
    said = "\n".join([finished.to_string(index=False, float_format="{:.3f}".format), "", *extrapolations(finished)])
    storage.write_text(args.out / "points.csv", points.to_csv(index=False))
    storage.write_text(args.out / "models.csv", finished.to_csv(index=False))
    storage.write_text(args.out / "summary.txt", said + "\n")
    storage.write_bytes(args.out / "scale.png", drawing.png)
    print(said)
    print(f"written to {args.out}: points.csv, models.csv, scale.png, summary.txt")
    return 0


def read_study(path: Path) -> Study:
    """The finished stages of a run."""
    manifests = results.finished(path)
    numbers = Numbers([metric for stage in manifests for metric in Folder(path / stage).metrics()])
    if numbers.roles.base is None:
        raise UsageError(f"{path} has no masked model whose training is finished; run it up to the stage dynamics")
    config = load_config(model_folders(Folder(path / "pretrain"))[numbers.roles.base])
    return Study(path.name, numbers, config.hidden_size, count_parameters(config)[0])


# ---- the study -------------------------------------------------------------------------------------------------------


class Study(NamedTuple):
    """One run: its numbers, and the size of its base model."""

    name: str
    numbers: Numbers
    width: int
    parameters: int  # of the layers: what costs time per token

    @property
    def base(self) -> str:
        assert self.numbers.roles.base is not None
        return self.numbers.roles.base

    @property
    def layers(self) -> int:
        shape = shape_of(self.base)
        assert shape is not None
        return shape.layers


@dataclass(frozen=True)
class Line:
    """y = intercept + slope x through n points, with what it takes to say how far off a further point may be."""

    slope: float
    intercept: float
    slope_error: float
    residual: float  # standard deviation about the line
    mean: float  # of x
    spread: float  # sum of squares of x about it
    n: int

    @classmethod
    def through(cls, x: Sequence[float], y: Sequence[float]) -> Line | None:
        """None of fewer than three points, which have no error, or of one size."""
        if len(x) < 3 or len(set(x)) < 2:
            return None
        found, at = linregress(x, y), np.asarray(x, float)
        off = np.asarray(y, float) - found.intercept - found.slope * at
        return cls(float(found.slope), float(found.intercept), float(found.stderr),
                   float(np.sqrt((off**2).sum() / (len(at) - 2))), float(at.mean()),
                   float(((at - at.mean())**2).sum()), len(at))

    def at(self, x: float) -> tuple[float, float]:
        """(y, half the width of the interval in which a further model of this size would lie)."""
        error = self.residual * np.sqrt(1 + 1 / self.n + (x - self.mean)**2 / self.spread)
        return self.intercept + self.slope * x, float(t.ppf((1 + CONFIDENCE) / 2, self.n - 2) * error)


def checkpoints(study: Study) -> pd.DataFrame:
    """A row for every kept step of the base model: its loss above the optimum, its tree, and marginals by width."""
    base = {"table": "dynamics", "model": "base", "step": ALL}
    chosen = [*measured(study.numbers, {**base, "metric": "excess"}),
              *measured(study.numbers, {**base, **TREES, "table": "dynamics", "probe": "linear"}),
              *measured(study.numbers, {**base, "probe": "linear", "setting": "treebank", "width": ALL,
                                        "metric": "pearson"})]
    return _rows(study, chosen, "step")


def finished_models(study: Study) -> pd.DataFrame:
    """A row for every probe of the finished base model: share of the way, best layer's tree, last layer's marginals,
    and the attended distance of the first and the last layer."""
    shares = measured(study.numbers, {"table": "layers_used", "model": "base", "input": "mask 0.15",
                                      "metric": "share_of_way"})
    trees = measured(study.numbers, {**TREES, "model": "base", "layer": BEST, "probe": ALL})
    marginals = measured(study.numbers, {"table": "marginals", "model": "base", "layer": LAST, "probe": ALL,
                                         "setting": "treebank", "width": ALL, "metric": "pearson"})
    heads = measured(study.numbers, {"table": "attention", "model": "base", "layer": ALL, "setting": "treebank",
                                     "index": ALL, "metric": "attended_distance"})
    rows = _rows(study, [*trees, *marginals], "probe")
    for metric in shares:
        rows["share_of_way"] = metric.value
    for name, layer in (("first", 1), ("last", study.layers)):
        if values := [metric.value for metric in heads if metric.layer == layer]:
            rows[f"attended_distance_{name}_layer"] = float(np.mean(values))
    return rows


def _rows(study: Study, metrics: Sequence[Metric], by: str) -> pd.DataFrame:
    """One row for each value of a dimension, one column for each measure."""
    found: dict[Any, dict[str, Any]] = {}
    for metric in metrics:
        row = found.setdefault(getattr(metric, by), {
            "run": study.name, "model": study.base, "width": study.width, "parameters": study.parameters,
            by: getattr(metric, by)})
        row[metric.metric if metric.width is None else f"{metric.metric}_{metric.width}"] = metric.value
    return pd.DataFrame([found[key] for key in sorted(found)])


def extrapolations(finished: pd.DataFrame) -> list[str]:
    """What the lines say of the paper's size, in sentences; none where there are too few models."""
    said = []
    for probe, rows in finished.groupby("probe") if len(finished) else []:
        for column in ("share_of_way", "sentence_f1", "pearson_2", "pearson_5", "pearson_10"):
            known = rows.reindex(columns=["parameters", column]).dropna()
            line = Line.through(np.log10(known["parameters"]).tolist(), known[column].tolist())
            if line is not None:
                value, half = line.at(np.log10(PAPER_PARAMETERS))
                said.append(f"{column}, {probe} probe: {line.slope:+.3g} ± {line.slope_error:.2g} for ten times the "
                            f"parameters ({line.n} models); the paper's size would give {value:.3g} ± {half:.2g} if "
                            f"the line went on. Nobody has run it.")
    return said


@styled
def scale_figure(points: pd.DataFrame, finished: pd.DataFrame) -> Drawing:
    """F1 against the distance from the optimum at every checkpoint, and F1 of finished models against their size."""
    figure, [axes] = new_figure(7.4, 3.2, 1, 2, sharey=True)
    for k, (model, rows) in enumerate(points.groupby(["run", "model", "width"])):
        axes[0].plot(rows["excess"], rows["sentence_f1"], color=colour(SERIES[k % len(SERIES)]), linewidth=0.8,
                     marker=MARKERS[k // len(SERIES) % len(MARKERS)], label=f"{model[1]}, width {model[2]}")
    axes[0].set(xlabel="loss above the optimum (nats)", ylabel="sentence F1, linear probe")
    axes[0].invert_xaxis()
    axes[0].legend()
    best = finished[finished["probe"] == "linear"]
    axes[1].plot(best["parameters"], best["sentence_f1"], "o", color=colour("c1"))
    line = Line.through(np.log10(best["parameters"]).tolist(), best["sentence_f1"].tolist())
    if line is not None:
        sizes = np.geomspace(best["parameters"].min(), PAPER_PARAMETERS, 50)
        middle, half = np.array([line.at(float(x)) for x in np.log10(sizes)]).T
        axes[1].plot(sizes, middle, color=colour("muted"), linestyle="--")
        axes[1].fill_between(sizes, middle - half, middle + half, color=colour("muted"), alpha=0.15, linewidth=0)
    axes[1].set(xscale="log", xlabel="parameters of the layers")
    return finish(figure, "scale", "Parsing by size and by distance from the optimum",
                  "Left: every kept checkpoint of every size, a probe of the finished model's best layer on few "
                  "sentences. Right: finished models, the best layer; the band is where a further model would lie with "
                  "95% if the line went on to the paper's size, which nobody has run.")
