"""report.html: one self-contained page, claims first, formatted once from the judged rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pcfg_artifact.verification.comparison import FAILING, Judgement, Run, Verdict, passed
from pcfg_artifact.verification.drawing import Drawing
from pcfg_artifact.verification.explorer import as_script, likely_spans, trees_of
from pcfg_artifact.verification.measured import Value, format_number
from pcfg_artifact.verification.pictures import picture
from pcfg_artifact.verification.relations import Relation
from pcfg_artifact.verification.summary import AGAINST, banner, central, counts, verdict_words
from pcfg_artifact.verification.tables import Entry, Table

MAXIMUM_DEVIATIONS = 100
# Claims as the page shows them: what changed, what is shown, what is not, what belongs to another scale.
ORDER = (*FAILING, Verdict.MATCH, Verdict.VARIES, Verdict.AS_RECORDED, Verdict.NOT_JUDGED, Verdict.NOT_APPLICABLE)
# Tables that the page draws instead of printing -> the figure that shows them.
DRAWN = {"figure_frequency": "frequency", "figure_layers": "f1_by_layer", "figure_marginals": "marginals",
         "figure_attention": "attention", "loss_curve": "loss_curves", "figure_incremental": "known_while_reading",
         "figure_interventions": "interventions", "figure_dynamics": "dynamics"}

# What the section on reading from left to right shows, which is not the paper's: tables, then figures.
READING_TABLES = ("next_word", "incremental", "settled")
READING_FIGURES = ("next_word_gap", "known_while_reading", "settled")


@dataclass(frozen=True)
class StageFacts:
    name: str
    time: str
    memory: str
    device: str
    hash: str
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Facts:
    """What the page says of the run itself."""

    treebank: str
    seed: int
    stages: tuple[StageFacts, ...]
    time: str
    memory: str
    versions: tuple[tuple[str, str], ...]
    record: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim as the page shows it; `table` is the one it links to, where the page has it."""

    judgement: Judgement
    relation: Relation | None
    picture: Markup
    table: str

    @property
    def is_missing(self) -> bool:
        """One of the central claims, looked at and not shown: the first page says why."""
        return (self.relation is not None and self.relation.is_central
                and self.judgement.verdict not in (Verdict.MATCH, Verdict.NOT_APPLICABLE))

    @property
    def words(self) -> str:
        return verdict_words(self.judgement)


@dataclass(frozen=True)
class Page:
    """Everything the page shows."""

    run: Run
    facts: Facts
    judgements: Sequence[Judgement]
    relations: Sequence[Relation]
    tables: Sequence[Table]
    drawings: Sequence[Drawing]
    undrawn: Sequence[tuple[str, str]] = field(default_factory=tuple)
    explored: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def tone(verdict: Verdict) -> str:
    """The colour of a verdict: green is for what was shown, red for what changed."""
    if verdict == Verdict.MATCH:
        return "good"
    return "bad" if verdict in FAILING else "none" if verdict == Verdict.NOT_APPLICABLE else "open"


def render(page: Page) -> str:
    folder = resources.files("pcfg_artifact.verification")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((folder / "report.html").read_text(encoding="utf-8"))
    by_id = {relation.id: relation for relation in page.relations}
    shown = {table.name for table in page.tables} | set(DRAWN)
    claims = sorted((_claim(j, by_id.get(j.name), shown) for j in page.judgements if j.against == "relation"),
                    key=lambda claim: ORDER.index(claim.judgement.verdict))
    deviations = [j for j in page.judgements
                  if j.against != "relation" and j.verdict in (*FAILING, Verdict.AS_RECORDED)]
    unjudged = [j for j in page.judgements if j.verdict == Verdict.NOT_JUDGED]
    shown_claims, recorded = banner(page.judgements, page.relations)
    return template.render(
        css=Markup((folder / "report.css").read_text(encoding="utf-8")), run=page.run, facts=page.facts,
        passed=passed(page.judgements), banner=shown_claims, recorded=recorded, claims=claims, tables=page.tables,
        central=central(page.judgements, page.relations), missing=[claim for claim in claims if claim.is_missing],
        undrawn=page.undrawn, counts=[counts(page.judgements, *against) for against in AGAINST.items()],
        deviations=deviations[:MAXIMUM_DEVIATIONS], n_deviations=len(deviations),
        unjudged=unjudged[:MAXIMUM_DEVIATIONS], n_unjudged=len(unjudged),
        n_numbers=sum(j.against != "relation" and j.verdict == Verdict.MATCH for j in page.judgements),
        explored=page.explored, explored_json=as_script(page.explored), trees_of=trees_of, likely_spans=likely_spans,
        script=Markup((folder / "explorer.js").read_text(encoding="utf-8")),
        tone=tone, number=number, printed=printed, drawn=DRAWN, reading_tables=READING_TABLES,
        reading_figures=READING_FIGURES,
        drawings=[replace(drawing, svg=Markup(drawing.svg)) for drawing in page.drawings])


def _claim(judgement: Judgement, relation: Relation | None, shown: set[str]) -> Claim:
    drawn = "" if judgement.comparison is None else picture(
        judgement.comparison, judgement.recorded, f"{judgement.measured}; expected {judgement.expected}")
    return Claim(judgement, relation, Markup(drawn), judgement.table if judgement.table in shown else "")


def number(value: Value | None) -> str:
    return "" if value is None else format_number(value.number, value.unit)


def printed(entry: Entry) -> str:
    """The paper's number with the paper's digits: two for F1 and perplexity."""
    two_digits = entry.measured is not None and entry.measured.unit in ("percent", "perplexity")
    if entry.paper is None:
        return ""
    return f"{entry.paper.value:.2f}" if two_digits else f"{entry.paper.value:g}"
