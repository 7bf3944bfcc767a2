"""What turns gradients into steps: AdamW, or Muon for the matrices of the layers and AdamW for the rest.

Muon makes every singular value of a matrix's step about equally large, so that directions which the gradient shows only
faintly are learned too; its steps are as long as AdamW's, and one learning rate serves both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from pcfg_artifact.mlm.model import LanguageModel

# What each stores of a parameter beside the weight: a checkpoint holds exactly this.
STATE: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"), torch.optim.Muon: ("momentum_buffer",)}
LAYER = re.compile(r"\.(layer|h)\.\d+\.")  # in the names of RoBERTa's and of GPT-2's parameters


def optimisers_of(model: LanguageModel, name: str, learning_rate: float, weight_decay: float,
                  betas: tuple[float, float], epsilon: float, decay_all: bool = False) -> list[torch.optim.Optimizer]:
    """One optimiser or two; every parameter of the model is in exactly one."""
    matrices = [p for path, p in model.named_parameters() if p.ndim == 2 and LAYER.search(path)]
    chosen = matrices if name == "muon" else []
    others = [p for p in model.parameters() if not any(p is matrix for matrix in chosen)]
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(
        parameter_groups(others, weight_decay, decay_all), lr=learning_rate, betas=betas, eps=epsilon, fused=True)]
    if chosen:
        found.append(torch.optim.Muon(chosen, lr=learning_rate, weight_decay=weight_decay,
                                      adjust_lr_fn="match_rms_adamw"))
    return found


def parameter_groups(parameters: Iterable[torch.nn.Parameter], weight_decay: float, decay_all: bool) -> list[dict]:
    """Matrices decay; biases and layer norms do so only if all parameters are to."""
    parameters = list(parameters)
    return [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": weight_decay if decay_all else 0.0}]


def state_of(optimisers: Iterable[torch.optim.Optimizer]) -> dict[torch.nn.Parameter, dict[str, torch.Tensor]]:
    """Parameter -> what its optimiser stores of it, by name; nothing before the first step."""
    return {p: {key: o.state[p][key] for key in STATE[type(o)] if key in o.state[p]}
            for o in optimisers for group in o.param_groups for p in group["params"]}


def state_names_of(optimisers: Iterable[torch.optim.Optimizer]) -> dict[torch.nn.Parameter, tuple[str, ...]]:
    """Parameter -> the names of what its optimiser stores of it."""
    return {p: STATE[type(o)] for o in optimisers for group in o.param_groups for p in group["params"]}


def put_back(optimisers: Iterable[torch.optim.Optimizer], state: dict[torch.nn.Parameter, dict[str, torch.Tensor]]
             ) -> None:
    """The reverse of `state_of`."""
    for o in optimisers:
        for group in o.param_groups:
            for p in group["params"]:
                o.state[p] = state[p]
