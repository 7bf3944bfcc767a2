"""Single files on disk: atomic writes, hashes, JSON, arrays, and bundles of both.  Nothing here uses pickle."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from pcfg_artifact.errors import ArtifactError, CorruptArtifact, StageError

TEMPORARY = ".tmp-"  # prefix of files that are not finished
SEAL = "seal"  # the key of a sealed JSON file under which the hash of all its others stands

# Called with ("write" | "fsync" | "rename", path) before each of them: tests count them, and die at the n-th.
watchers: list[Callable[[str, Path], None]] = []


@contextmanager
def atomic_open(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary sibling for writing; it takes the name `path` only when all is on disk."""
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
        announce("write", temporary)
        with open(temporary, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            announce("fsync", temporary)
            os.fsync(file.fileno())
        rename(temporary, path)
    except OSError as error:
        raise StageError(f"cannot write {path}: {error.strerror or error}; free space or choose another --out, "
                         f"then run the same command again") from error
    finally:
        with suppress(OSError):  # there may be no such folder; what is wrong is said above
            temporary.unlink(missing_ok=True)


def announce(event: str, path: Path) -> None:
    for watcher in watchers:
        watcher(event, path)


def rename(old: Path, new: Path) -> None:
    """Give a finished file or folder its name, so that it keeps it when the machine stops a moment later."""
    announce("rename", new)
    os.replace(old, new)
    with suppress(OSError):  # some file systems cannot: there the name lasts when they write it
        _sync(new.parent)


def sync_folder(folder: Path) -> None:
    """Bring every file below a folder to disk: for what other libraries wrote there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            _sync(path)
    with suppress(OSError):
        _sync(folder)


def _sync(path: Path) -> None:
    announce("fsync", path)
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_bytes(path: Path, data: bytes) -> None:
    with atomic_open(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CorruptArtifact(f"{path} is missing; run the stage that writes it again") from error
    except (ValueError, RecursionError) as error:
        raise CorruptArtifact(f"{path} is not JSON ({error}); delete it and run the stage again") from error


def write_sealed_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON object with a hash of itself: for a piece of work that is trusted before its stage has a manifest."""
    plain = json.loads(json.dumps(value, allow_nan=False))  # as it is read back: keys of text, lists for tuples
    write_json(path, {**plain, SEAL: fingerprint(plain)})


def read_sealed_json(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get(SEAL), str):
        raise CorruptArtifact(f"{path} has no {SEAL!r}, which this release writes into it; delete it and run the stage "
                              f"again")
    seal = value.pop(SEAL)
    if fingerprint(value) != seal:
        raise CorruptArtifact(f"{path} was changed after it was written: its {SEAL!r} is of other contents; delete it "
                              f"and run the stage again")
    return value


def write_array(path: Path, array: np.ndarray) -> None:
    with atomic_open(path) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def read_array(path: Path, *, memory_map: bool = False) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r" if memory_map else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise CorruptArtifact(f"{path} is missing; run the stage that writes it again") from error
    except (ValueError, EOFError, OSError) as error:
        raise CorruptArtifact(f"{path} is not a NumPy array ({error}); delete it and run the stage again") from error


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(value: Any) -> str:
    """A hash of any JSON value; equal values give equal hashes whatever the order of their keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# ---- bundles: one JSON of names and one npz of arrays ---------------------------------------------------------------


def save_bundle(folder: Path, name: str, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write `name`.npz and then `name`.json, which holds the hash of the former."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_bytes(folder / f"{name}.npz", buffer.getvalue())
    write_json(folder / f"{name}.json", {**meta, "sha256": hashlib.sha256(buffer.getvalue()).hexdigest()})


def load_bundle(folder: Path, name: str, format_name: str, version: int,
                error_class: type[ArtifactError]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what save_bundle wrote; anything else is an `error_class` that says what is wrong."""
    meta_path, array_path = folder / f"{name}.json", folder / f"{name}.npz"
    for path in (meta_path, array_path):
        if not path.is_file():
            raise error_class(f"{path} not found; expected a folder with {name}.json and {name}.npz")
    try:
        meta = json.loads(meta_path.read_text(encoding="utf-8"))
        found = (meta.get("format"), meta.get("version"))
    except (ValueError, AttributeError, OSError) as error:
        raise error_class(f"{meta_path} cannot be read ({error}); the file is damaged or of another kind") from error
    if found != (format_name, version):
        raise error_class(f"{meta_path} says format {found[0]!r} version {found[1]!r}, "
                          f"expected {format_name!r} version {version}; write it again with this release")
    if sha256(array_path) != meta.get("sha256"):
        raise error_class(f"{array_path} does not have the SHA-256 that {meta_path.name} records; "
                          f"the file is damaged: write it again")
    try:
        with np.load(array_path, allow_pickle=False) as archive:
            return meta, {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, KeyError) as error:
        raise error_class(f"{array_path} cannot be read ({error}); the file is damaged: write it again") from error
