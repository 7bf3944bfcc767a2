"""Treebank sources to cleaned trees: the embedded treebank, a file, a folder, a zip file, NLTK's sample.

Libraries open no files, except for those that a user names: every tool that takes `--treebank SOURCE` reads it here.
"""

from __future__ import annotations

import codecs
import gc
import gzip
import hashlib
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pcfg_artifact.errors import TreebankError
from pcfg_artifact.system.progress import ProgressBar, no_progress
from pcfg_artifact.treebank import arrow
from pcfg_artifact.treebank.brackets import BadTree, parse_trees
from pcfg_artifact.treebank.cleaning import AUTO, NON_WORDS, Cleaner, Renamed, leaves_of, rename_ambiguous_tags
from pcfg_artifact.treebank.tree import Tree

EMBEDDED, NLTK = "embedded", "nltk"
EMBEDDED_TREES = Path(__file__).with_name("embedded_trees.txt.gz")  # scripts/write_embedded_treebank.py writes it
EXPECTED = (f"`{EMBEDDED}`, `{NLTK}`, or the path of a file, a folder or a zip file of bracketed trees, or of a folder "
            f"written by datasets' save_to_disk")
# In folders and zip files, also with .gz behind; a file named by the user may have any name.
EXTENSIONS = (".mrg", ".tree", ".trees", ".ptb", ".psd", ".bracket", ".penn")
TEXT = ".txt"  # read where there is no other file, and where its text begins with a bracket: a README is no document
NAMES = ", ".join((*EXTENSIONS, TEXT))
HEAD = 4096  # bytes that show whether a text begins with a bracket
GZIP = b"\x1f\x8b"
REMOVED = {"non_words": f"leaves and nodes that hold no words ({', '.join(sorted(NON_WORDS))})",
           "traces": "traces and empty words", "empty_trees": "trees without a word",
           "emptied_nodes": "nodes left without a word", "function_tags": "function tags and indices of labels",
           "alternative_labels": "alternatives of labels, all but the first",
           "same_label_unaries": "nodes over one node of the same label", "outer_brackets": "outer brackets"}


@dataclass(frozen=True)
class Treebank:
    """The cleaned trees of a source by document (a file, named by its path below the source), and how they came about.

    n_raw: trees read before cleaning.  cleaning: how often each kind of change was made (names in cleaning.py).
    bad_trees: what was left out.  renamed: tags that head phrases too, and what they are called instead.
    passed_over: text files that do not begin with a bracket, in a source of text files.
    sha256: over the names and bytes of the documents, so a folder and a zip file of it agree.
    """

    source: str
    documents: Mapping[str, Sequence[Tree]]
    n_raw: int
    cleaning: Mapping[str, int]
    bad_trees: Sequence[BadTree]
    sha256: str
    renamed: Sequence[Renamed] = ()
    passed_over: Sequence[str] = ()

    @property
    def trees(self) -> list[Tree]:
        return [tree for trees in self.documents.values() for tree in trees]

    @property
    def n_trees(self) -> int:
        return sum(len(trees) for trees in self.documents.values())

    def cleaning_report(self, leaf_format: str | None = None) -> Iterator[str]:
        """Lines that say what reading left out or changed, with counts.

        leaf_format: the one that the user asked for, None where it cannot be chosen.
        """
        yield from (f"left out: {bad}" for bad in self.bad_trees)
        if self.bad_trees:
            yield f"{len(self.bad_trees):,} places left out, {self.n_raw:,} trees read"
        yield from (f"removed: {n:,} {what}" for count, what in REMOVED.items() if (n := self.cleaning.get(count)))
        if n := self.cleaning.get("lemmas"):
            why = {None: "detected", AUTO: "detected; --leaf-format plain keeps them"}.get(leaf_format,
                                                                                           "as --leaf-format says")
            yield f"leaves are word-lemma: {n:,} lemmas cut off ({why})"
        yield from (f"passed over: {name} does not begin with a bracket" for name in self.passed_over)
        yield from (f"renamed: {renamed}" for renamed in self.renamed)


def read_treebank(source: str | Path, *, skip_bad_trees: bool = False, progress: ProgressBar = no_progress,
                  leaf_format: str = AUTO) -> Treebank:
    """Read and clean all trees of `source`: `embedded`, `nltk`, or the path of a file, a folder or a zip file.

    In folders (searched to any depth) and zip files, the documents are the files that end in one of EXTENSIONS.
    leaf_format: what stands at the leaves, decided by document where it is `auto` (see cleaning.py).
    A file, folder or zip file whose name is `embedded` or `nltk` is meant by writing `./embedded`.
    """
    try:
        names, contents, passed_over = _documents(source)
        seen = progress(contents, total=len(names), desc="reading treebank")
        with _no_garbage_collection():
            treebank = _read(str(source), names, seen, skip_bad_trees, leaf_format)
        return replace(treebank, passed_over=passed_over)
    except OSError as error:
        raise TreebankError(f"cannot read {error.filename or source}: {error.strerror or error}; "
                            f"expected a readable file, folder or zip file of bracketed trees") from error


