"""Every error the package raises on purpose. A message says what was wanted, what came, and what to do."""


class MatchKernelError(Exception):
    """Base of all errors raised by matchkernel."""


class ArgumentError(MatchKernelError, ValueError):
    """An argument or a setting has a value that cannot be used."""


class ArgumentTypeError(MatchKernelError, TypeError):
    """An argument is of a kind that cannot be used."""


class FileError(MatchKernelError, OSError):
    """A file is missing, cannot be read, or is not what it should be. The message starts with its name."""


class WeightsError(FileError):
    """A weight file is damaged, foreign, or does not fit the descriptor asked for."""


class WorkError(MatchKernelError, RuntimeError):
    """Work failed through no mistake of the caller, such as another program that was asked for help."""


class WriteError(WorkError, OSError):
    """A file could not be written: the disk is full or taken away."""


class MissingExtraError(MatchKernelError, ImportError):
    """An optional package is not installed. The message names the extra that brings it."""
