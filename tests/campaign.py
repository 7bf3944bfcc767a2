"""Numbered random cases within a budget; one that fails prints the command that repeats it alone.

Environment: PCFG_ARTIFACT_FUZZ_SECONDS (a budget for each fuzzer, 15), PCFG_ARTIFACT_FUZZ_COUNT (cases at most, no
limit), PCFG_ARTIFACT_FUZZ_SEED (0) and PCFG_ARTIFACT_FUZZ_FIRST (the number of the first case, 0).
"""

import os
import random
import time
from collections import Counter

SECONDS, COUNT, SEED, FIRST = (f"PCFG_ARTIFACT_FUZZ_{name}" for name in ("SECONDS", "COUNT", "SEED", "FIRST"))


class Campaign:
    """Runs cases until the budget is spent; `counts` is what they did, and is printed at the end."""

    def __init__(self, test: str) -> None:
        self.test = test
        self.seed, self.first = int(os.environ.get(SEED, "0")), int(os.environ.get(FIRST, "0"))
        self.count, self.seconds = int(os.environ.get(COUNT, "1000000000")), float(os.environ.get(SECONDS, "15"))
        self.counts: Counter[str] = Counter()

    def run(self, case) -> None:
        """case(rng, counts) for every number; whatever it raises fails the test with its reproduction."""
        stop = time.monotonic() + self.seconds
        for number in range(self.first, self.first + self.count):
            try:
                case(random.Random(f"{self.seed} {number}"), self.counts)
            except Exception as error:
                error.add_note(f"to repeat it: {SEED}={self.seed} {FIRST}={number} {COUNT}=1 "
                               f"./run_all.sh test '{self.test}'")
                raise
            self.counts["cases"] += 1
            if time.monotonic() > stop:
                break
        print(f"{self.test}, seed {self.seed}, from case {self.first}: "
              + ", ".join(f"{n:,} {what}" for what, n in self.counts.items()))
        assert self.counts["cases"] > 0
