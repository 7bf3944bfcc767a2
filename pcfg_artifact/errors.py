"""Errors a user can meet: each says what was found, what was expected, where, and what to do."""


class Terminated(KeyboardInterrupt):
    """A signal that ends a run while its workers save what they have; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class ArtifactError(Exception):
    """Base of all expected failures; the command line prints its message alone and exits with `exit_code`."""

    exit_code = 2


class UsageError(ArtifactError):
    """The request itself was refused: an unknown name, a wrong type, a folder in use."""


# What an installation without extras lacks: the extra of pyproject.toml -> the packages that are imported from it.
EXTRAS = {"models": ("torch", "transformers", "tokenizers", "safetensors", "datasets", "sklearn"),
          "report": ("matplotlib", "jinja2", "tabulate")}


class MissingPackageError(UsageError, ImportError):
    """A package of an extra is not installed."""

    def __init__(self, package: str, what: str) -> None:
        extra = next(name for name, packages in EXTRAS.items() if package in packages)
        super().__init__(f"{what} needs the package {package}, which the extra `{extra}` brings: "
                         f"pip install '.[{extra}]' in the repository")


def missing_package(error: ModuleNotFoundError, what: str) -> MissingPackageError | None:
    """The same failure with its remedy, if the module is of a package that an extra brings."""
    package = (error.name or "").split(".")[0]
    return MissingPackageError(package, what) if any(package in some for some in EXTRAS.values()) else None


class ConfigError(UsageError):
    """A profile or a --set value has an unknown key, a wrong type or an impossible value."""


class TreebankError(ArtifactError):
    """A treebank is missing, empty, or holds something that is not a tree."""


class GrammarError(ArtifactError):
    """A grammar breaks an invariant, or its file cannot be read; `symbol` is the one whose rules are wrong, if any."""

    def __init__(self, message: str, symbol: str | None = None) -> None:
        super().__init__(message)
        self.symbol = symbol


class CorruptArtifact(ArtifactError):
    """A file on disk is not what its manifest or its format says."""

    exit_code = 1


class StageError(ArtifactError):
    """A stage could not finish: a full disk, a worker that died, a missing device."""

    exit_code = 1
