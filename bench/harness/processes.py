"""Child processes: run one to its end, and stop one by its own id."""

import os
import signal
import subprocess


class Failed(Exception):
    """A child did not do what it was started for; the message says which and why."""


def run(command, timeout, **options):
    """Runs a command to its end and returns what it printed.

    It leads a process group of its own, so that after a time-out its children go with it.
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
        raise Failed(f"{command[0]} ended with {child.returncode}: {' | '.join(said[-6:])}")
    return out


def stop(child, group=False, patience=20):
    """Asks a child to end, by its own id, and insists after `patience` seconds."""
    if child.poll() is not None:
        return
    tell(child, signal.SIGTERM, group)
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        tell(child, signal.SIGKILL, group)
        child.wait()


def tell(child, what, group):
    """Sends a signal; a child that is gone already is no trouble."""
    try:
        os.killpg(child.pid, what) if group else child.send_signal(what)
    except ProcessLookupError:
        pass
