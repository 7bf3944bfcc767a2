"""The latent-variable PCFG value type: a PCFG whose rules carry tensors over the states of their symbols."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.system import storage

NAME = "latent"  # of the files in a grammar folder
FORMAT = "pcfg_artifact latent grammar"
VERSION = 1


@dataclass(frozen=True, eq=False)
class LatentPCFG:
    """A latent-variable PCFG over the symbols and rules of `pcfg`, with m(A) states for symbol A, at most S.

    n_states (N,).  root (N, S) and lexical (E, S): vectors, zero beyond the states of their symbol.
    tensors: those of all R binary rules one after another; rule A -> B C has shape (m(A), m(B), m(C)).
    Spectral estimates live in an unknown basis: single values mean nothing and may be negative; sums over states are
    estimates of probabilities.
    """

    pcfg: PCFG
    n_states: np.ndarray
    root: np.ndarray
    lexical: np.ndarray
    tensors: np.ndarray

    def __post_init__(self) -> None:
        n_symbols, most = self.pcfg.n_nonterminals, int(self.n_states.max(initial=0))
        shapes = [("n_states", self.n_states, (n_symbols,)), ("root", self.root, (n_symbols, most)),
                  ("lexical", self.lexical, (len(self.pcfg.lexical), most)),
                  ("tensors", self.tensors, (int(self.offsets[-1]),))]
        for name, array, shape in shapes:
            if array.shape != shape:
                raise GrammarError(f"{name} of the latent grammar has shape {array.shape}, expected {shape}; "
                                   f"learn it again")
            if not np.isfinite(array).all():
                raise GrammarError(f"{name} of the latent grammar holds a value that is not finite; learn it again")

    @property
    def offsets(self) -> np.ndarray:
        """(R+1,) where the tensor of each binary rule begins."""
        return tensor_offsets(self.pcfg, self.n_states)

    # ---- on disk: beside the PCFG in its folder --------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write latent.json and latent.npz into the grammar folder that holds the PCFG."""
        meta = {"format": FORMAT, "version": VERSION, "pcfg": _fingerprint(self.pcfg)}
        arrays = {name: getattr(self, name) for name in ("n_states", "root", "lexical", "tensors")}
        storage.save_bundle(Path(path), NAME, meta, arrays)

    @classmethod
    def load(cls, path: str | Path, pcfg: PCFG | None = None) -> LatentPCFG:
        """Read what `save` wrote, with the PCFG of the same folder unless it is given."""
        pcfg = PCFG.load(path) if pcfg is None else pcfg
        meta, arrays = storage.load_bundle(Path(path), NAME, FORMAT, VERSION, GrammarError)
        if meta.get("pcfg") != _fingerprint(pcfg):
            raise GrammarError(f"{Path(path) / NAME}.json belongs to another PCFG than the one beside it; "
                               f"learn both again with `learn --estimator spectral`")
        try:
            return cls(pcfg=pcfg, **arrays)
        except (TypeError, ValueError) as error:
            raise GrammarError(f"{path}: the latent grammar's parts do not fit together ({error}); "
                               f"learn it again") from error

    @staticmethod
    def is_in(path: str | Path) -> bool:
        """Whether a grammar folder holds a latent grammar."""
        return (Path(path) / f"{NAME}.json").is_file()


def tensor_offsets(pcfg: PCFG, n_states: np.ndarray) -> np.ndarray:
    """(R+1,) where the tensor of each binary rule begins among the tensors of all."""
    offsets = np.zeros(len(pcfg.binary) + 1, np.int64)
    np.cumsum(n_states[pcfg.binary].prod(axis=1), out=offsets[1:])
    return offsets


def _fingerprint(pcfg: PCFG) -> str:
    digest = hashlib.sha256("\n".join(pcfg.nonterminals + pcfg.words).encode())
    for array in (pcfg.root, pcfg.binary, pcfg.binary_prob, pcfg.lexical, pcfg.lexical_prob):
        digest.update(array.tobytes())
    return digest.hexdigest()
