"""Profiles: frozen, typed sections, loaded from YAML, merged, validated and hashed; an unknown key is an error.

profiles/paper.yaml sets every field.  The other profiles name it as `based_on` and list only what they change.  The
bounds of a field stand beside it; pydantic checks them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib import resources
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from pcfg_artifact.errors import ConfigError

Count = Annotated[int, Field(gt=0, strict=True)]
CountOrZero = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
PositiveOrZero = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
ShareOrZero = Annotated[float, Field(ge=0, le=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


def _without_repeats(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"each name once, not {', '.join(twice)} again")
    return names


NamesOrNone = Annotated[tuple[str, ...], AfterValidator(_without_repeats)]
Names = Annotated[NamesOrNone, Field(min_length=1)]

CLOSED = ConfigDict(extra="forbid")  # of every section


@dataclass(frozen=True, config=CLOSED)
class MachineConfig:
    """What a run may use.  It never changes a result, so it is no part of a stage's fingerprint."""

    device: Literal["auto", "cpu", "cuda"]
    n_workers: Count | None  # None: every core this process may use
    n_gpus: Count | None  # None: every visible one; more than there are is refused before the run


@dataclass(frozen=True, config=CLOSED)
class GrammarConfig:
    """Stage `grammar`: treebank to PCFG (both variants are learned; `variant` is the one that is sampled from)."""

    seed: CountOrZero
    variant: Literal["vm", "novm"]
    cutoff: CountOrZero  # words seen this often or less become signatures
    skip_bad_trees: Flag


@dataclass(frozen=True, config=CLOSED)
class SampleConfig:
    """Stage `sample`: sentences per split, drawn from the grammar."""

    seed: CountOrZero
    max_length: Count | None
    n_pretraining: Count
    n_validation: Count
    n_probe_train: Count
    n_probe_test: Count


@dataclass(frozen=True, config=CLOSED)
class MarginalsConfig:
    """Stage `marginals`: exact Inside-Outside of what is probed, and the exact optimum of masked words."""

    seed: CountOrZero
    target: Literal["pcfg", "latent"]  # whose marginals are the probed span scores of treebank sentences
    max_length: Count  # words; longer sentences are left out and counted
    n_train: Count  # treebank training sentences, from the first
    n_masked: Count  # validation sentences whose masked words are predicted exactly
    mask_max_length: Count  # words; the exact optimum costs their cube


@dataclass(frozen=True, config=CLOSED)
class ApproximateConfig:
    """Stage `approximate`: few non-terminals, low rank, their ablations, merged grammars."""

    seed: CountOrZero
    n_interminals: tuple[Count, ...]  # rows of table 1
    n_preterminals: Count
    n_projected: Count  # in-terminals under a low-rank transform
    ranks: tuple[Count, ...]  # rows of table 2
    max_length: Count  # of test sentences, in words
    n_test: Count | None  # None: all
    n_training: Count  # treebank sentences from which transforms are learned
    max_training_length: Count
    n_drawn: Count  # sampled sentences for perplexity
    max_drawn_length: Count
    ablation_ranks: tuple[Count, ...]
    n_ablation_test: Count | None
    n_ablation_drawn: Count | None
    merged_interminals: tuple[Count, ...]
    smoothing: ShareOrZero  # share of the back-off in merged grammars


@dataclass(frozen=True, config=CLOSED)
class ConstructConfig:
    """Stage `construct`: transformers with weights read off the grammar."""

    seed: CountOrZero
    max_length: Count  # L of the theorems, in words
    lengths: tuple[Count, ...]  # of the sampled sentences on which charts are compared
    n_per_length: Count
    n_interminals: Count  # of the approximate models, and the next two
    n_preterminals: Count
    rank: Count
    sign_rule: Literal["clip", "literal", "signed"]
    n_training: Count  # treebank sentences from which transforms are learned
    n_parsed: Count  # treebank test sentences that the approximate models parse
    n_dense: CountOrZero  # of them, the longest also go through full matrices


