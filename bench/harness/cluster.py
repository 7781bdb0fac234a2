"""The temporary PostgreSQL that all systems are measured on."""

import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from .processes import Failed, run, stop

ROOT = Path(__file__).resolve().parents[2]

# Settings in addition to those of the embedded PostgreSQL (src/postgres/settings.rs): durability is
# explicit, and statements can be counted, which happens only while `tracking` is on.
SAID_ALOUD = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # Peers have their own connection pools, and the largest needs more than 64 connections.
    "max_connections": "100",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}


def tuning():
    """Returns the settings of the embedded PostgreSQL, read from its source, for all systems."""
    source = (ROOT / "src/postgres/settings.rs").read_text()
    table = re.search(r"const TUNING.*?= &\[(.*?)\n\];", source, re.S).group(1)
    return dict(re.findall(r'^\s*\("(\w+)", "([^"]*)"\)', table, re.M))


def find_binaries():
    """Returns the folder of PostgreSQL's programs, searched like in scripts/prepare."""
    candidates = [os.environ.get("WAYBILL_PG_BIN", "")]
    if found := shutil.which("initdb"):
        candidates.append(Path(found).resolve().parent)
    candidates += sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=version_of, reverse=True)
    for folder in filter(None, map(str, candidates)):
        if all(os.access(f"{folder}/{name}", os.X_OK) for name in ("initdb", "postgres", "psql", "pgbench")):
            return Path(folder)
    raise Failed("PostgreSQL's programs were not found; scripts/prepare installs them")


def version_of(folder):
    """Returns the version number in a path such as /usr/lib/postgresql/15/bin."""
    return int(re.search(r"(\d+)", folder).group(1))


def unprivileged():
    """Returns Popen arguments for the user that runs PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        except KeyError:
            continue
    raise Failed("PostgreSQL refuses root, and there is neither a user postgres nor nobody")


class Cluster:
    """A private PostgreSQL in a temporary folder, behind a Unix socket that only its owner and root can
    reach. As a context manager it runs inside the block and is removed afterwards in any case."""

    def __enter__(self):
        self.binaries = find_binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="waybill-bench-"))
        self.owner = unprivileged()
        self.server = None
        try:
            self._make()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.server:
            # SIGINT is PostgreSQL's fast shutdown: it disconnects clients instead of waiting for them.
            if self.server.poll() is None:
                self.server.send_signal(2)
                try:
                    self.server.wait(30)
                except subprocess.TimeoutExpired:
                    pass
            stop(self.server)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self):
        if self.owner:
            os.chown(self.folder, self.owner["user"], self.owner["group"])
        initdb = [self.binaries / "initdb", "-D", self.folder / "data", "-U", "bench", "-E", "UTF8",
                  "--locale=C", "--auth=trust", "--no-instructions"]
        run(initdb, 120, cwd="/", **self.owner)

    def _start(self):
        self.settings = {**tuning(), **SAID_ALOUD, **self._lz4(), "cluster_name": "waybill-bench",
                         "listen_addresses": "", "unix_socket_directories": str(self.folder)}
        # In the file, because `alter system` cannot override the command line.
        with open(self.folder / "data/postgresql.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self.settings.items())
        log = open(self.folder / "postgres.log", "wb")
        self.server = subprocess.Popen(
            [self.binaries / "postgres", "-D", self.folder / "data"],
            cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self.owner,
        )
        for _ in range(300):
            if self.server.poll() is not None:
                raise Failed(f"PostgreSQL did not start: {(self.folder / 'postgres.log').read_text()[-800:]}")
            try:
                self.sql("postgres", "select 1")
                self.sql("postgres", "create extension pg_stat_statements")
                return
            except Failed:
                time.sleep(0.1)
        raise Failed("PostgreSQL was not ready after 30 s")

    def _lz4(self):
        """Sets WAL compression like the embedded PostgreSQL, if the build supports it."""
        asked = [self.binaries / "postgres", "-D", self.folder / "data", "-c", "wal_compression=lz4",
                 "-C", "wal_compression"]
        try:
            run(asked, 30, cwd="/", **self.owner)
            return {"wal_compression": "lz4"}
        except Failed:
            return {}

    def url(self, database):
        """Returns the URL of a database, with the folder of the socket as the host."""
        return f"postgres://bench@{quote(str(self.folder), safe='')}/{database}"

    def sql(self, database, *statements):
        """Runs statements, each its own transaction, and returns the last one's rows as text."""
        command = [self.binaries / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
                   "-h", self.folder, "-U", "bench", "-d", database]
        for statement in statements:
            command += ["-c", statement]
        return run(command, 600).strip()

    def create(self, database, template="template1"):
        """Creates an empty database and replaces an existing one of that name."""
        self.sql("postgres", f'drop database if exists "{database}" with (force)',
                 f'create database "{database}" template "{template}"')

    def exists(self, database):
        """Returns whether a database exists."""
        return bool(self.sql("postgres", f"select 1 from pg_database where datname = '{database}'"))

    def settle(self, database):
        """Vacuums, analyses and checkpoints, so every workload starts in the same state."""
        self.sql(database, "vacuum (analyze)", "checkpoint")

    def set(self, name, value):
        """Changes a setting of the running server, also for open sessions."""
        self.sql("postgres", f"alter system set {name} = '{value}'", "select pg_reload_conf()")
        time.sleep(0.3)

    @contextmanager
    def counting(self):
        """Counts statements from zero inside the block, and only there, because counting costs time."""
        self.set("pg_stat_statements.track", "top")
        try:
            self.sql("postgres", "select pg_stat_statements_reset()")
            yield
        finally:
            self.set("pg_stat_statements.track", "none")

    def counted(self, database, figure="sum(calls)"):
        """Returns a figure of all statements in a database since counting began."""
        return float(self.sql("postgres", f"select coalesce({figure}, 0) from pg_stat_statements s "
                              f"join pg_database d on d.oid = s.dbid where d.datname = '{database}'"))
