"""Two verdicts on a run, never mixed: does it agree with the recorded runs, and what does it show of the paper?

docs/dev/judging.md has the rules as a table, and an example by hand.

A series: numbers that differ in layer, width, size, index or step alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pcfg_artifact.judge.claims import HOLDS, MISSING, Claim, Evaluation, evaluate
from pcfg_artifact.judge.paper import ABOVE, BELOW, MATCH, Printed
from pcfg_artifact.judge.recorded_runs import Record, RecordedClaim
from pcfg_artifact.metrics.schema import GIVEN, KEY, WHOLE_NUMBERS, Key, Metric, format_number, name_of
from pcfg_artifact.metrics.selection import Missing, Numbers
from pcfg_artifact.metrics.views import grouped, is_exact

MINIMUM_SEEDS = 5  # fewer do not know their range
SERIES = tuple(name for name in KEY if name not in WHOLE_NUMBERS)  # what the numbers of a series share
MEAN = ("table", "model", "metric")  # what the numbers of a mean share, for another seed or another training
RANGES = 3.0
SHARE_OUTSIDE = 0.01  # of the means of a run with another training
RECORDED = 1e-5  # relative: a recorded number is rounded to DIGITS
RELATIVE = ("perplexity", "steps")  # units whose differences are shares of the recorded value

# What one constant a unit allows; zero for units that are not named.
ROUNDING = {"percent": 0.2, "fraction": 0.005, "perplexity": 0.01, "relative_error": 1e-9, "words": 1e-6,
            "ratio": 1e-6, "nats": 1e-6, "bits": 1e-6}
# Measured by running the probes again under other CPU instructions: means of series moved by up to 1.33 points of F1
# (F1 by width of the span), .0083 of a correlation, 28% of a step, and by less than 1e-6 of anything else.
REPEATED = {"percent": 1.5, "fraction": 0.01, "perplexity": 0.01, "steps": 1 / 3, "nats": 0.01, "bits": 0.01,
            "tokens": 0.1, "words": 0.01, "ratio": 0.05, "relative_error": 1e-9}

# What decides of a run of a given grammar, which no record is about: theorems and exact constructions.
EXACT_CLAIMS = ("agreement", "sizes")  # tables
OF_GIVEN_GRAMMAR = "this run is of a given grammar; claims about exact constructions decide, all others are shown"

# Sections 02-21 and 22 of the Penn Treebank: the only trees whose numbers the paper prints.
PAPER_TREES = {"train": 39_832, "test": 1_700}


class Verdict(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    MISSING = "not measured"
    NEW = "not recorded"
    NOT_JUDGED = "not judged"


FAILING = (Verdict.DIFFERS, Verdict.MISSING, Verdict.NEW)


@dataclass(frozen=True)
class Run:
    """What was run: the judge compares it with what was recorded."""

    profile: str
    treebank: str
    config: str
    seed: int | None = None


@dataclass(frozen=True)
class Judgement:
    """One verdict with the figures it rests on.  `against`: number, mean or paper; `keys`: the numbers it is about."""

    against: str
    name: str
    verdict: Verdict
    reason: str
    keys: tuple[Key, ...] = ()
    measured: str = ""
    expected: str = ""
    allowed: str = ""


@dataclass(frozen=True)
class ClaimVerdict:
    """How a claim came out in this run, beside how it came out in the record."""

    claim: Claim
    grammar: str
    evaluation: Evaluation
    recorded: RecordedClaim | None
    agrees: bool
    reason: str = ""

    @property
    def outcome(self) -> str:
        return self.evaluation.outcome

    @property
    def explanation(self) -> str:
        return self.recorded.explanation if self.recorded is not None else ""


@dataclass(frozen=True)
class Verdicts:
    """All verdicts of a run; `why_not`: why the record does not apply, where it does not."""

    run: Run
    judgements: Sequence[Judgement]
    claims: Sequence[ClaimVerdict]
    why_not: str
    how: str  # which rule the numbers of stages with training were judged by
    n_allowed: int = 0  # means that may lie outside

    @property
    def outside(self) -> list[Judgement]:
        """What disagrees with the record or the paper; means that lie outside only if they are too many."""
        failing = [j for j in self.judgements if j.verdict in FAILING]
        means = [j for j in failing if j.against == "mean" and j.verdict == Verdict.DIFFERS]
        return failing if len(means) > self.n_allowed else [j for j in failing if j not in means]

    @property
    def of_numbers(self) -> dict[Key, str]:
        """The verdict on each number, its own or that of its mean; where the paper's applies, that one."""
        return {key: f"mean {j.verdict.value}" if j.against == "mean" else j.verdict.value
                for j in self.judgements for key in j.keys}

    @property
    def agrees(self) -> bool:
        """The exit code: nothing disagrees, and something was measured."""
        return bool(self.judgements) and not self.outside and all(c.agrees for c in self.claims)


