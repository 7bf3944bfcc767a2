"""Last stage: every number and every claim judged, tables and figures drawn, one report written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcfg_artifact import storage
from pcfg_artifact.artifacts import Folder, Manifest, StageDir
from pcfg_artifact.config import VerifyConfig
from pcfg_artifact.inputs import Inputs
from pcfg_artifact.machine import Machine
from pcfg_artifact.records import load_paper, load_record, load_relations, read_run
from pcfg_artifact.roles import Roles, find_roles
from pcfg_artifact.verification import (
    comparison,
    explorer,
    figures,
    reading_figures,
    report,
    sentence_drawings,
    summary,
    tables,
)
from pcfg_artifact.verification.drawing import Drawing
from pcfg_artifact.verification.measured import Tables, tabulate
from pcfg_artifact.verification.report import Facts, Page, StageFacts


def run(cfg: VerifyConfig, inputs: Inputs, out: StageDir, machine: Machine) -> None:
    folders = {stage: inputs[stage] for stage in inputs.stages()}
    what, measured, manifests = read_run(cfg.expected, folders)
    paper, record, relations = load_paper(), load_record(cfg.expected), load_relations()
    judgements = comparison.judge(what, measured, paper, record, relations)
    passed = comparison.passed(judgements)

    laid_out = tables.lay_out(measured, paper, judgements, find_roles(measured))
    for table in laid_out:
        out.write_text(f"tables/{table.name}.csv", tables.to_csv(table))
        out.write_text(f"tables/{table.name}.md", tables.to_markdown(table))
    drawings, undrawn = draw(tabulate(measured), find_roles(measured), folders)
    for drawing in drawings:
        storage.write_bytes(out.path(f"figures/{drawing.name}.png"), drawing.png)

    out.write_text("verdicts.csv", summary.to_csv(judgements, {relation.id: relation for relation in relations}))
    out.write_text("summary.txt", summary.summarise(what, judgements, relations) + "\n")
    out.write_json("verdict", {"profile": what.profile, "passed": passed})
    recorded = "" if record is None else f"{len(record.seeds)} seeds ({'; '.join(record.notes)})"
    about = facts(inputs.source, cfg.seed, manifests, recorded)
    out.write_text("report.html", report.render(
        Page(what, about, judgements, relations, laid_out, drawings, undrawn, explored(folders))))


def draw(measured: Tables, roles: Roles, folders: Mapping[str, Folder]) -> tuple[list[Drawing], list[tuple[str, str]]]:
    """Every figure whose data are there, and the names of the others with the reason."""
    drawings, undrawn = [], []
    for figure in (*figures.FIGURES, *reading_figures.READING_FIGURES):
        drawing = figure(measured, roles)
        if drawing is None:
            undrawn.append((figure.__name__.replace("_", " "), "no stage measured its cells"))
        else:
            drawings.append(drawing)
    scatter, probed, construction = (_stored(folders, stage, name) for stage, name in
                                     (("probe", "scatter"), ("probe", "example"), ("construct", "example")))
    if scatter is None:
        undrawn.append(("scatter", "the stage probe wrote none"))
    else:
        drawings.append(figures.scatter(scatter))
    if construction is None:
        undrawn.append(("example and filling chart", "the stage construct wrote none"))
    else:
        if probed is not None and probed["words"] != construction["words"]:
            undrawn.append(("probed tree of the example", "the stages construct and probe show different sentences; "
                            "run both again with --force"))
            probed = None
        drawings += [sentence_drawings.sentence_charts(construction, probed), sentence_drawings.filling(construction)]
    return drawings, undrawn


def explored(folders: Mapping[str, Folder]) -> list[dict[str, Any]]:
    """The sentences to look into, empty where the stage construct kept none."""
    stages = ("construct", "probe", "attention")
    constructed, probed, attended = (_stored(folders, stage, "explored") for stage in stages)
    return [] if constructed is None else explorer.explored_sentences(constructed, probed, attended)


def _stored(folders: Mapping[str, Folder], stage: str, name: str) -> Any:
    return folders[stage].json(name) if stage in folders and folders[stage].has(f"{name}.json") else None


def facts(source: str, seed: int, manifests: Mapping[str, Manifest], recorded: str) -> Facts:
    """Time, memory, versions and hashes, from the manifests."""
    stages = tuple(StageFacts(name, duration(m.seconds), f"{m.peak_memory_mb:,.0f} MB", str(m.machine.get("device")),
                              m.output_hash[:12], tuple((key, json.dumps(value)) for key, value in m.config.items()))
                   for name, m in manifests.items())
    versions = {name: version for m in manifests.values() for name, version in m.versions.items()}
    return Facts(Path(source).name, seed, stages, duration(sum(m.seconds for m in manifests.values())),
                 f"{max(m.peak_memory_mb for m in manifests.values()):,.0f} MB", tuple(versions.items()), recorded)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
