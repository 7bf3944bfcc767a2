"""What a container or a batch system grants this process: the limits of its control groups, of version 2 and 1.

Docker, Kubernetes and Slurm limit cores and memory there, and the machine's own figures do not show it.  A limit of any
group above ours holds for us too.  Where a container shows only its own group, that one is the root of the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")  # our group in each hierarchy, a line `number:controllers:path`
NO_LIMIT = 1 << 60  # bytes; version 1 says "none" with a number near the largest there is


class MemoryLimit(NamedTuple):
    """The group with the least left: what it may use, and how much of that is free."""

    total: int
    free: int


def core_limit(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Cores' worth of time that our groups may use, or None without a limit."""
    quotas = []
    for group in _groups(root, membership, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):  # else `max` or -1
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT, membership: Path = MEMBERSHIP) -> MemoryLimit | None:
    """The tightest memory limit of our groups, or None without one."""
    limits = []
    for group in _groups(root, membership, "memory"):
        limit = _text(group / "memory.max") or _text(group / "memory.limit_in_bytes")
        if limit.isdecimal() and int(limit) < NO_LIMIT:
            used = _text(group / "memory.current") or _text(group / "memory.usage_in_bytes") or "0"
            # Pages of files that nobody uses count as used, but are given up before anything is refused.
            cached = re.search(r"^(?:total_)?inactive_file (\d+)$", _inclusive(group), re.MULTILINE)
            in_use = int(used) - min(int(used), int(cached[1]) if cached else 0)
            limits.append(MemoryLimit(int(limit), max(0, int(limit) - in_use)))
    return min(limits, key=lambda limit: limit.free, default=None)


def _inclusive(group: Path) -> str:
    """memory.stat without the lines of version 1 that leave out the groups below."""
    text = _text(group / "memory.stat")
    return re.sub(r"^inactive_file .*$", "", text, flags=re.MULTILINE) if "total_inactive_file" in text else text


def _groups(root: Path, membership: Path, controller: str) -> Iterator[Path]:
    """Our group and all above it, in the hierarchy that has the controller and in the unified one."""
    for line in _text(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            tops = [root / controllers, root / controller]
        elif not controllers:
            tops = [root / "unified", root]  # beside version 1, or alone
        else:
            continue
        top = next((top for top in tops if top.is_dir()), root)
        group = top / path.strip("/")
        while group != top:
            if ".." not in group.parts:  # our group lies outside of what the container shows
                yield group
            group = group.parent
        yield top


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
