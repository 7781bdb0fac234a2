"""Runs child processes, and stops them by their id."""

import os
import signal
import subprocess


class Failed(Exception):
    """A child failed; the message names it and the reason."""


def run(command, timeout, **options):
    """Runs a command to its end and returns its output.

    It runs in its own process group, so its children also end after a timeout.
    """
    child = subprocess.Popen(
        [str(part) for part in command],
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        stop(child, group=True)
        raise Failed(f"{command[0]} was not done after {timeout:.0f} s") from None
    except BaseException:
        stop(child, group=True)
        raise
    if child.returncode != 0:
        said = (err.strip() or out.strip()).splitlines()
        raise Failed(f"{os.path.basename(str(command[0]))} ended with {child.returncode}: {' | '.join(said[-6:])}")
    return out


def stop(child, group=False, patience=20):
    """Terminates a child by its id, and kills it after `patience` seconds."""
    if child.poll() is not None:
        return
    tell(child, signal.SIGTERM, group)
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        tell(child, signal.SIGKILL, group)
        child.wait()


def tell(child, what, group):
    """Sends a signal. Ignores a child that has already exited."""
    try:
        os.killpg(child.pid, what) if group else child.send_signal(what)
    except ProcessLookupError:
        pass


def children_of(process):
    """Returns the ids of the children of a process."""
    with open(f"/proc/{process}/task/{process}/children") as children:
        return [int(child) for child in children.read().split()]


def processor_seconds(process, with_children=False):
    """Returns the processor time that a process has used so far, if asked with that of its children that have ended. 0 if
    it has ended itself."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            # The name, which may contain spaces, is in brackets.
            fields = stat.read().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15 if with_children else 13])) / os.sysconf("SC_CLK_TCK")
