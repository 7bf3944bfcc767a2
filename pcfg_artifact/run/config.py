"""Profiles: read from YAML, merged, changed by --set, and validated; an unknown key is an error.

profiles/paper.yaml sets every field.  The other profiles name it as `based_on` and list only what they change.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import resources
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.run import sections
from pcfg_artifact.run.given_grammar import fitted
from pcfg_artifact.run.sections import PretrainConfig, Profile


def profile_names() -> list[str]:
    folder = resources.files("pcfg_artifact.run") / "profiles"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_profile(name: str, settings: Sequence[str] = (), treebank: str | None = None,
                 grammar: str | None = None) -> Profile:
    """The named profile with `key=value` settings applied, e.g. `["seed=3", "sample.n_validation=100"]`.

    grammar: what is sampled from, in the place of one that is learned from a treebank.
    """
    values = _merged(name)
    for setting in settings:
        _apply(values, setting)
    if treebank is not None:
        values["treebank"] = treebank
    if grammar is not None:
        values["given"] = grammar
    profile = _validated({**values, "name": name})
    if not profile.treebank.strip():
        raise ConfigError("the treebank has no name (--treebank is empty); give `embedded`, `nltk`, or a folder, zip "
                          "or file of trees")
    if profile.given is not None:
        if treebank is not None:
            raise ConfigError("--treebank and --grammar name two sources; give the one that the run is about")
        if profile.marginals.target == "latent":
            raise ConfigError("'marginals.target' is latent, which is learned from a treebank's trees; a given grammar "
                              "has none: leave it at pcfg")
    for stage in ("probe", "attention", "incremental", "intervene"):
        if profile.stage(stage).max_length > profile.pretrain.max_length:
            raise ConfigError(f"'{stage}.max_length' is {profile.stage(stage).max_length}, expected at most "
                              f"{profile.pretrain.max_length}, the longest sentence the models read "
                              f"(pretrain.max_length)")
    _check_training(profile.pretrain)
    return profile if profile.given is None else fitted(profile)


def _check_training(cfg: PretrainConfig) -> None:
    for key, mark, names in (("models", "A", cfg.models), ("causal_models", "C", cfg.causal_models)):
        if wrong := [name for name in names if not name.startswith(mark)]:
            raise ConfigError(f"'pretrain.{key}' names {', '.join(wrong)}, expected names that begin with {mark}: "
                              f"masked models are A<heads>L<layers>, causal ones C<heads>L<layers>")
    if cfg.packing is not None and cfg.packing > cfg.max_length + 2:
        raise ConfigError(f"'pretrain.packing' is {cfg.packing}, expected at most {cfg.max_length + 2}: a block must "
                          f"fit into the model's positions (pretrain.max_length words, <s> and </s>)")
    if cfg.warmup_steps + cfg.hold_steps >= cfg.schedule_steps:
        raise ConfigError(f"'pretrain.warmup_steps' and 'pretrain.hold_steps' are {cfg.warmup_steps} and "
                          f"{cfg.hold_steps}, expected less than pretrain.schedule_steps ({cfg.schedule_steps}) "
                          f"together: the rate must have time to fall")


# ---- loading --------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are those a person would type: 2e-3 is one, which PyYAML's YAML 1.1 reads as a word."""


_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:int"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_Loader.add_implicit_resolver("!number", _NUMBER, list("-+.0123456789"))


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    if text.lstrip("+-").isdigit():
        return int(text)
    value = float(text)
    return int(value) if "." not in text and value.is_integer() else value  # 1e5 may count something


_Loader.add_constructor("!number", _number)


def read_yaml(text: str) -> Any:
    return yaml.load(text, _Loader)


def _merged(name: str) -> dict[str, Any]:
    known = profile_names()
    if name not in known:
        raise ConfigError(f"unknown profile {name!r}{_suggest(name, known)}; choose one of {', '.join(known)}")
    text = (resources.files("pcfg_artifact.run") / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    values = read_yaml(text) or {}
    base = values.pop("based_on", None)
    return values if base is None else _deep_merge(_merged(base), values)


def _deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _deep_merge(merged[key], value) if both else value
    return merged


def _apply(values: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {setting!r} is not of the form key=value, e.g. --set sample.n_validation=100")
    try:
        value = read_yaml(text)
    # YAML alone is not enough: a date that does not exist, a tag that does not fit, brackets nested thousands deep.
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"--set {setting[:60]!r}: the value is not valid YAML ({error})") from error
    *path, last = key.split(".")
    if key.split(".")[0] == "cost":  # for --dry-run alone, and not checked as the settings of stages are
        raise ConfigError(f"--set {setting[:60]!r}: 'cost' says what the profile takes; it is measured, not set")
    section: Any = values
    for part in path:
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise ConfigError(f"--set {setting!r}: {part!r} is a value, not a section")
    section[last] = value


# ---- validation -----------------------------------------------------------------------------------------------------


def _validated(values: dict[str, Any]) -> Profile:
    """The profile, or a ConfigError with a line for every wrong value; sections with a `seed` inherit the profile's."""
    for f in fields(Profile):
        stage = values.get(f.name)
        if isinstance(stage, dict) and f.name not in ("machine", "cost"):
            values[f.name] = {"seed": values.get("seed"), **stage}
    try:
        return TypeAdapter(Profile).validate_python(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_in_words(dict(problem)) for problem in error.errors())) from error


def _in_words(problem: dict[str, Any]) -> str:
    """What pydantic found, as a sentence: where, what is there, what is expected."""
    place, kind, value = _place(problem["loc"]), problem["type"], problem["input"]
    bounds = problem.get("ctx", {})
    if kind == "unexpected_keyword_argument":
        known = [f.name for f in fields(_section_of(problem["loc"][:-1]))]
        return f"unknown key {place!r}{_suggest(str(problem['loc'][-1]), known)}; known here: {', '.join(known)}"
    if kind == "missing":
        return f"{place!r} is not set; profiles/paper.yaml must set every field"
    expected = {
        "greater_than": f"more than {bounds.get('gt')}", "greater_than_equal": f"{bounds.get('ge')} or more",
        "less_than_equal": f"at most {bounds.get('le')}", "finite_number": "a finite number",
        "literal_error": "one of " + str(bounds.get("expected")).replace("'", "").replace(" or ", ", "),
        "int_type": "int", "int_from_float": "int", "float_type": "a number", "bool_type": "true or false",
        "value_error": str(bounds.get("error")), "too_short": "at least one",
        "string_type": "text", "tuple_type": "a list", "dataclass_type": "a section with keys",
    }.get(kind, problem["msg"])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    found = f"{value}" if is_number else f"{value!r} ({type(value).__name__})"
    return f"{place!r} is {found}, expected {expected}"


def _place(location: Sequence[str | int]) -> str:
    """`sample.n_validation`, `construct.lengths[1]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def _section_of(location: Sequence[str | int]) -> type:
    """The class of the section at a place of the profile."""
    types = {f.name: f.type for f in fields(Profile)}
    return getattr(sections, str(types[str(location[0])])) if location else Profile


def _suggest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
