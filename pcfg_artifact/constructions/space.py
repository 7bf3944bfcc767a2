"""Named coordinates: a vector space cut into blocks, so that weights are written between names and not numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Space:
    """Consecutive named blocks; `space[name]` is the block's slice of a vector of length `space.dim`."""

    def __init__(self, blocks: Iterable[tuple[Hashable, int]]) -> None:
        self._slices: dict[Hashable, slice] = {}
        self.dim = 0
        for name, width in blocks:
            if name in self._slices:
                raise ValueError(f"the block {name!r} is named twice")
            self._slices[name] = slice(self.dim, self.dim + width)
            self.dim += width

    def __getitem__(self, name: Hashable) -> slice:
        return self._slices[name]

    def __contains__(self, name: Hashable) -> bool:
        return name in self._slices

    @property
    def names(self) -> tuple[Hashable, ...]:
        return tuple(self._slices)

    @property
    def widths(self) -> list[int]:
        return [self.width(name) for name in self._slices]

    def width(self, name: Hashable) -> int:
        return self._slices[name].stop - self._slices[name].start
