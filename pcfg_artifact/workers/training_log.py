"""How far training is: lines of progress.jsonl that process 0 of each model writes, and what the main process tells."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcfg_artifact.errors import UsageError
from pcfg_artifact.run.stage_folder import PROGRESS
from pcfg_artifact.system.progress import duration

if TYPE_CHECKING:
    from pcfg_artifact.mlm.training import StepReport

TELL_SECONDS = 60.0


class ProgressLog:
    """Appends a line for every step whose loss was read, and repeats it to tensorboard where that is asked for."""

    def __init__(self, stage: Path, model: str, steps: int, first: int, tokens_per_step: float,
                 operations_per_step: float, peak_operations: float | None, memory_mb: Callable[[], float],
                 board: Any = None) -> None:
        """stage: the folder; peak_operations: a second, of all processes; None: not known, as on CPUs."""
        self._path, self._model, self._steps, self._first = stage / PROGRESS, model, steps, first
        self._tokens, self._operations, self._peak = tokens_per_step, operations_per_step, peak_operations
        self._memory_mb, self._board, self._began = memory_mb, board, time.monotonic()

    def __call__(self, report: StepReport) -> None:
        steps_per_second = (report.step - self._first) / max(time.monotonic() - self._began, 1e-9)
        line: dict[str, Any] = {
            "model": self._model, "step": report.step, "steps": self._steps, "loss": report.loss,
            "learning_rate": report.rate, "gradient_norm": report.gradient_norm, "loss_scale": report.loss_scale,
            "tokens_per_second": steps_per_second * self._tokens, "memory_mb": self._memory_mb(),
            "seconds_left": (self._steps - report.step) / steps_per_second, "time": time.time(),
            "share_of_peak": None if self._peak is None else steps_per_second * self._operations / self._peak}
        with open(self._path, "a", encoding="utf-8") as file:  # one write of one line: several models share the file
            file.write(json.dumps(line) + "\n")
        if self._board is not None:
            for name, value in line.items():
                if isinstance(value, int | float) and name not in ("step", "steps", "time"):
                    self._board.add_scalar(f"{self._model}/{name}", value, report.step)
            self._board.flush()


def board_of(log: str | None, folder: Path) -> Any:
    """A writer for tensorboard, if that is asked for."""
    if log is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UsageError("--log tensorboard needs the package tensorboard, which is not installed here; install it "
                         "with `.venv/bin/pip install tensorboard`, or leave the option out") from error
    return SummaryWriter(str(folder))


class ProgressReader:
    """The lines that were appended since this reader was made."""

    def __init__(self, stage: Path, tell: Callable[[str], None] | None) -> None:
        """tell: called with a line a model and minute; None: a person sees a progress bar."""
        self._path, self._tell = stage / PROGRESS, tell
        self._read = self._path.stat().st_size if self._path.is_file() else 0
        self._told = time.monotonic()
        self._fresh: dict[str, Mapping[str, Any]] = {}
        self.steps: dict[str, int] = {}  # of each model

    def steps_done(self) -> int:
        if self._path.is_file():
            with open(self._path, "rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + 1 if whole else 0
            for text in whole.splitlines():
                line = json.loads(text)
                self._fresh[line["model"]], self.steps[line["model"]] = line, line["step"]
        if self._tell is not None and time.monotonic() - self._told >= TELL_SECONDS:
            for line in self._fresh.values():
                self._tell(in_words(line))
            self._fresh, self._told = {}, time.monotonic()
        return sum(self.steps.values())


def in_words(line: Mapping[str, Any]) -> str:
    share = "" if line["share_of_peak"] is None else f", {line['share_of_peak']:.0%} of the peak"
    return (f"[pretrain] {line['model']} step {line['step']:,} of {line['steps']:,}, loss {line['loss']:.4f}, "
            f"{line['tokens_per_second']:,.0f} tokens/s{share}, {line['memory_mb'] / 1024:.1f} GB, "
            f"{duration(line['seconds_left'])} left")
