"""What a run keeps on disk (docs/reference/formats.md): ragged arrays, stage folders and manifests."""

from __future__ import annotations

import csv
import fcntl
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from pcfg_artifact.errors import CorruptArtifact, StageError, UsageError
from pcfg_artifact.metrics.schema import Metric, from_rows, to_csv
from pcfg_artifact.system import storage
from pcfg_artifact.system.progress import say
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.signs_of_life import lease

MANIFEST = "manifest.json"  # written last: its presence means "done"
STARTED = "started.json"  # the fingerprint a folder was begun with: equal means "continue", other means "wipe"
LOCK, LEASE = ".lock", ".lease"
METRICS = "metrics.csv"
PROGRESS = "progress.jsonl"  # how fast training went: times are no part of a stage's outputs


# ---- ragged arrays --------------------------------------------------------------------------------------------------


class RaggedWriter:
    """Writes `name`.values.npy and `name`.offsets.npy block by block; memory does not grow with the number of values.

    Both files appear when the `with` block ends without an error; otherwise neither does.
    """

    def __init__(self, path: Path, dtype: Any) -> None:
        self._path, self._dtype = path, np.dtype(dtype)
        self._lengths: list[np.ndarray] = []
        self._n_values = 0

    def __enter__(self) -> RaggedWriter:
        self._stack = ExitStack()
        values = self._path.with_name(f"{self._path.name}.values.npy")
        self._file = self._stack.enter_context(storage.atomic_open(values))
        self._write_header()
        return self

    def append(self, block: Ragged) -> None:
        self._file.write(np.ascontiguousarray(block.values, self._dtype).data)
        self._lengths.append(block.lengths.astype(np.int32))
        self._n_values += len(block.values)

    def __exit__(self, *failure: Any) -> bool | None:
        if failure[0] is None:
            self._write_header()
            offsets = np.zeros(sum(map(len, self._lengths)) + 1, np.int64)
            np.cumsum(np.concatenate([np.zeros(0, np.int32), *self._lengths]), out=offsets[1:])
            storage.write_array(self._path.with_name(f"{self._path.name}.offsets.npy"), offsets)
        return self._stack.__exit__(*failure)

    def _write_header(self) -> None:
        """NumPy pads headers so that the length can grow: the last header is as long as the first."""
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": self._dtype.str, "fortran_order": False, "shape": (self._n_values,)})


# ---- text ------------------------------------------------------------------------------------------------------------


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file with a header; lines that start with # are comments."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise CorruptArtifact(f"{path} is missing; run the stage that writes it again") from error
    return list(csv.DictReader(line for line in text.splitlines() if line and not line.startswith("#")))


# ---- stage folders --------------------------------------------------------------------------------------------------


class Folder:
    """Read access to the folder of a finished stage, or to any folder of files that we wrote."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def path(self, name: str) -> Path:
        return self.root / name

    def has(self, name: str) -> bool:
        return self.path(name).is_file()

    def json(self, name: str) -> Any:
        return storage.read_json(self.path(f"{name}.json"))

    def text(self, name: str) -> str:
        try:
            return self.path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptArtifact(f"{self.path(name)} cannot be read ({error}); run the stage again") from error

    def array(self, name: str, *, memory_map: bool = False) -> np.ndarray:
        return storage.read_array(self.path(f"{name}.npy"), memory_map=memory_map)

    def ragged(self, name: str, *, memory_map: bool = False) -> Ragged:
        return Ragged(self.array(f"{name}.values", memory_map=memory_map), self.array(f"{name}.offsets"))

    def metrics(self) -> list[Metric]:
        path = self.path(METRICS)
        return from_rows(read_csv(path), str(path)) if path.is_file() else []


class StageDir(Folder):
    """Write access to the folder of the running stage.  Every write is atomic: what exists is complete, so a resumed
    stage asks `has` and skips it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.facts: dict[str, Any] = {}  # throughput, memory and the like, for the manifest

    def write_json(self, name: str, value: Any) -> None:
        storage.write_json(self.path(f"{name}.json"), value)

    def write_text(self, name: str, text: str) -> None:
        storage.write_text(self.path(name), text)

    def write_array(self, name: str, array: np.ndarray) -> None:
        storage.write_array(self.path(f"{name}.npy"), array)

    def write_ragged(self, name: str, ragged: Ragged) -> None:
        self.write_array(f"{name}.values", ragged.values)
        self.write_array(f"{name}.offsets", ragged.offsets)

    def write_metrics(self, metrics: Iterable[Metric]) -> None:
        self.write_text(METRICS, to_csv(metrics))

    def files(self) -> list[str]:
        """Sorted names of the finished files in the folder, without those in scratch/."""
        names = (p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())
        return sorted(n for n in names if n not in (MANIFEST, STARTED, LOCK, PROGRESS) and not n.startswith("scratch/")
                      and not Path(n).name.startswith(storage.TEMPORARY))


