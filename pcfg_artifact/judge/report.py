"""report.html: one self-contained page with the two verdicts, five findings, tables, figures, claims and the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pcfg_artifact.judge import summary
from pcfg_artifact.judge.claims import OF_PAPER, STRICT, UPPER, Claim, Comparison, compare
from pcfg_artifact.judge.drawing import Drawing
from pcfg_artifact.judge.judge import FAILING, ClaimVerdict, Verdict, Verdicts
from pcfg_artifact.judge.tables import Entry, Table
from pcfg_artifact.metrics.models import Roles
from pcfg_artifact.metrics.schema import Metric, format_number, name_of
from pcfg_artifact.metrics.selection import Numbers
from pcfg_artifact.metrics.views import load_views
from pcfg_artifact.treebank.tree import bracketed

MAXIMUM_DEVIATIONS = 100
WIDTH, HEIGHT, MARGIN, LINE = 200, 40, 12, 16  # of a sparkline, pixels; LINE: the height of the axis
LOGARITHMIC = 1e3  # values that lie so many times apart are drawn on a logarithmic axis

# Status -> tone; others are open.  Red is for what is not as recorded.
TONES = {summary.SHOWN: "good", summary.PASSED: "good", summary.NOT_SHOWN: "fails", summary.NOT_PASSED: "fails",
         summary.NOT_MEASURED: "none", summary.NOT_TESTABLE: "none", summary.NO_MODEL: "none"}
OPEN = "open"
MARKS = {"good": "✓", "fails": "✗", OPEN: "~", "none": "–"}
# What a profile can say about the paper.
PROFILES = {"smoke": "It tests the software; it is no evidence about the paper.",
            "reduced": "Small models of real text: it asks whether the paper's relations hold, not for its numbers.",
            "paper": "The paper's own scale."}
SOURCES = {"embedded": "generated treebank"}
# Topic of a claim -> the tables whose numbers it reads first.
TOPICS = {
    "Constructed transformers": ("agreement", "sizes"),
    "Few symbols and low rank": ("approximation", "approximation_cost", "ablation", "parsers", "frequency"),
    "Predicting masked words": ("perplexity", "masked_words"), "Trees": ("parsing",),
    "Span probabilities": ("marginals",), "Control tasks": ("control", "sensitivity"), "Attention": ("attention",),
    "Left to right": ("next_words", "incremental", "settled"),
    "Encoded or used": ("interventions", "dynamics", "half_way")}
OTHERS = "Others"


@dataclass(frozen=True)
class ShownClaim:
    """A claim as the page shows it; `place`: the table or figure of the page that shows its numbers."""

    found: ClaimVerdict
    status: str
    picture: Mapping[str, Any]
    place: str
    paper: Comparison | None  # what the paper's printed numbers give

    @property
    def name(self) -> str:
        return summary.name(self.found)

    @property
    def tone(self) -> str:
        return TONES.get(self.status, OPEN)

    @property
    def mark(self) -> str:
        return MARKS[self.tone]

    @property
    def figures(self) -> str:
        """What was measured and claimed, or why nothing was."""
        worst = self.found.evaluation.worst
        return self.found.evaluation.why if worst is None else f"{worst.measured} ({worst.expected})"

    @property
    def is_untestable(self) -> bool:
        return self.status == summary.NOT_TESTABLE

    @property
    def failed(self) -> bool:
        """A finding of the paper that should be here, and is not."""
        return self.found.claim.group == OF_PAPER and self.tone in ("fails", OPEN) and self.status != summary.NO_CONTROL

    @property
    def topic(self) -> str:
        return next((topic for topic, tables in TOPICS.items() if self.found.claim.table in tables), OTHERS)


@dataclass(frozen=True)
class Page:
    """Everything the page shows; facts: treebank, seed, stages, time, memory, versions and record, as text."""

    facts: Mapping[str, Any]
    verdicts: Verdicts
    tables: Sequence[Table]
    drawings: Sequence[Drawing]
    undrawn: Sequence[tuple[str, str]] = field(default_factory=tuple)
    explored: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    paper: Numbers = field(default_factory=lambda: Numbers([]))  # what the paper prints, as if it were a run
    first: Drawing | None = None  # the figure of the first screen


def render(page: Page) -> str:
    folder = resources.files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((folder / "report.html").read_text(encoding="utf-8"))
    verdicts, claims = page.verdicts, shown_claims(page)
    deviations = [j for j in verdicts.judgements if j.verdict in FAILING]
    worst = list({claim.found.claim.id: claim for claim in reversed(claims)}.values())[::-1]  # of a claim's grammars
    by_tone = Counter(claim.tone for claim in worst if claim.found.claim.group == OF_PAPER)
    return template.render(
        css=Markup((folder / "report.css").read_text(encoding="utf-8")), run=verdicts.run, facts=page.facts,
        agreement=summary.agreement(verdicts), findings=summary.findings(verdicts), central=summary.central(verdicts),
        tone="bad" if not verdicts.agrees else "none" if verdicts.why_not else "good",
        by_tone={tone: by_tone[tone] for tone in MARKS if by_tone[tone]}, marks=MARKS,
        headlines=[claim for claim in worst if claim.found.claim.headline], first=page.first,
        failed=sorted((claim for claim in worst if claim.failed), key=lambda claim: not claim.found.claim.central),
        topics={topic: some for topic in (*TOPICS, OTHERS) if (some := [c for c in claims if c.topic == topic])},
        tables=page.tables, drawings=page.drawings, undrawn=page.undrawn, deviations=deviations[:MAXIMUM_DEVIATIONS],
        n_deviations=len(deviations), explored=page.explored,
        unjudged=Counter(j.reason for j in verdicts.judgements if j.verdict == Verdict.NOT_JUDGED),
        n_agreeing=sum(j.verdict == Verdict.AGREES for j in verdicts.judgements),
        trees_of=trees_of, likely_spans=likely_spans,
        script=Markup((folder / "explorer.js").read_text(encoding="utf-8")), number=number, printed=printed,
        name_of=lambda metric: name_of(vars(metric)),
        computed_by={view.figure: view.functions for view in load_views()}, svg=lambda drawing: Markup(drawing.svg))


def subtitle(profile: str, source: str, roles: Roles, seed: int, *, is_given: bool) -> str:
    """What was run, in words, and what it can say about the paper."""
    layers = "" if roles.base is None else f", models of up to {max(map(roles.layers, roles.models))} layers"
    what = f"grammar {source}" if is_given else SOURCES.get(source, f"treebank {source}")
    about = "" if is_given else PROFILES.get(profile, "")
    return f"{profile.capitalize()} run: {what}{layers}, seed {seed}. {about}".strip()


# ---- claims ----------------------------------------------------------------------------------------------------------


def shown_claims(page: Page) -> list[ShownClaim]:
    """Every claim, first those that did not come out as recorded, then those that are not shown; each with the first
    place that shows its table."""
    places: dict[str, str] = {}
    for table in page.tables:
        for entry in table.entries.values():
            places.setdefault(entry.metric.table, f"table-{table.id}")
    for view in load_views():
        if view.figure in {drawing.name for drawing in page.drawings}:
            for name in view.tables:
                places.setdefault(name, f"figure-{view.figure}")
    claims = [ShownClaim(found, summary.status(found, page.verdicts.run.profile), _picture(found),
                         places.get(found.claim.table, ""), _of_paper(found, page.paper))
              for found in page.verdicts.claims]
    return sorted(claims, key=lambda claim: (claim.found.agrees, summary.ORDER.index(claim.status)))


def _of_paper(found: ClaimVerdict, paper: Numbers) -> Comparison | None:
    claim = found.claim
    return compare(claim, paper, claim.grammars[0], partial=True).worst if claim.is_paper and paper.metrics else None


def _picture(found: ClaimVerdict) -> dict[str, Any]:
    recorded = [] if found.recorded is None else list(found.recorded.values.values())
    return {} if found.evaluation.worst is None else sparkline(found.claim, found.evaluation.worst, recorded)


def sparkline(claim: Claim, now: Comparison, recorded: Sequence[float]) -> dict[str, Any]:
    """A claim in one small picture: this run's value against its bound, recorded seeds as dots; all in pixels.

    Empty where there is no finite value.  A macro of report.html draws it.
    """
    if not math.isfinite(now.value):
        return {}
    place = _axis([now.value, claim.bound, *filter(math.isfinite, recorded)])
    bound, low, high = place(claim.bound), MARGIN / 2, WIDTH - MARGIN / 2
    return {"width": WIDTH, "height": HEIGHT, "line": LINE, "margin": low, "bound": bound, "now": place(now.value),
            "seeds": [place(value) for value in recorded if math.isfinite(value)],
            "side": (low, bound) if claim.kind in UPPER else (bound, high), "tone": "good" if now.slack >= 0 else "bad",
            "shown": 0 if abs(claim.bound) <= STRICT else claim.bound}


def _axis(values: Sequence[float]) -> Callable[[float], float]:
    """Value -> pixel."""
    smallest, largest = min(values), max(values)
    is_log = smallest > 0 and largest / smallest > LOGARITHMIC

    def scaled(value: float) -> float:
        return math.log(value) if is_log else value

    low, high = scaled(smallest), scaled(largest)
    if high == low:
        low, high = low - 1, high + 1
    low, high = low - 0.08 * (high - low), high + 0.08 * (high - low)
    return lambda value: MARGIN + (WIDTH - 2 * MARGIN) * (scaled(value) - low) / (high - low)


# ---- sentences to look into ------------------------------------------------------------------------------------------


def explored_sentences(constructed: Sequence[Mapping[str, Any]], probed: Mapping[str, Any] | None,
                       attended: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Every sentence of the stage `construct` with what the probes and the attention of the base model say of it.

    Other stages that show other sentences are left out: they belong to another run.
    """
    sentences = []
    for s, found in enumerate(constructed):
        sentence = {**found, "probe": None, "attention": None}
        if probed is not None and probed["words"][s:s + 1] == [found["words"]]:
            sentence["probe"] = {"model": probed["model"], "best": probed["best"],
                                 "layers": [layer[s] for layer in probed["layers"]]}
        if attended is not None and attended["words"][s:s + 1] == [found["words"]]:
            sentence["attention"] = {"model": attended["model"], "layers": attended["layers"][s]}
        sentences.append(sentence)
    return sentences