def source_hash(source: str | Path) -> str:
    """Treebank.sha256 of a source without parsing it."""
    digest = hashlib.sha256()
    try:
        names, contents, _ = _documents(source)
        for name, data in zip(_below_common_folder(names), contents, strict=True):
            _digest_document(digest, name, data)
    except OSError as error:
        raise TreebankError(f"cannot read {error.filename or source}: {error.strerror or error}") from error
    return digest.hexdigest()


def _read(source: str, names: Sequence[str], contents: Iterable[bytes], skip_bad_trees: bool, leaf_format: str
          ) -> Treebank:
    cleaner, digest = Cleaner(), hashlib.sha256()
    cleaned: dict[str, list[Tree]] = {}
    bad_trees: list[BadTree] = []
    n_raw = 0
    for name, hashed, data in zip(names, _below_common_folder(names), contents, strict=True):
        _digest_document(digest, hashed, data)
        raw, bad = parse_trees(_decode(data, name, skip_bad_trees), name, skip_bad_trees=skip_bad_trees)
        n_raw += len(raw)
        bad_trees += bad
        leaves = leaves_of(raw, leaf_format)
        trees = [clean for tree in raw if (clean := cleaner.clean(tree, leaves)) is not None]
        if trees:
            cleaned[name] = trees
    if not cleaned:
        first = f" (first: {bad_trees[0]})" if bad_trees else ""
        raise TreebankError(f"{source} holds no usable tree: {n_raw} read, {len(bad_trees)} bad{first}; "
                            f"expected bracketed trees such as (S (NP (PRP she)) (VP (VBZ runs)))")
    documents, renamed = rename_ambiguous_tags(cleaned)
    counts = dict(cleaner.counts)
    if renamed:  # not listed where there is none, as in every treebank whose tags are no phrase labels
        counts["renamed_tags"] = sum(item.n_words for item in renamed)
    return Treebank(source, documents, n_raw, counts, tuple(bad_trees), digest.hexdigest(), tuple(renamed))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Trees have no reference cycles, and looking for them takes more than half of the time of reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _below_common_folder(names: Sequence[str]) -> list[str]:
    """Names of documents below their common folder, so that the hash does not depend on that folder's name."""
    paths = [PurePosixPath(name).parts for name in names]
    levels = zip(*(path[:-1] for path in paths), strict=False)
    n_common = sum(1 for _ in takewhile(lambda folders: len(set(folders)) == 1, levels))
    return [str(PurePosixPath(*path[n_common:])) for path in paths]


def _digest_document(digest: hashlib._Hash, name: str, data: bytes) -> None:
    # The length keeps the border between two documents part of what is hashed.
    digest.update(f"{name}\0{len(data)}\0".encode(errors="surrogateescape"))
    digest.update(data)


