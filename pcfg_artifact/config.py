"""Profiles: frozen dataclasses, loaded from YAML, merged, validated and hashed; an unknown key is an error.

profiles/paper.yaml sets every field.  The other profiles name it as `based_on` and list only what they change.
"""

from __future__ import annotations

import difflib
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from importlib import resources
from typing import Any, Literal

import yaml

from pcfg_artifact.errors import ConfigError

MAY_BE_ZERO = ("seed", "cutoff", "dropout", "weight_decay", "warmup_steps", "n_dense", "smoothing")
SHARES = ("dropout", "mask_rate", "smoothing")


@dataclass(frozen=True)
class MachineConfig:
    """What a run may use.  It never changes a result, so it is no part of a stage's fingerprint."""

    device: Literal["auto", "cpu", "cuda"]
    n_workers: int | None  # None: every core this process may use
    n_gpus: int | None  # None: every visible one; more than there are is refused before the run


@dataclass(frozen=True)
class GrammarConfig:
    """Stage `grammar`: treebank to PCFG (both variants are learned; `variant` is the one that is sampled from)."""

    seed: int
    variant: Literal["vm", "novm"]
    cutoff: int  # words seen this often or less become signatures
    skip_bad_trees: bool


@dataclass(frozen=True)
class SampleConfig:
    """Stage `sample`: sentences per split, drawn from the grammar."""

    seed: int
    max_length: int | None
    n_pretraining: int
    n_validation: int
    n_probe_train: int
    n_probe_test: int


@dataclass(frozen=True)
class MarginalsConfig:
    """Stage `marginals`: exact Inside-Outside of what is probed, and the exact optimum of masked words."""

    seed: int
    target: Literal["pcfg", "latent"]  # whose marginals are the probed span scores of treebank sentences
    max_length: int  # words; longer sentences are left out and counted
    n_train: int  # treebank training sentences, from the first
    n_masked: int  # validation sentences whose masked words are predicted exactly
    mask_max_length: int  # words; the exact optimum costs their cube


@dataclass(frozen=True)
class ApproximateConfig:
    """Stage `approximate`: few non-terminals, low rank, their ablations, merged grammars."""

    seed: int
    n_interminals: tuple[int, ...]  # rows of table 1
    n_preterminals: int
    n_projected: int  # in-terminals under a low-rank transform
    ranks: tuple[int, ...]  # rows of table 2
    max_length: int  # of test sentences, in words
    n_test: int | None  # None: all
    n_training: int  # treebank sentences from which transforms are learned
    max_training_length: int
    n_drawn: int  # sampled sentences for perplexity
    max_drawn_length: int
    ablation_ranks: tuple[int, ...]
    n_ablation_test: int | None
    n_ablation_drawn: int | None
    merged_interminals: tuple[int, ...]
    smoothing: float  # share of the back-off in merged grammars


@dataclass(frozen=True)
class ConstructConfig:
    """Stage `construct`: transformers with weights read off the grammar."""

    seed: int
    max_length: int  # L of the theorems, in words
    lengths: tuple[int, ...]  # of the sampled sentences on which charts are compared
    n_per_length: int
    n_interminals: int  # of the approximate models, and the next two
    n_preterminals: int
    rank: int
    sign_rule: Literal["clip", "literal", "signed"]
    n_training: int  # treebank sentences from which transforms are learned
    n_parsed: int  # treebank test sentences that the approximate models parse
    n_dense: int  # of them, the longest also go through full matrices