def judge(run: Run, numbers: Numbers, paper: Sequence[Printed], record: Record | None,
          claims: Sequence[Claim]) -> Verdicts:
    """All verdicts of a run."""
    why_not = OF_GIVEN_GRAMMAR if numbers.is_given else why_not_applicable(run, record)
    applicable = record if why_not == "" else None
    how, n_allowed, found = judge_record(run, numbers, applicable) if applicable is not None else \
        ("", 0, _not_judged(numbers.metrics, why_not))
    return Verdicts(run, [*found, *judge_paper(run, numbers, paper)],
                    list(judge_claims(run, numbers, claims, applicable)), why_not, how, n_allowed)


def why_not_applicable(run: Run, record: Record | None) -> str:
    """Empty where the record is one of this very run, else the reason why it says nothing about it."""
    if record is None:
        return f"no runs of the profile {run.profile} are recorded"
    if record.treebank != run.treebank:
        return "the recorded runs are of another treebank"
    if record.config != run.config:
        return "settings of this run differ from the recorded ones"
    return ""


# ---- numbers against the record --------------------------------------------------------------------------------------


def judge_record(run: Run, numbers: Numbers, record: Record) -> tuple[str, int, list[Judgement]]:
    """Which rule applied, how many means it lets lie outside, and the verdicts."""
    own = record.by_seed.get(run.seed) if run.seed is not None else None
    is_repeated = own is not None and has_repeated(numbers, own)
    judgements = list(_absent_and_new(numbers, record, own if is_repeated else None))
    shared = [m for m in numbers.metrics if m.key in record.units]
    if own is not None:
        judgements += [_rounded(m, own[m.key]) for m in shared if is_exact(m.table) and m.key in own]
    if own is not None and is_repeated:
        trained = [m for m in shared if not is_exact(m.table) and m.key in own]
        judgements += [_repeated(series, own) for series in grouped(trained, *SERIES).values()]
        return "training curves repeat those of the recorded seed", 0, judgements
    left = shared if own is None else [m for m in shared if not is_exact(m.table)]
    if len(record.seeds) < MINIMUM_SEEDS:
        reason = (f"{len(record.seeds)} seeds are recorded, {MINIMUM_SEEDS} are needed to judge a run with another "
                  f"training")
        return reason, 0, [*judgements, *_not_judged(left, reason)]
    means = [_between_seeds(group, record) for group in grouped(left, *MEAN).values()]
    how = "another seed" if own is None else "training took another course than at the recorded seed"
    return how, math.floor(SHARE_OUTSIDE * len(means)), judgements + means


def has_repeated(numbers: Numbers, own: Mapping[Key, float]) -> bool:
    """Whether every recorded point of the training curves is met to the last recorded digit."""
    curve = {key: value for key, value in own.items() if key[0] == "loss_curve"}
    measured = {key: metric.value for key, metric in numbers.by_key.items() if key in curve}
    return bool(curve) and all(math.isclose(measured.get(key, math.nan), value, rel_tol=RECORDED)
                               for key, value in curve.items())