def trees_of(sentence: Mapping[str, Any]) -> dict[str, str]:
    """The trees side by side as text, for readers without script."""
    trees = {"Inside-Outside": sentence["parse"]}
    if sentence["probe"] is not None:
        probe = sentence["probe"]
        trees[f"probe of {probe['model']}, layer {probe['best']}"] = probe["layers"][probe["best"]]
    trees["treebank"] = sentence["gold"]
    return {name: bracketed(sentence["words"], sorted(map(tuple, spans), key=lambda span: (span[0], -span[1])))
            for name, spans in trees.items()}


def likely_spans(sentence: Mapping[str, Any], n: int = 8) -> list[tuple[str, str, float]]:
    """The spans of more than one word that are most likely: words, label, marginal."""
    inner = [cell for cell in sentence["cells"] if 1 < cell[1] - cell[0] < len(sentence["words"])]
    return [(" ".join(sentence["words"][i:j]), label, marginal)
            for i, j, label, _, _, marginal in sorted(inner, key=lambda cell: -cell[-1])[:n]]


# ---- numbers ---------------------------------------------------------------------------------------------------------


def number(metric: Metric) -> str:
    shown = format_number(metric.value, metric.unit)
    return shown if metric.error is None else f"{shown} ± {metric.error:.2g}"


def printed(entry: Entry) -> str:
    """The paper's number with the paper's digits: two for F1 and perplexity."""
    if entry.paper is None:
        return ""
    return f"{entry.paper.value:.2f}" if entry.metric.unit in ("percent", "perplexity") else f"{entry.paper.value:g}"
