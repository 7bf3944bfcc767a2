"""The constructed transformers made known to transformers' AutoConfig and AutoModel, without loading transformers.

transformers takes seconds to load and most uses of the constructions have none of it.  So what it must be told waits
until somebody imports its auto classes, before or after this package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def _register_config() -> None:
    from transformers.models.auto.configuration_auto import AutoConfig

    from pcfg_artifact.constructions.constructed_config import ConstructedConfig
    AutoConfig.register(ConstructedConfig.model_type, ConstructedConfig, exist_ok=True)


def _register_model() -> None:
    from transformers.models.auto.modeling_auto import AutoModel

    from pcfg_artifact.constructions.constructed_config import ConstructedConfig
    from pcfg_artifact.constructions.constructed_model import ConstructedModel
    AutoModel.register(ConstructedConfig, ConstructedModel, exist_ok=True)


WAITING = {"transformers.models.auto.configuration_auto": _register_config,
           "transformers.models.auto.modeling_auto": _register_model}


def register_when_loaded() -> None:
    """Register now what is loaded, and the rest when it is."""
    for name, register in WAITING.items():
        if name in sys.modules:
            register()
    if not all(name in sys.modules for name in WAITING):
        sys.meta_path.insert(0, _WhenLoaded())


class _WhenLoaded(MetaPathFinder):
    """Sees the auto modules come, and calls what waits for them once they are there."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in WAITING:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self or isinstance(finder, _WhenLoaded) else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Calling(spec.loader, WAITING[name])
                return spec
        return None


class _Calling(Loader):
    """A loader that calls a function after its module is there."""

    def __init__(self, loader: Loader, function: Any) -> None:
        self._loader, self._function = loader, function

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._function()

    def __getattr__(self, name: str) -> Any:  # get_source and its like, for tracebacks
        return getattr(self._loader, name)
