"""The conditions of a measurement, which readers need to assess or repeat it."""

import datetime
import os
import platform
import re
import sys

from .processes import Failed, run


def read(path):
    """Returns the text of a file, or an empty text if it does not exist."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def first(pattern, text, otherwise="unknown"):
    """Returns the first match of the pattern's group."""
    found = re.search(pattern, text, re.M)
    return found.group(1).strip() if found else otherwise


def version_of(command):
    """Returns the first line of a program's version output."""
    try:
        return run(command, 20).strip().splitlines()[0]
    except (Failed, OSError, IndexError):
        return "unknown"


class Steal:
    """Measures the CPU time that the host gave to other machines (steal). On a virtual machine it can distort
    a figure without any other trace."""

    def __init__(self):
        self.before = self._read()

    @staticmethod
    def _read():
        numbers = [int(number) for number in first(r"^cpu\s+(.+)$", read("/proc/stat"), "0").split()]
        return sum(numbers[:8]), numbers[7] if len(numbers) > 7 else 0

    def since_last(self):
        """Returns the share in percent since the last call."""
        (all_before, stolen_before), self.before = self.before, self._read()
        passed = self.before[0] - all_before
        return round(100 * (self.before[1] - stolen_before) / passed, 1) if passed else 0.0


def describe(cluster, waybill, peers):
    """Returns the machine, PostgreSQL, versions and date."""
    memory = int(first(r"^MemTotal:\s+(\d+)", read("/proc/meminfo"), "0"))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": first(r"^model name\s*:\s*(.+)$", read("/proc/cpuinfo")),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 1024 / 1024, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "system": first(r'^PRETTY_NAME="?(.*?)"?$', read("/etc/os-release")),
        "load_average_before": os.getloadavg(),
        "postgresql": version_of([cluster.binaries / "postgres", "--version"]),
        "postgresql_settings": {name: value for name, value in cluster.settings.items()
                                if name != "unix_socket_directories"},
        "python": sys.version.split()[0],
        "waybill": version_of([waybill, "--version"]),
        "peers": {peer.name: peer.about["version"] for peer in peers},
    }