@dataclass(frozen=True, config=CLOSED)
class PretrainConfig:
    """Stage `pretrain`: language models on sampled sentences: A<heads>L<layers> masked, C<heads>L<layers> causal."""

    seed: CountOrZero
    models: Names
    causal_models: NamesOrNone
    width: Count
    layer_norm: Literal["pre", "post"]  # before the input of every block, or after its output
    initialisation: Literal["random", "structured"]  # structured: from neighbour counts (mlm/initialisation.py)
    initial_scale: Positive  # standard deviation of the random weights
    dropout: ShareOrZero
    max_length: Count  # words a model can read; longer sentences are left out and counted
    packing: Annotated[int, Field(ge=3, strict=True)] | None  # tokens of a block; None: a row is one sentence
    mask_rate: Share
    corruption: Literal["mask", "80/10/10"]
    batch_size: Count  # rows (sentences or blocks) of a global batch, over all processes and micro-batches
    batch_tokens: Count  # padded tokens of one micro-batch of one process: memory and speed, not results
    steps: Count  # training stops here
    schedule_steps: Count  # the learning rate reaches zero here
    warmup_steps: CountOrZero
    hold_steps: CountOrZero  # at the peak of the learning rate, before it falls
    learning_rate: Positive
    weight_decay: PositiveOrZero
    clip: Positive | None  # of the gradient's length; None: not clipped
    optimiser: Literal["adamw", "muon"]  # muon: for the matrices of the layers (mlm/optimisers.py)
    precision: Literal["auto", "float32", "bfloat16", "float16", "float64"]
    processes: Count | None  # None: one per visible GPU, one on CPU
    save_every: Count  # steps between checkpoints
    n_kept: CountOrZero  # models kept on the way, at steps that grow by equal factors; 0: none
    validate_every: Count  # steps between points of the validation curve
    n_curve: Count  # validation rows of such a point
    n_exact: Count  # validation sentences for the comparison with the exact optimum
    exact_max_length: Count  # words; the exact optimum costs their cube

    @property
    def all_models(self) -> tuple[str, ...]:
        """Every model that is trained, in the order of training."""
        return (*self.models, *self.causal_models)


@dataclass(frozen=True, config=CLOSED)
class ProbeConfig:
    """Stage `probe`; `control` uses the same corpora and fits."""

    seed: CountOrZero
    n_train: Count  # sentences that a probe is fitted on, sampled and treebank alike
    n_test: Count
    max_length: Count  # words; longer sentences are passed over
    probes: Names  # in the registry of probing/probes.py
    adjacent: Literal["none", "base", "all"]  # models probed with the input ADJ as well
    nary: Literal["none", "base", "all"]  # models probed with n-ary labels as well
    widths: tuple[Count, ...]  # of the spans whose marginals are probed
    marginal_layers: Literal["ends", "all"]  # ends: layer 0 and the last
    random_weights: Flag  # probe the base model's architecture before training too
    n_seeds: Count  # nets of the 2-layer probe, differing in their first weights
    linear_iterations: Count  # L-BFGS steps at most; whether they sufficed is recorded
    inverse_penalty: Positive  # as scikit-learn defines C
    n_hidden: Count
    epochs: Count
    learning_rate: Positive
    milestones: tuple[Count, ...]  # epochs after which the learning rate falls to a tenth
    batch_size: Count
    precision: Literal["float16", "float32"]  # of hidden states on disk
    batch_tokens: Count  # padded tokens a model reads at a time: memory, not results
    n_scatter: Count  # spans drawn in the scatter plots
    widest: Annotated[int, Field(ge=2, le=20, strict=True)]  # words: F1 by span width goes up to here


@dataclass(frozen=True, config=CLOSED)
class ControlConfig:
    """Stage `control`: the seed decides the random labels."""

    seed: CountOrZero


@dataclass(frozen=True, config=CLOSED)
class AttentionConfig:
    """Stage `attention`."""

    seed: CountOrZero
    n_sentences: Count
    max_length: Count
    batch_tokens: Count


