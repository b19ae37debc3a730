"""Every error the package raises on purpose. A message states what was expected, what was found, and what to do."""


class MatchKernelError(Exception):
    """Base of all errors raised by matchkernel."""


class ArgumentError(MatchKernelError, ValueError):
    """An argument or a setting has a value that cannot be used."""


class ArgumentTypeError(MatchKernelError, TypeError):
    """An argument has a type that cannot be used."""


class FileError(MatchKernelError, OSError):
    """A file is missing, cannot be read, or has unexpected contents. The message starts with its name."""


class WeightsError(FileError):
    """A weight file is damaged, not one of matchkernel's, or does not fit the requested descriptor."""


class WorkError(MatchKernelError, RuntimeError):
    """Work failed through no fault of the caller, such as an external program that failed."""


class WriteError(WorkError, OSError):
    """A file could not be written, because the disk is full or no longer available."""


class MissingExtraError(MatchKernelError, ImportError):
    """An optional package is not installed. The message names the extra that installs it."""


def short_message(error: BaseException, limit: int = 150) -> str:
    """The message of an error on one line, with at most `limit` characters; its class if it has none."""
    return " ".join(str(error).split())[:limit] or type(error).__name__