@dataclass(frozen=True)
class PretrainConfig:
    """Stage `pretrain`: masked language models A<heads>L<layers> on the sampled sentences."""

    seed: int
    models: tuple[str, ...]
    width: int
    initial_scale: float  # standard deviation of the random weights
    dropout: float
    max_length: int  # words; longer sentences are left out and counted
    mask_rate: float
    corruption: Literal["mask", "80/10/10"]
    batch_size: int  # sentences of a global batch, over all processes and micro-batches
    batch_tokens: int  # padded tokens of one micro-batch of one process: memory and speed, not results
    steps: int  # training stops here
    schedule_steps: int  # the learning rate reaches zero here
    warmup_steps: int
    learning_rate: float
    weight_decay: float
    clip: float
    precision: Literal["auto", "float32", "bfloat16", "float16", "float64"]
    processes: int | None  # None: one per visible GPU, one on CPU
    save_every: int  # steps between checkpoints
    validate_every: int  # steps between points of the validation curve
    n_curve: int  # validation sentences of such a point
    n_exact: int  # validation sentences for the comparison with the exact optimum
    exact_max_length: int  # words; the exact optimum costs their cube


@dataclass(frozen=True)
class ProbeConfig:
    """Stage `probe`; `control` uses the same corpora and fits."""

    seed: int
    n_train: int  # sentences that a probe is fitted on, sampled and treebank alike
    n_test: int
    max_length: int  # words; longer sentences are passed over
    adjacent: Literal["none", "base", "all"]  # models probed with the input ADJ as well
    nary: Literal["none", "base", "all"]  # models probed with n-ary labels as well
    widths: tuple[int, ...]  # of the spans whose marginals are probed
    marginal_layers: Literal["ends", "all"]  # ends: layer 0 and the last
    random_weights: bool  # probe the base model's architecture before training too
    n_seeds: int  # nets of the 2-layer probe, differing in their first weights
    linear_iterations: int  # L-BFGS steps at most; whether they sufficed is recorded
    inverse_penalty: float  # scikit-learn's C
    n_hidden: int
    epochs: int
    learning_rate: float
    milestones: tuple[int, ...]  # epochs after which the learning rate falls to a tenth
    batch_size: int
    precision: Literal["float16", "float32"]  # of hidden states on disk
    batch_tokens: int  # padded tokens a model reads at a time: memory, not results
    n_scatter: int  # spans drawn in the scatter plots


@dataclass(frozen=True)
class ControlConfig:
    """Stage `control`: the seed decides the random labels."""

    seed: int


@dataclass(frozen=True)
class AttentionConfig:
    """Stage `attention`."""

    seed: int
    n_sentences: int
    max_length: int
    batch_tokens: int


@dataclass(frozen=True)
class VerifyConfig:
    """Stage `verify`."""

    seed: int
    expected: str  # the folder of expected_results/ this run is judged against


@dataclass(frozen=True)
class Profile:
    """One complete description of a run."""

    name: str
    seed: int
    treebank: str
    machine: MachineConfig
    grammar: GrammarConfig
    sample: SampleConfig
    marginals: MarginalsConfig
    approximate: ApproximateConfig
    construct: ConstructConfig
    pretrain: PretrainConfig
    probe: ProbeConfig
    control: ControlConfig
    attention: AttentionConfig
    verify: VerifyConfig
    cost: dict[str, Any]  # stage -> [seconds, megabytes on disk] and what `training` assumes; for --dry-run alone

    def stage(self, name: str) -> Any:
        return getattr(self, name)


def profile_names() -> list[str]:
    folder = resources.files("pcfg_artifact") / "profiles"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_profile(name: str, settings: Sequence[str] = (), treebank: str | None = None) -> Profile:
    """The named profile with `key=value` settings applied, e.g. `["seed=3", "sample.n_validation=100"]`."""
    values = _merged(name)
    for setting in settings:
        _apply(values, setting)
    if treebank is not None:
        values["treebank"] = treebank
    profile = _build(Profile, {**values, "name": name}, where="", seed=values.get("seed"))
    for stage in ("probe", "attention"):
        if profile.stage(stage).max_length > profile.pretrain.max_length:
            raise ConfigError(f"'{stage}.max_length' is {profile.stage(stage).max_length}, expected at most "
                              f"{profile.pretrain.max_length}, the longest sentence the models read "
                              f"(pretrain.max_length)")
    return profile


