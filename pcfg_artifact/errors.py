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