def _absent_and_new(numbers: Numbers, record: Record, own: Mapping[Key, float] | None) -> Iterator[Judgement]:
    """Every number of the recorded seed, or of all recorded seeds, must be there, and no other."""
    expected = set(own) if own is not None else set.intersection(*map(set, record.by_seed.values()))
    known = set(own) if own is not None else set(record.units)
    for key in sorted(expected - set(numbers.by_key), key=str):
        yield Judgement("number", name_of(dict(zip(KEY, key, strict=True))), Verdict.MISSING,
                        "the recorded runs have this number", (key,))
    for metric in numbers.metrics:
        if metric.key not in known:
            yield _of_number(metric, Verdict.NEW, "no recorded run has this number; record the profile again if it "
                                                  "belongs here")


def _of_number(metric: Metric, verdict: Verdict, reason: str) -> Judgement:
    return Judgement("number", name_of(vars(metric)), verdict, reason, (metric.key,),
                     format_number(metric.value, metric.unit))


def _not_judged(metrics: Iterable[Metric], reason: str) -> list[Judgement]:
    return [_of_number(metric, Verdict.NOT_JUDGED, reason) for metric in metrics]


def _rounded(metric: Metric, recorded: float) -> Judgement:
    return _compared([metric], metric.value, recorded, allowance(ROUNDING, metric.unit, recorded),
                     "the same seed, without training", against="number")


def _repeated(series: Sequence[Metric], own: Mapping[Key, float]) -> Judgement:
    defined = [m for m in series if not (math.isnan(m.value) and math.isnan(own[m.key]))]
    recorded = _mean([own[m.key] for m in defined])
    return _compared(series, _mean([m.value for m in defined]), recorded,
                     allowance(REPEATED, series[0].unit, recorded), f"the same training, mean of {len(series)}")


def _between_seeds(group: Sequence[Metric], record: Record) -> Judgement:
    keys = [m.key for m in group]
    over_seeds = [_mean(found) for values in record.by_seed.values()
                  if (found := [values[key] for key in keys if key in values])]
    recorded, spread = _mean(over_seeds), RANGES * (max(over_seeds) - min(over_seeds))
    return _compared(group, _mean([m.value for m in group]), recorded,
                     max(spread, allowance(ROUNDING, group[0].unit, recorded)),
                     f"three times the range of {len(over_seeds)} seeds, mean of {len(group)}")


def allowance(constants: Mapping[str, float], unit: str, recorded: float) -> float:
    """What one constant a unit allows; in some units it is a share of the recorded number."""
    return constants.get(unit, 0.0) * (abs(recorded) if unit in RELATIVE else 1.0)


def _compared(metrics: Sequence[Metric], measured: float, recorded: float, allowed: float, reason: str,
              against: str = "mean") -> Judgement:
    """A number that is undefined, or infinite, agrees with itself alone."""
    if not math.isfinite(measured):
        verdict = Verdict.AGREES if str(measured) == str(recorded) else Verdict.MISSING
    else:
        is_close = abs(measured - recorded) <= allowed + RECORDED * abs(recorded)
        verdict = Verdict.AGREES if is_close else Verdict.DIFFERS
    unit, first = metrics[0].unit, vars(metrics[0])
    name = name_of({name: first[name] if all(getattr(m, name) == first[name] for m in metrics) else None
                    for name in KEY})
    return Judgement(against, name, verdict, reason, tuple(m.key for m in metrics), format_number(measured, unit),
                     format_number(recorded, unit), f"± {allowed:.3g}")


# ---- the paper's numbers ---------------------------------------------------------------------------------------------


