"""What the stages other than training and probing will take, from the times of the reduced profile: for --dry-run.

Each stage has a unit of work that can be counted in any profile.  Its seconds a unit are those of the reduced profile,
measured on CRAFT; what makes other profiles differ beyond the count is assumed, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pcfg_artifact.metrics.models import roles_of, shape_of
from pcfg_artifact.run.config import Profile, load_profile

MEASURED = "reduced"  # the profile whose costs are measured seconds
# Exact inference costs the cube of the length, and another profile may let longer sentences in: times of the plan's
# table allow for that.
LENGTHS = "sentences as long as there"
WIDE = "a wide model takes a GPU as long as a narrow one a core"


@dataclass(frozen=True)
class StageWork:
    """count(profile): units of work; assumed: why a unit should cost the same in another profile."""

    unit: str
    count: Callable[[Profile], int]
    assumed: str
    uses_cores: bool = True  # all of them; otherwise one

    def seconds(self, profile: Profile, measured: Profile, stage: str) -> float:
        """From the seconds that the measured profile took, by count and cores."""
        cores = {one.name: one.cost["training"]["cores"] if self.uses_cores else 1 for one in (profile, measured)}
        share = self.count(profile) / self.count(measured) * cores[measured.name] / cores[profile.name]
        return float(measured.cost[stage][0]) * share


def _layers(profile: Profile) -> int:
    return sum(size.layers for name in profile.pretrain.models if (size := shape_of(name)) is not None)


def _base_layers(profile: Profile) -> int:
    roles = roles_of(profile.pretrain.models)
    return 0 if roles.base is None else roles.layers(roles.base)


def _tests(profile: Profile, limit: int | None) -> int:
    """Test trees that a stage parses of those there are."""
    n_test = int(profile.cost["training"]["test_trees"])
    return n_test if limit is None else min(limit, n_test)


def _sampled(profile: Profile) -> int:
    return profile.sample.n_probe_train + profile.sample.n_probe_test


def _parsed(profile: Profile) -> int:
    """Sentences that all rows of `approximate` parse."""
    cfg = profile.approximate
    n_rows = 1 + len(cfg.n_interminals) + len(cfg.ranks) + len(cfg.merged_interminals)
    return n_rows * _tests(profile, cfg.n_test) + len(cfg.ablation_ranks) * _tests(profile, cfg.n_ablation_test)


WORK: Mapping[str, StageWork] = {
    "grammar": StageWork("trees", lambda p: int(p.cost["training"]["trees"]), LENGTHS, False),
    "sample": StageWork("sentences drawn", lambda p: p.sample.n_pretraining + p.sample.n_validation + _sampled(p),
                        LENGTHS, False),
    "marginals": StageWork("sentences parsed", lambda p: p.marginals.n_train + _tests(p, None) + _sampled(p)
                           + p.marginals.n_masked, LENGTHS),
    "approximate": StageWork("sentences parsed", _parsed, LENGTHS),
    "construct": StageWork("sentences", lambda p: p.construct.n_parsed + p.construct.n_training
                           + p.construct.n_per_length * len(p.construct.lengths), LENGTHS),
    "attention": StageWork("layers x sentences", lambda p: 2 * p.attention.n_sentences * _layers(p), WIDE, False),
    "incremental": StageWork("sentences", lambda p: p.incremental.n_exact + p.incremental.n_train
                             + p.incremental.n_test, LENGTHS),
    "intervene": StageWork("questions x layers", lambda p: p.intervene.n_questions * len(p.intervene.widths)
                           * (_base_layers(p) + 2), WIDE),
    "dynamics": StageWork("sentences at all steps", lambda p: (p.pretrain.n_kept + 2)
                          * (p.dynamics.n_train + p.dynamics.n_test), WIDE),
    "verify": StageWork("report", lambda _: 1, "as large as there", False),
}


def work_lines(profile: Profile, stages: list[str]) -> list[str]:
    """The arithmetic of every stage that has a unit of work; a profile that was measured itself needs none."""
    measured, chosen = load_profile(MEASURED), [stage for stage in stages if stage in WORK]
    if not chosen:
        return []
    if profile.cost["machine"] == measured.cost["machine"]:
        return [f"{', '.join(chosen)}: measured, on {profile.cost['machine']}"]
    lines = [f"other stages, by what the profile {MEASURED} took on {measured.cost['machine']} (measured on CRAFT), "
             f"shared by {profile.cost['training']['cores']} cores where a stage uses all:"]
    for stage in chosen:
        work = WORK[stage]
        lines.append(f"  {stage:<12} {work.seconds(profile, measured, stage):>6,.0f} s for {work.count(profile):,} "
                     f"{work.unit}; measured {measured.cost[stage][0]:,} s for {work.count(measured):,}; assumed: "
                     f"{work.assumed}")
    return lines