@dataclass(frozen=True, config=CLOSED)
class IncrementalConfig:
    """Stage `incremental`: causal models beside exact inference from left to right."""

    seed: CountOrZero
    n_exact: Count  # validation sentences whose next words are predicted exactly
    max_length: Count  # words of all sentences of the stage; longer ones are passed over
    n_train: Count  # sampled sentences that probes are fitted on
    n_test: Count  # sampled sentences that probes are scored on, and whose posteriors are followed word by word
    widths: tuple[Count, ...]  # of the spans that probes are asked for
    delays: CountOrZero  # words after the end of a span, at most, at which it is asked for
    batch_tokens: Count  # padded tokens a model reads at a time: memory, not results


@dataclass(frozen=True, config=CLOSED)
class InterveneConfig:
    """Stage `intervene`: the base model, on sampled sentences; probes are fitted with the options of `probe`."""

    seed: CountOrZero
    mask_rate: Share  # of the words that are not seen
    max_length: Count  # words; exact answers cost their cube
    n_train: Count  # sentences that the probes are fitted on, half of them each
    n_test: Count  # sentences that spans in question are taken from
    widths: tuple[Count, ...]  # of these spans
    n_questions: Count  # spans of each width
    n_constructed: Count  # spans put to the constructed transformer
    constructed_length: Count  # words of its sentences, at most


@dataclass(frozen=True, config=CLOSED)
class DynamicsConfig:
    """Stage `dynamics`: the base model, and the causal one of its shape, at every step that was kept.

    Masks and widths are those of `intervene`.
    """

    seed: CountOrZero
    n_train: Count  # treebank sentences of the probe, and masked ones of the interventions
    n_test: Count
    n_questions: Count  # spans of each width
    n_loss: Count  # validation sentences for the distance from the optimum
    n_attention: Count  # sentences for the attended distance


@dataclass(frozen=True, config=CLOSED)
class VerifyConfig:
    """Stage `verify`."""

    seed: CountOrZero
    expected: str  # the folder of expected_results/ this run is judged against


@dataclass(frozen=True, config=CLOSED)
class Profile:
    """One complete description of a run."""

    name: str
    seed: CountOrZero
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
    incremental: IncrementalConfig
    intervene: InterveneConfig
    dynamics: DynamicsConfig
    verify: VerifyConfig
    cost: dict[str, Any]  # stage -> [seconds, megabytes on disk] and what `training` assumes; for --dry-run alone

    def stage(self, name: str) -> Any:
        return getattr(self, name)


def profile_names() -> list[str]:
    folder = resources.files("pcfg_artifact.run") / "profiles"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_profile(name: str, settings: Sequence[str] = (), treebank: str | None = None) -> Profile:
    """The named profile with `key=value` settings applied, e.g. `["seed=3", "sample.n_validation=100"]`."""
    values = _merged(name)
    for setting in settings:
        _apply(values, setting)
    if treebank is not None:
        values["treebank"] = treebank
    profile = _validated({**values, "name": name})
    if not profile.treebank.strip():
        raise ConfigError("the treebank has no name (--treebank is empty); give `embedded`, `nltk`, or a folder, zip "
                          "or file of trees")
    for stage in ("probe", "attention", "incremental", "intervene"):
        if profile.stage(stage).max_length > profile.pretrain.max_length:
            raise ConfigError(f"'{stage}.max_length' is {profile.stage(stage).max_length}, expected at most "
                              f"{profile.pretrain.max_length}, the longest sentence the models read "
                              f"(pretrain.max_length)")
    _check_training(profile.pretrain)
    return profile


