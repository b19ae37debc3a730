"""A Python that is started with this folder in its path gives matchkernel only what Windows has.

Modules of the package do not find the modules and names that only POSIX has; what both have behaves as
on Windows where that matters: no file is replaced or removed, and no folder renamed, that is or has a file this process
holds open. Other packages see the system as it is: on Linux, Python's own modules need what is taken away here.
"""

import builtins
import os
import select
import signal
import subprocess
import types
from contextlib import suppress
from pathlib import Path

TAKEN_MODULES = {"fcntl", "grp", "pwd", "pty", "resource", "syslog", "termios", "tty"}
TAKEN_NAMES = {
    "os": """O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK chown chroot fchdir fchmod fchown fork forkpty geteuid getgid
        getloadavg getpgid getpgrp getsid getuid killpg lchown lockf mkfifo mknod nice openpty pipe2 posix_fadvise
        posix_fallocate posix_spawn pread pwrite readv register_at_fork sched_getaffinity sched_setaffinity sendfile
        setgid setpgid setsid setuid statvfs sync sysconf uname wait wait3 wait4 writev""",
    "select": "POLLERR POLLHUP POLLIN POLLNVAL POLLOUT POLLPRI epoll poll",
    "signal": """SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 alarm getitimer
        pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait""",
}


def without(module, **changed):
    """A copy of a module without what was taken."""
    copy = types.ModuleType(module.__name__, module.__doc__)
    taken = TAKEN_NAMES.get(module.__name__, "").split()
    copy.__dict__.update({name: value for name, value in vars(module).items() if name not in taken} | changed)
    return copy


def open_a_file(path, *arguments, **options):
    if Path(path).is_dir():
        raise PermissionError(13, "Permission denied", path)
    return os.open(path, *arguments, **options)


def send(process, number):
    if number == 0:
        raise AssertionError("this would be Ctrl-C for all processes of the console")
    os.kill(process, number)


def link(*_):
    raise OSError(22, "A required privilege is not held by the client")


class Popen(subprocess.Popen):
    def __init__(self, *arguments, pass_fds=(), preexec_fn=None, start_new_session=False, **options):
        if pass_fds or preexec_fn or start_new_session:
            raise ValueError("not supported on Windows platforms")
        super().__init__(*arguments, **options)


REPLACED = {
    "os": without(os, name="nt", open=open_a_file, kill=send),
    "select": without(select),
    "signal": without(signal),
    "subprocess": without(subprocess, Popen=Popen),
}
import_module = builtins.__import__


def windows_import(name, importing=None, *others, **named):
    # The spec has the name of the module even if it runs as __main__.
    spec = (importing or named.get("globals") or {}).get("__spec__")
    importer = "" if spec is None else spec.name.partition(".")[0]
    if importer == "matchkernel" and name in TAKEN_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    if importer == "matchkernel" and name in REPLACED:
        return REPLACED[name]
    return import_module(name, importing, *others, **named)


def opened_files():
    """Paths of files that this process holds open, or has mapped into memory."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            yield str(link.readlink())
    for line in Path("/proc/self/maps").read_text().splitlines():
        yield line[line.find("/") :]


def refused_if_open(method):
    def refusing(path, *arguments, **options):
        for place in map(Path, (path, *arguments)):
            real = str(place.resolve())
            if held := [name for name in opened_files() if name == real or name.startswith(f"{real}/")]:
                raise PermissionError(13, f"The process cannot access the file, it holds {held}", str(place))
        return method(path, *arguments, **options)

    return refusing


builtins.__import__ = windows_import
Path.replace = refused_if_open(Path.replace)
Path.rename = refused_if_open(Path.rename)
Path.unlink = refused_if_open(Path.unlink)
Path.symlink_to = link