def available_cores() -> int:
    """Cores this process may use, which inside a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def as_json(section: Any) -> dict[str, Any]:
    """A config section as plain JSON values, for manifests and fingerprints."""
    return asdict(section)


# ---- loading --------------------------------------------------------------------------------------------------------


def _merged(name: str) -> dict[str, Any]:
    known = profile_names()
    if name not in known:
        raise ConfigError(f"unknown profile {name!r}{_suggest(name, known)}; choose one of {', '.join(known)}")
    text = (resources.files("pcfg_artifact") / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text) or {}
    base = values.pop("based_on", None)
    return values if base is None else _deep_merge(_merged(base), values)


def _deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _deep_merge(merged[key], value) if both else value
    return merged


def _apply(values: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {setting!r} is not of the form key=value, e.g. --set sample.n_validation=100")
    try:
        value = yaml.safe_load(text)
    # YAML alone is not enough: a date that does not exist, a tag that does not fit, brackets nested thousands deep.
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"--set {setting[:60]!r}: the value is not valid YAML ({error})") from error
    *path, last = key.split(".")
    if key.split(".")[0] == "cost":  # for --dry-run alone, and not checked as the settings of stages are
        raise ConfigError(f"--set {setting[:60]!r}: 'cost' says what the profile takes; it is measured, not set")
    section: Any = values
    for part in path:
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise ConfigError(f"--set {setting!r}: {part!r} is a value, not a section")
    section[last] = value


# ---- validation -----------------------------------------------------------------------------------------------------


def _build(cls: type, values: Any, where: str, seed: int | None) -> Any:
    """A dataclass from a mapping, every key and type checked; sections with a `seed` inherit the profile's."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or 'the profile'} is {values!r}, expected a section with keys")
    hints = typing.get_type_hints(cls)
    names = [f.name for f in fields(cls)]
    for key in values:
        if key not in names:
            place = f"{where}.{key}" if where else str(key)
            raise ConfigError(f"unknown key {place!r}{_suggest(str(key), names)}; known here: {', '.join(names)}")
    arguments = {}
    for f in fields(cls):
        place = f"{where}.{f.name}" if where else f.name
        if f.name in values:
            arguments[f.name] = _convert(hints[f.name], values[f.name], place, seed)
            _check_range(f.name, arguments[f.name], place)
        elif f.name == "seed" and where:
            arguments["seed"] = seed
        elif f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{place!r} is not set; profiles/paper.yaml must set every field")
    return cls(**arguments)


def _convert(hint: Any, value: Any, place: str, seed: int | None) -> Any:
    """`value` as the type `hint` asks for, or a ConfigError; ints are accepted as floats, nothing else is guessed."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if is_dataclass(hint):
        return _build(hint, value, place, seed)
    if origin is Literal:
        if value in parts:
            return value
        raise ConfigError(f"{place!r} is {value!r}, expected one of {', '.join(map(str, parts))}")
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in parts:
            return None
        return _convert(next(p for p in parts if p is not type(None)), value, place, seed)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(parts[0], item, f"{place}[{i}]", seed) for i, item in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        return {str(k): _convert(parts[1], item, f"{place}.{k}", seed) for k, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    expected = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    raise ConfigError(f"{place!r} is {value!r} ({type(value).__name__}), expected {expected}")


def _check_range(name: str, value: Any, place: str) -> None:
    """Numbers are positive, or zero where that means something; shares are at most 1."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        lowest_is_zero = name in MAY_BE_ZERO
        if not (0 <= number < float("inf")) or (number == 0 and not lowest_is_zero) or (name in SHARES and number > 1):
            expected = "0 or more" if lowest_is_zero else "more than 0"
            raise ConfigError(f"{place!r} is {number}, expected {expected}{' and at most 1' * (name in SHARES)}")


def _suggest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
