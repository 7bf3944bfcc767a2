"""Named coordinates: a vector space cut into blocks, so that weights are written between names and not numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping


class Space:
    """Consecutive named blocks; `space[name]` is the block's slice of a vector of length `space.dim`.

    unions: names for runs of blocks, {name: (first block, last block)}; two runs may share a block.
    """

    def __init__(self, blocks: Iterable[tuple[Hashable, int]],
                 unions: Mapping[Hashable, tuple[Hashable, Hashable]] | None = None) -> None:
        self._slices: dict[Hashable, slice] = {}
        self.dim = 0
        for name, width in blocks:
            if name in self._slices:
                raise ValueError(f"the block {name!r} is named twice")
            self._slices[name] = slice(self.dim, self.dim + width)
            self.dim += width
        self.names = tuple(self._slices)
        self.unions = tuple(unions or {})
        for name, (first, last) in (unions or {}).items():
            self._slices[name] = slice(self._slices[first].start, self._slices[last].stop)

    def __getitem__(self, name: Hashable) -> slice:
        return self._slices[name]

    @property
    def widths(self) -> list[int]:
        return [self.width(name) for name in self.names]

    def width(self, name: Hashable) -> int:
        return self._slices[name].stop - self._slices[name].start
