"""Whether the process is about to end: then nobody waits for threads that still compute. Imports nothing heavy."""

_said: list[bool] = []  # no lock: signal handlers add to it


def end_soon() -> None:
    """Say that the process is about to end; what its threads still compute is lost."""
    _said.append(True)


def ends_soon() -> bool:
    """Whether that was said."""
    return bool(_said)
