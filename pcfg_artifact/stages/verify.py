"""Stage `verify`: judge every number and every claim, draw tables and figures, write one report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcfg_artifact.judge import figures, figures_beyond_paper, report, summary, tables
from pcfg_artifact.judge.drawing import Drawing
from pcfg_artifact.judge.judge import judge
from pcfg_artifact.judge.paper import as_numbers
from pcfg_artifact.judge.report import Page
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.run.expected import load_claims, load_paper, load_record, read_run
from pcfg_artifact.run.inputs import Inputs
from pcfg_artifact.run.sections import VerifyConfig
from pcfg_artifact.run.stage_folder import Folder, Manifest, StageDir
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine

LEFT_OUT = "left out"  # the fact of a stage that had nothing to measure
WITHOUT_TREEBANK = ("Left out, since the run is of a given grammar and reads no treebank: treebank text (trees that "
                    "were drawn stand in its place), probes tested out of distribution, and the second variant of the "
                    "grammar.")


def run(cfg: VerifyConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    folders = {stage: inputs[stage] for stage in inputs.stages()}
    what, numbers, manifests = read_run(cfg.expected, folders)
    paper = [] if numbers.is_given else load_paper()  # numbers of English say nothing about another grammar
    record = load_record(cfg.expected)
    verdicts = judge(what, numbers, paper, record, load_claims())

    laid_out = tables.lay_out(numbers, paper, verdicts.of_numbers)
    for table in laid_out:
        out.write_text(f"tables/{table.id}.csv", tables.to_csv(table))
    printed = as_numbers(paper)
    first = figures.trees_at_a_glance(numbers, printed)
    drawings, undrawn = draw(numbers, folders)
    for drawing in (*drawings, *([] if first is None else [first])):
        storage.write_bytes(out.path(f"figures/{drawing.name}.png"), drawing.png)

    out.write_text("verdicts.csv", summary.to_csv(verdicts))
    out.write_text("numbers.csv", summary.numbers_csv(verdicts, numbers))
    out.write_text("summary.txt", summary.summarise(verdicts) + "\n")
    out.write_json("verdict", {"profile": what.profile, "passed": verdicts.agrees})
    recorded = "" if record is None else f"{len(record.seeds)} seeds ({'; '.join(record.notes)})"
    about = facts(inputs.source, cfg.seed, manifests, recorded, is_given=numbers.is_given)
    about["subtitle"] = report.subtitle(what.profile, about["source"], numbers.roles, cfg.seed,
                                        is_given=numbers.is_given)
    out.write_text("report.html", report.render(
        Page(about, verdicts, laid_out, drawings, undrawn, explored(folders), printed, first)))


def draw(numbers: Numbers, folders: Mapping[str, Folder]) -> tuple[list[Drawing], list[tuple[str, str]]]:
    """Every figure whose data are there, and the names of the others with the reason."""
    drawings: list[Drawing] = []
    undrawn: list[tuple[str, str]] = []
    for figure in (*figures.FIGURES, *figures_beyond_paper.BEYOND_THE_PAPER):
        if (drawing := figure(numbers)) is None:
            undrawn.append((figure.__name__.replace("_", " "), "no stage measured its numbers"))
        else:
            drawings.append(drawing)
    for figure, stage, name in ((figures.scatter, "probe", "scatter"), (figures.filling, "construct", "example")):
        if (stored := _stored(folders, stage, name)) is None:
            undrawn.append((figure.__name__, f"the stage {stage} wrote none"))
        else:
            drawings.append(figure(stored))
    return drawings, undrawn


def explored(folders: Mapping[str, Folder]) -> list[dict[str, Any]]:
    """The sentences to look into, empty where the stage construct kept none."""
    stages = ("construct", "probe", "attention")
    constructed, probed, attended = (_stored(folders, stage, "explored") for stage in stages)
    return [] if constructed is None else report.explored_sentences(constructed, probed, attended)


def _stored(folders: Mapping[str, Folder], stage: str, name: str) -> Any:
    return folders[stage].json(name) if stage in folders and folders[stage].has(f"{name}.json") else None


def facts(source: str, seed: int, manifests: Mapping[str, Manifest], recorded: str, *, is_given: bool
          ) -> dict[str, Any]:
    """What the report says of the run: time, memory, versions and hashes, from the manifests."""
    stages = [{"name": name, "time": duration(m.seconds), "memory": f"{m.peak_memory_mb:,.0f} MB",
               "device": m.machine.get("device"), "hash": m.output_hash[:12],
               "settings": [(key, json.dumps(value)) for key, value in m.config.items()]}
              for name, m in manifests.items()]
    left_out = [f"Left out: {name}, since {m.facts[LEFT_OUT]}." for name, m in manifests.items() if LEFT_OUT in m.facts]
    return {"kind": "grammar" if is_given else "treebank", "source": source if is_given else Path(source).name,
            "left_out": [WITHOUT_TREEBANK, *left_out] if is_given else left_out,
            "seed": seed, "stages": stages, "record": recorded,
            "time": duration(sum(m.seconds for m in manifests.values())),
            "memory": f"{max(m.peak_memory_mb for m in manifests.values()):,.0f} MB",
            "versions": {name: version for m in manifests.values() for name, version in m.versions.items()}}


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