def _decode(data: bytes, name: str, skip_bad_trees: bool) -> str:
    """The text of a document; where bad trees are skipped, bytes that are not UTF-8 stay visible as such."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if skip_bad_trees:
            return data.decode("utf-8-sig", errors="surrogateescape")
        line = data.count(b"\n", 0, error.start) + 1
        raise TreebankError(f"{name}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8 text; convert the file "
                            f"to UTF-8, or leave out its trees with --skip-bad-trees") from None


# ---- where the bytes come from ---------------------------------------------------------------------------------------


class Documents(NamedTuple):
    """Names of the documents in reading order, their bytes, and text files that are no documents."""

    names: list[str]
    contents: Iterator[bytes]
    passed_over: Sequence[str] = ()


def _documents(source: str | Path) -> Documents:
    if not str(source):
        raise TreebankError(f"the treebank has no name; expected {EXPECTED}")
    if str(source) == EMBEDDED:
        return Documents([EMBEDDED], iter([gzip.decompress(EMBEDDED_TREES.read_bytes())]))
    path = _nltk_sample() if str(source) == NLTK else Path(source)
    if arrow.is_saved_dataset(path):
        return Documents(*arrow.documents(path))
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise TreebankError(f"no treebank at {path}; expected {EXPECTED}")
    if not path.is_file():
        raise TreebankError(f"{path} is neither a file nor a folder; expected bracketed trees")
    if zipfile.is_zipfile(path):
        return _zip(path)
    if path.suffix.lower() == ".zip":
        raise TreebankError(f"{path} is not a zip file, whatever its name; copy or download it again")
    return Documents([path.name], iter([_unpacked(path.read_bytes(), path)]))


def _chosen(names: Iterable[PurePosixPath], head_of: Callable[[PurePosixPath], bytes]
            ) -> tuple[list[PurePosixPath], list[str]]:
    """The documents among the files of a folder or zip file, sorted, and text files that are no documents.

    head_of: the first bytes of a file.
    """
    seen = sorted(name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.parts))
    documents = [name for name in seen if _extension(name) in EXTENSIONS]
    if documents:
        return documents, []
    texts = {name: head_of(name).removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"(", GZIP))
             for name in seen if _extension(name) == TEXT}
    return [name for name, is_trees in texts.items() if is_trees], [str(name) for name, is_trees in texts.items()
                                                                    if not is_trees]


def _extension(name: PurePosixPath) -> str:
    lower = name.name.lower().removesuffix(".gz")
    return PurePosixPath(lower).suffix


def _unpacked(data: bytes, where: object) -> bytes:
    if not data.startswith(GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise TreebankError(f"cannot unpack {where}: {error}; copy or download it again") from error


def _folder(path: Path) -> Documents:
    # A pipe or a device is no document; a broken link is one, and reading it says so.
    files = [file for file in _files_below(path) if file.is_file() or not file.exists()]
    names, passed_over = _chosen((PurePosixPath(*file.relative_to(path).parts) for file in files),
                                 lambda name: _head(path / name))
    if not names:
        raise TreebankError(f"the folder {path} holds no treebank file; expected names ending in {NAMES}")
    return Documents([str(name) for name in names],
                     (_unpacked((path / name).read_bytes(), path / name) for name in names), passed_over)


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEAD)


def _files_below(path: Path) -> Iterator[Path]:
    """Every file below a folder, linked folders included; each folder once, whatever the number of links to it.

    A folder's own path comes before the links to it, so that a new link changes no document's name.
    """
    def stop(error: OSError) -> None:  # os.walk would pass over a folder that cannot be listed
        raise error

    seen: set[tuple[int, int]] = set()
    tops = [path]
    while tops:
        links: list[Path] = []
        for top in tops:
            for folder, subfolders, names in os.walk(top, onerror=stop):
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) in seen:
                    subfolders.clear()
                    continue
                seen.add((status.st_dev, status.st_ino))
                links += [link for name in subfolders if (link := Path(folder, name)).is_symlink()]
                yield from (Path(folder, name) for name in names)
        tops = sorted(links)


def _zip(path: Path) -> Documents:
    with _zip_errors(path), zipfile.ZipFile(path) as archive:
        # Two spellings of one path, as a.mrg and ./a.mrg, are one document: the later, as when unpacking.
        members = {PurePosixPath(info.filename): info for info in archive.infolist() if not info.is_dir()}
        names, passed_over = _chosen(members, lambda name: archive.open(members[name]).read(HEAD))
    if not names:
        raise TreebankError(f"the zip file {path} holds no treebank file; expected names ending in {NAMES}")
    return Documents([str(name) for name in names], _zip_contents(path, [members[name] for name in names]), passed_over)


def _zip_contents(path: Path, members: list[zipfile.ZipInfo]) -> Iterator[bytes]:
    with _zip_errors(path), zipfile.ZipFile(path) as archive:
        for member in members:
            with _zip_errors(f"{member.filename} in {path}"):
                data = archive.read(member)
            yield _unpacked(data, f"{member.filename} in {path}")


@contextmanager
def _zip_errors(where: object) -> Iterator[None]:
    try:
        yield
    # RuntimeError: encrypted, or a compression that Python lacks; the others: damaged.
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError, struct.error,
            IndexError) as error:
        raise TreebankError(f"cannot read {where}: {error}; expected a whole zip file without a password") from error


def _nltk_sample() -> Path:
    """The Penn Treebank sample among NLTK's data, where NLTK itself finds it, as a folder or a zip file."""
    import nltk.data  # here, because it takes a second that other sources need not pay

    # NLTK reads the variable when it is imported, which may have been before it was set.
    roots = [root for root in os.environ.get("NLTK_DATA", "").split(os.pathsep) if root] + nltk.data.path
    for name in ("corpora/treebank", "corpora/treebank.zip"):
        with suppress(LookupError):
            found = nltk.data.find(name, roots)
            if isinstance(found, nltk.data.FileSystemPathPointer):
                return Path(found.path)
            if isinstance(found, nltk.data.ZipFilePathPointer):
                return Path(found.zipfile.filename)
    raise TreebankError("NLTK's treebank sample is not on this machine; expected corpora/treebank or "
                        "corpora/treebank.zip in a folder named by NLTK_DATA, or in nltk_data in your home folder "
                        "(`python -m nltk.downloader treebank` puts it there)")
