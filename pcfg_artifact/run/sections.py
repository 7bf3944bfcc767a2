"""The sections of a profile, one a stage: frozen and typed, the bounds of a field beside it.  pydantic checks them."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from pcfg_artifact.metrics.models import CONTROL_TEXTS, roles_of, trained_on

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
ControlTexts = Annotated[tuple[Literal[CONTROL_TEXTS], ...], AfterValidator(_without_repeats)]  # type: ignore[valid-type]

READ_TOKENS = 2_048  # where `batch_tokens: auto` has no GPU to ask; what a CPU's caches like
CLOSED = ConfigDict(extra="forbid")  # of every section


@dataclass(frozen=True, config=CLOSED)
class MachineConfig:
    """What a run may use.  It never changes a result, so it is no part of a stage's fingerprint."""

    device: Literal["auto", "cpu", "cuda"]
    n_workers: Count | None  # None: every core this process may use
    n_gpus: Count | None  # None: every visible one; more than there are is refused before the run
    restarts: CountOrZero  # of the processes that train a model, after one of them failed
    log: Literal["tensorboard"] | None  # beside progress.jsonl, where it is installed
    trial: Flag  # `doctor --gpu` before the first stage
    scratch: str | None  # a folder for hidden states, such as a disk of this node; None: that of their stage


@dataclass(frozen=True, config=CLOSED)
class GrammarConfig:
    """Stage `grammar`: treebank to PCFG (both variants are learned; `variant` is the one that is sampled from)."""

    seed: CountOrZero
    variant: Literal["vm", "novm"]
    cutoff: CountOrZero  # words seen this often or less become signatures
    skip_bad_trees: Flag
    n_train: Count = 4_000  # trees drawn from a given grammar, in the place of a treebank's
    n_test: Count = 1_000
    longest: Count | None = None  # of a given grammar: begin at constituents that are short enough (given_grammar.py)


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
    backend: Literal["auto", "cpu", "gpu"]  # auto: gpu where the device is one and is expected to be faster


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
    merged_smoothing: ShareOrZero | None = None  # back-off in merged grammars; None: their transformer is not built


@dataclass(frozen=True, config=CLOSED)
class PretrainConfig:
    """Stage `pretrain`: language models on sampled sentences: A<heads>L<layers> masked, C<heads>L<layers> causal."""

    seed: CountOrZero
    models: Names
    causal_models: NamesOrNone
    width: Count
    layer_norm: Literal["pre", "post"]  # before the input of every block, or after its output
    initial_scale: Positive  # standard deviation of the random weights
    dropout: ShareOrZero
    max_length: Count  # words a model can read; longer sentences are left out and counted
    packing: Annotated[int, Field(ge=3, strict=True)] | None  # tokens of a block; None: a row is one sentence
    mask_rate: Share
    corruption: Literal["mask", "80/10/10"]
    batch_size: Count  # rows (sentences or blocks) of a global batch, over all processes and micro-batches
    # Padded tokens of one micro-batch of one process: memory and speed, not results; auto: as many as a GPU holds.
    batch_tokens: Count | Literal["auto"]
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
    mask_any_token: Flag = False  # a fixed share of a row's tokens is hidden, </s> included, instead of words by chance
    decay_all: Flag = False  # biases and layer norms decay too
    # Controls of what the models learn, off where a profile does not ask for them.
    control_texts: ControlTexts = ()  # the base model is trained on these too (mlm/control_texts.py)
    windows: tuple[Count, ...] = ()  # words on each side of a masked one that the best predictors of a window see
    layer_use: Flag = False  # what every model loses where a layer looks everywhere alike, or is left out

    @property
    def control_models(self) -> dict[str, str]:
        """The base model trained on each control text -> the text."""
        base = roles_of(self.models).base
        return {} if base is None else {trained_on(base, text): text for text in self.control_texts}

    @property
    def masked_models(self) -> tuple[str, ...]:
        return (*self.models, *self.control_models)

    @property
    def all_models(self) -> tuple[str, ...]:
        """Every model that is trained, in the order of training: those that are not the paper's last."""
        return (*self.models, *self.causal_models, *self.control_models)

    @property
    def read_tokens(self) -> int:
        """Padded tokens that a model reads at a time where nothing is trained."""
        return READ_TOKENS if self.batch_tokens == "auto" else self.batch_tokens


@dataclass(frozen=True, config=CLOSED)
class ProbeConfig:
    """Stage `probe`; `control` uses the same corpora and fits."""

    seed: CountOrZero
    n_train: Count  # sentences that a probe is fitted on, sampled and treebank alike
    n_test: Count
    max_length: Count  # words; longer sentences are passed over
    probes: Names  # in the registry of probing/probes.py
    adjacent: Literal["none", "base", "all"]  # models probed with the inputs beside EOS as well
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
    windows: tuple[Count, ...] = ()  # words on each side of a word, or of a span's ends, that probes read at layer 0


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
    by_layer: Flag = False  # beside the distance of every head: entropy, and distance over that of uniform attention


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
    beliefs: Flag  # whether probes are also asked what may come next
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
    given: str | None = None  # the grammar of --grammar, in the place of a treebank

    def stage(self, name: str) -> Any:
        return getattr(self, name)


def as_json(section: Any) -> dict[str, Any]:
    """A config section as plain JSON values, for manifests and fingerprints.

    A field that has a default was added after runs had been recorded: at its default it is left out, so that those runs
    are still runs of the same settings.
    """
    unused = {field.name for field in fields(section)
              if field.default is not MISSING and getattr(section, field.name) == field.default}
    return {name: value for name, value in asdict(section).items() if name not in unused}