def judge_paper(run: Run, numbers: Numbers, paper: Sequence[Printed]) -> Iterator[Judgement]:
    """The printed numbers, which apply to the paper profile on the paper's trees alone.

    Each has a prediction from before anyone had run it: to match, or to lie above or below by more than the tolerance.
    Only what was not predicted disagrees.
    """
    if why_not_paper(run, numbers):
        return
    for printed in paper:
        if printed.tolerance is None or printed.bound:
            continue
        expected, allowed = f"{printed.value:g} {printed.prediction}", f"± {printed.tolerance:.2g}"
        try:
            metric, = numbers.select(printed.dims)
        except Missing as missing:
            yield Judgement("paper", printed.name, Verdict.MISSING, str(missing), (), "", expected, allowed)
            continue
        off_by = metric.value - printed.value
        found = MATCH if abs(off_by) <= printed.tolerance else ABOVE if off_by > 0 else BELOW if off_by < 0 else ""
        reason = f"{found or 'undefined'}, predicted {printed.prediction} ({printed.basis}); {printed.reason}"
        yield Judgement("paper", printed.name, Verdict.AGREES if found == printed.prediction else Verdict.DIFFERS,
                        reason, (metric.key,), format_number(metric.value, metric.unit), expected, allowed)


def why_not_paper(run: Run, numbers: Numbers) -> str:
    """Empty where the paper's numbers apply."""
    if run.profile != "paper":
        return f"the paper's numbers are of the paper's scale, this is the profile {run.profile}"
    counts = {m.group: int(m.value) for m in numbers.of_table("treebank")}
    if any(counts.get(part) != n for part, n in PAPER_TREES.items()):
        return (f"the paper's numbers are of {PAPER_TREES['train']:,} training and {PAPER_TREES['test']:,} test trees "
                f"of the Penn Treebank, this run read {counts.get('train')} and {counts.get('test')}")
    return ""


# ---- claims ----------------------------------------------------------------------------------------------------------


def judge_claims(run: Run, numbers: Numbers, claims: Sequence[Claim], record: Record | None) -> Iterator[ClaimVerdict]:
    is_paper = not why_not_paper(run, numbers)
    for claim in claims:
        for grammar in (GIVEN,) if numbers.is_given else claim.grammars:
            evaluation = evaluate(claim, numbers, grammar)
            recorded = None if record is None else record.claims.get((claim.id, grammar))
            said, _, why = claim.at_paper.partition(": ") if is_paper else ("", "", "")
            agrees = ((evaluation.outcome == HOLDS) == (said == HOLDS), f"predicted: {said}, because {why}") if said \
                else _agrees(evaluation, recorded, run, record)
            if numbers.is_given and claim.table in EXACT_CLAIMS and evaluation.outcome != HOLDS:
                agrees = False, "a theorem about every grammar"
            yield ClaimVerdict(claim, grammar, evaluation, recorded, *agrees)


def _agrees(evaluation: Evaluation, recorded: RecordedClaim | None, run: Run,
            record: Record | None) -> tuple[bool, str]:
    """Whether a claim came out as recorded, and why not."""
    if recorded is None:
        # Without a record nothing can disagree; with one, a claim that it lacks must not have become missing.
        return record is None or evaluation.outcome != MISSING, evaluation.why
    if evaluation.outcome in recorded.outcomes.values():
        return True, ""
    if evaluation.worst is None:
        return False, evaluation.why or "the recorded runs have the numbers of this claim"
    if record is not None and len(record.seeds) < MINIMUM_SEEDS and run.seed not in record.seeds:
        return True, f"{len(record.seeds)} seeds are recorded, {MINIMUM_SEEDS} are needed to know how far a claim moves"
    values = [value for value in recorded.values.values() if math.isfinite(value)]
    if not values or not math.isfinite(evaluation.worst.value):
        return False, "undefined here or in the record"
    allowed = RANGES * (max(values) - min(values))
    off_by = abs(evaluation.worst.value - _mean(values))
    near = f"the value is {off_by:.3g} from the recorded mean, three times the recorded range is {allowed:.3g}"
    return off_by <= allowed, near


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