# ---- manifests ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, config=ConfigDict(strict=True))
class Manifest:
    """What a finished stage read and wrote.  `fingerprint` covers config, inputs and code."""

    stage: str
    fingerprint: str
    config: dict[str, Any]
    inputs: dict[str, str]  # stage name, or "treebank" -> hash of what it held
    outputs: dict[str, str]  # file name -> SHA-256
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)  # source file of the package that it reaches -> SHA-256

    @property
    def output_hash(self) -> str:
        return storage.fingerprint(self.outputs)

    def write(self, folder: Path) -> None:
        storage.write_json(folder / MANIFEST, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of a finished stage, or None where there is none."""
        path = folder / MANIFEST
        if not path.is_file():
            return None
        try:
            return cls(**storage.read_json(path))
        except (TypeError, ValidationError) as error:
            problem = " ".join(str(error).split("For further information")[0].split())
            raise CorruptArtifact(f"{path} is not a manifest of this release ({problem}); "
                                  f"run the stage again with --force") from error

    def verify(self, folder: Path, parts: Sequence[str] | None = None) -> None:
        """Check every output (below `parts` of the folder, or all) against its recorded hash."""
        for name, expected in self.outputs.items():
            path = folder / name
            if parts is not None and Path(name).parts[0] not in parts:
                continue
            if not path.is_file():
                raise CorruptArtifact(f"{path} is missing although {MANIFEST} lists it; "
                                      f"run `--only {self.stage} --force` to make it again")
            if storage.sha256(path) != expected:
                raise CorruptArtifact(f"{path} does not have the SHA-256 that {MANIFEST} records: it was changed or "
                                      f"damaged; run `--only {self.stage} --force` to make it again")


def begin(folder: Path, mark: str, *, keeps: Sequence[str] = (), fresh: bool = False) -> StageDir:
    """Open a stage folder for writing.  Files begun with the same fingerprint `mark` stay, others are removed.

    keeps: entries that stay in any case, because the stage compares fingerprints of their own.  fresh: remove all.
    A folder with files but without a mark of ours is refused.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        started = folder / STARTED
        for stale in list(folder.rglob(f"{storage.TEMPORARY}*")):
            _remove(stale)
        present = [entry for entry in folder.iterdir() if entry.name not in (LOCK, STARTED)]
        if present and not started.is_file():
            raise UsageError(f"{folder} already holds files that no run of ours wrote (for example "
                             f"{present[0].name}); choose an empty folder for --out")
        is_other = present and started.read_bytes().strip() != mark.encode()
        for entry in present:
            if fresh or (is_other and entry.name not in keeps):
                _remove(entry)
    except OSError as error:
        raise StageError(f"cannot use {folder}: {error.strerror or error}; choose another --out") from error
    storage.write_text(started, mark + "\n")
    return StageDir(folder)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock an output folder for this process; the lock is released however the process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / LOCK, "w")  # noqa: SIM115 - held open for the whole run
    except OSError as error:
        raise UsageError(f"cannot use {folder} for output: {error.strerror or error}; "
                         f"pass a folder that can be written with --out") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held: AbstractContextManager[None] = nullcontext()
        except BlockingIOError as error:
            raise UsageError(f"{folder} is in use by another run; wait for it to end, or pass another --out") from error
        except OSError:  # some network file systems have no locks
            held = lease(folder / LEASE, say)
        with held:
            yield
