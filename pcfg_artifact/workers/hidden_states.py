"""Hidden states on disk: written once per model and corpus, memory-mapped by every process that fits a probe."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pcfg_artifact.errors import StageError
from pcfg_artifact.probing.corpus import Corpus, Layer
from pcfg_artifact.probing.representations import Pooling, extract, max_pieces
from pcfg_artifact.system import storage
from pcfg_artifact.system.machine import Machine
from pcfg_artifact.system.progress import ProgressBar, no_progress


def states_folder(stage: Path, machine: Machine) -> Path:
    """Where a stage keeps hidden states: in its folder, or on the disk that the user names, there from nothing in every
    run, because nobody vouches for what an earlier one left."""
    if machine.scratch is None:
        return stage / "scratch"
    folder = Path(machine.scratch).absolute() / f"pcfg-artifact-{storage.fingerprint(str(stage.resolve()))[:12]}"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def store_states(model: Any, tokenizer: Any, corpora: Mapping[str, Corpus], folder: Path, *, precision: str,
                 max_tokens: int, device: str, progress: ProgressBar = no_progress,
                 pooling: Pooling = "first") -> None:
    """Write the hidden states of every layer and corpus below `folder`; what a finished earlier run wrote is kept."""
    limit, longest = max_pieces(model), max(int(corpus.lengths.max()) for corpus in corpora.values())
    if limit is not None and longest + 2 > limit:
        raise StageError(f"a sentence of {longest} words does not fit into the {limit} positions of the model; "
                         f"lower probe.max_length to {limit - 2}")
    for name, corpus in corpora.items():
        place = folder / name
        if (place / "done").is_file():
            continue
        place.mkdir(parents=True, exist_ok=True)
        layers = extract(model, tokenizer, corpus.sentences, partial(_new_array, place, precision), pooling=pooling,
                         max_tokens=max_tokens, device=device,
                         progress=partial(progress, desc=f"hidden states, {name}"))
        for array in layers:
            if isinstance(array, np.memmap):
                array.flush()
        storage.write_text(place / "done", "")


def _new_array(place: Path, precision: str, layer: int, shape: tuple[int, int]) -> np.ndarray:
    """A memory map whose room on disk is taken at once: in a sparse one a full disk would be a SIGBUS."""
    path = _file(place, layer)
    try:
        array = np.lib.format.open_memmap(path, mode="w+", dtype=precision, shape=shape)
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        megabytes = np.dtype(precision).itemsize * shape[0] * shape[1] / 2**20
        path.unlink(missing_ok=True)
        raise StageError(f"cannot store the hidden states of a layer ({megabytes:,.0f} MB) in {place}: "
                         f"{error.strerror or error}; free space there, or choose another place (--out for a run, "
                         f"TMPDIR for the tool), and run the same command again") from error
    return array


def stored_layer(corpora: Mapping[str, Corpus], folder: Path, layer: int) -> dict[str, Layer]:
    """The corpora as one stored layer sees them, memory-mapped."""
    return {name: Layer(corpus, np.load(_file(folder / name, layer), mmap_mode="r", allow_pickle=False))
            for name, corpus in corpora.items()}


def _file(place: Path, layer: int) -> Path:
    return place / f"layer-{layer}.npy"
