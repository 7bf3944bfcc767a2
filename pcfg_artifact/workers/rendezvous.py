"""How the processes that train one model find each other, on one machine or on several."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pcfg_artifact.errors import UsageError

if TYPE_CHECKING:
    from pcfg_artifact.mlm.training import Place

# Extra arguments for torchrun, for training over several machines.
TORCHRUN = "PCFG_ARTIFACT_TORCHRUN"


class Meeting(NamedTuple):
    """Where the machines of a run meet, and the rest of torchrun's options for it."""

    host: str
    port: int
    run: str
    settings: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def parse(cls, options: Sequence[str]) -> Meeting | None:
        """From torchrun's own options; None where they name no place."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--rdzv-id", "--rdzv_id", default="pcfg_artifact")
        parser.add_argument("--rdzv-endpoint", "--rdzv_endpoint", default="")
        parser.add_argument("--rdzv-conf", "--rdzv_conf", default="")
        given, others = parser.parse_known_args(options)
        host, _, port = given.rdzv_endpoint.rpartition(":")
        if not host or not port.isdecimal():
            return None
        return cls(host, int(port), given.rdzv_id, tuple(filter(None, given.rdzv_conf.split(","))), tuple(others))


def torchrun_options(several_machines: Sequence[str], model: str, number: int = 0, follows: bool = False) -> list[str]:
    """torchrun's options for how the processes of one model find each other.

    Alone, by a number: a container without network cannot resolve the name it has.  Over several machines every model
    has an id and a port of its own: the place where the machines meet ends with the torchrun that opened it, and
    whoever came early for the next model would be left there.  Only the first machine opens it.
    """
    if not several_machines:
        return ["--standalone", "--local-addr=127.0.0.1"]
    meeting = Meeting.parse(several_machines)
    if meeting is None:
        raise UsageError(f"{TORCHRUN} is {' '.join(several_machines)!r}, expected --rdzv-endpoint=HOST:PORT in it "
                         f"(docs/CLUSTER.md)")
    settings = (*meeting.settings, f"is_host={0 if follows else 1}")
    return [*meeting.others, f"--rdzv-endpoint={meeting.host}:{meeting.port + number}",
            f"--rdzv-id={meeting.run}-{model}", f"--rdzv-conf={','.join(settings)}"]


def enter_group(device: str, precision: str, in_group: bool) -> Place:
    """Take the place that torchrun gives this process, or the only one; one thread, one GPU each."""
    import torch
    from torch import distributed

    from pcfg_artifact.mlm.training import Place, precision_of

    rank, world_size = (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) if in_group else (0, 1)
    torch.set_num_threads(1)
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK'] if in_group else 0}"
        torch.cuda.set_device(device)  # before anything is asked of a GPU
    precision = precision_of(precision, device)
    if world_size > 1:
        # NCCL that knows its GPU connects at once, and not at the first gradient; gloo has none.
        distributed.init_process_group("gloo" if device == "cpu" else "nccl",
                                       device_id=None if device == "cpu" else torch.device(device))
    return Place(rank, world_size, device, precision)


def leave_group(place: Place) -> None:
    from torch import distributed

    if place.world_size > 1:
        distributed.barrier()
        distributed.destroy_process_group()