def _check_training(cfg: PretrainConfig) -> None:
    for key, mark, names in (("models", "A", cfg.models), ("causal_models", "C", cfg.causal_models)):
        if wrong := [name for name in names if not name.startswith(mark)]:
            raise ConfigError(f"'pretrain.{key}' names {', '.join(wrong)}, expected names that begin with {mark}: "
                              f"masked models are A<heads>L<layers>, causal ones C<heads>L<layers>")
    if cfg.packing is not None and cfg.packing > cfg.max_length + 2:
        raise ConfigError(f"'pretrain.packing' is {cfg.packing}, expected at most {cfg.max_length + 2}: a block must "
                          f"fit into the model's positions (pretrain.max_length words, <s> and </s>)")
    if cfg.warmup_steps + cfg.hold_steps >= cfg.schedule_steps:
        raise ConfigError(f"'pretrain.warmup_steps' and 'pretrain.hold_steps' are {cfg.warmup_steps} and "
                          f"{cfg.hold_steps}, expected less than pretrain.schedule_steps ({cfg.schedule_steps}) "
                          f"together: the rate must have time to fall")


def as_json(section: Any) -> dict[str, Any]:
    """A config section as plain JSON values, for manifests and fingerprints."""
    return asdict(section)


# ---- loading --------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are those a person would type: 2e-3 is one, which PyYAML's YAML 1.1 reads as a word."""


_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:int"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_Loader.add_implicit_resolver("!number", _NUMBER, list("-+.0123456789"))


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    if text.lstrip("+-").isdigit():
        return int(text)
    value = float(text)
    return int(value) if "." not in text and value.is_integer() else value  # 1e5 may count something


_Loader.add_constructor("!number", _number)


def read_yaml(text: str) -> Any:
    return yaml.load(text, _Loader)


def _merged(name: str) -> dict[str, Any]:
    known = profile_names()
    if name not in known:
        raise ConfigError(f"unknown profile {name!r}{_suggest(name, known)}; choose one of {', '.join(known)}")
    text = (resources.files("pcfg_artifact.run") / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    values = read_yaml(text) or {}
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
        value = read_yaml(text)
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


def _validated(values: dict[str, Any]) -> Profile:
    """The profile, or a ConfigError with a line for every wrong value; sections with a `seed` inherit the profile's."""
    for f in fields(Profile):
        stage = values.get(f.name)
        if isinstance(stage, dict) and f.name not in ("machine", "cost"):
            values[f.name] = {"seed": values.get("seed"), **stage}
    try:
        return TypeAdapter(Profile).validate_python(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_in_words(dict(problem)) for problem in error.errors())) from error


def _in_words(problem: dict[str, Any]) -> str:
    """What pydantic found, as a sentence: where, what is there, what is expected."""
    place, kind, value = _place(problem["loc"]), problem["type"], problem["input"]
    bounds = problem.get("ctx", {})
    if kind == "unexpected_keyword_argument":
        known = [f.name for f in fields(_section_of(problem["loc"][:-1]))]
        return f"unknown key {place!r}{_suggest(str(problem['loc'][-1]), known)}; known here: {', '.join(known)}"
    if kind == "missing":
        return f"{place!r} is not set; profiles/paper.yaml must set every field"
    expected = {
        "greater_than": f"more than {bounds.get('gt')}", "greater_than_equal": f"{bounds.get('ge')} or more",
        "less_than_equal": f"at most {bounds.get('le')}", "finite_number": "a finite number",
        "literal_error": "one of " + str(bounds.get("expected")).replace("'", "").replace(" or ", ", "),
        "int_type": "int", "int_from_float": "int", "float_type": "a number", "bool_type": "true or false",
        "value_error": str(bounds.get("error")), "too_short": "at least one",
        "string_type": "text", "tuple_type": "a list", "dataclass_type": "a section with keys",
    }.get(kind, problem["msg"])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    found = f"{value}" if is_number else f"{value!r} ({type(value).__name__})"
    return f"{place!r} is {found}, expected {expected}"


def _place(location: Sequence[str | int]) -> str:
    """`sample.n_validation`, `construct.lengths[1]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def _section_of(location: Sequence[str | int]) -> type:
    """The class of the section at a place of the profile."""
    types = {f.name: f.type for f in fields(Profile)}
    return globals()[str(types[str(location[0])])] if location else Profile


def _suggest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
