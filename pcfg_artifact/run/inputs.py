"""What a stage reads: the verified folders of earlier stages, and the values and models in them that many want."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pcfg_artifact.errors import StageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import SampledTrees
from pcfg_artifact.metrics.models import CAUSAL, is_trained
from pcfg_artifact.metrics.schema import GIVEN
from pcfg_artifact.run.stage_folder import Folder
from pcfg_artifact.system import storage
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.treebank.binarise import VARIANTS, unbinarise
from pcfg_artifact.treebank.brackets import parse_trees
from pcfg_artifact.treebank.tree import Tree


class Inputs:
    """Read access to earlier stages; `source` is the treebank as the user named it, or with `is_given` the grammar, for
    the first stage alone."""

    def __init__(self, folders: Mapping[str, Path], source: str, *, is_given: bool = False) -> None:
        self._folders = dict(folders)
        self.source, self.is_given = source, is_given

    def __getitem__(self, stage: str) -> Folder:
        if stage not in self._folders:
            raise StageError(f"stage {stage!r} is not among this stage's inputs; add it to `reads` in run/pipeline.py")
        return Folder(self._folders[stage])

    def stages(self) -> tuple[str, ...]:
        return tuple(self._folders)

    @property
    def has_treebank(self) -> bool:
        """Whether the run's grammar was learned; a given one has neither treebank text nor a second variant."""
        return self["grammar"].json("sizes")["variant"] != GIVEN

    @property
    def variants(self) -> tuple[str, ...]:
        return VARIANTS if self.has_treebank else (GIVEN,)

    def pcfg(self, variant: str | None = None) -> PCFG:
        """The grammar that is sampled from, or the named variant."""
        grammar = self["grammar"]
        return PCFG.load(grammar.path(variant or grammar.json("sizes")["variant"]))

    def trees(self, split: str) -> list[Tree]:
        """Cleaned treebank trees of `train` or `test`; of a given grammar, trees that were drawn in their place."""
        if not self.has_treebank:
            drawn = SampledTrees(self.pcfg(), self["grammar"].ragged(f"{split}/rules"), n_rejected=0)
            return [unbinarise(tree) for tree in drawn]
        name = f"{split}.trees"
        return parse_trees(self["grammar"].text(name), name)[0]

    def sentences(self, split: str) -> Ragged:
        """Word ids of the sampled sentences of a split, memory-mapped."""
        return self["sample"].ragged(f"{split}/tokens", memory_map=True)

    def sampled_trees(self, split: str) -> SampledTrees:
        """The sampled binary trees of a split whose trees are stored (all but pretraining)."""
        return SampledTrees(self.pcfg(), self["sample"].ragged(f"{split}/rules"), n_rejected=0)


# ---- models in the folder of the stage `pretrain` --------------------------------------------------------------------


def model_folders(pretrain: Folder, *, is_causal: bool = False) -> dict[str, Path]:
    """Every masked model of a finished stage `pretrain` by name, or every causal one."""
    return {path.parent.name: path.parent for path in sorted(pretrain.root.glob("models/*/config.json"))
            if is_trained(path.parent.name, CAUSAL) is is_causal}


def untrained_folder(pretrain: Folder, name: str) -> Path:
    """A model of the stage as it was before its first step."""
    return pretrain.path(f"untrained/{name}")


def kept_folders(pretrain: Folder, name: str) -> dict[int, Path]:
    """Step -> folder of a model, from before its first step to its last."""
    training = storage.read_sealed_json(pretrain.path(f"models/{name}/training.json"))
    steps = {int(folder.removeprefix("step-")): pretrain.path(f"kept/{name}/{folder}")
             for folder in training["kept_sha256"]}
    return {0: untrained_folder(pretrain, name), **dict(sorted(steps.items())),
            len(training["losses"]): pretrain.path(f"models/{name}")}
