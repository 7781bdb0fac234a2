"""The one PostgreSQL that everybody is measured on: made for the run, and gone after it."""

import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from .processes import Failed, run, stop

ROOT = Path(__file__).resolve().parents[2]

# Beyond what Waybill's own PostgreSQL is told (src/postgres/settings.rs): durability is
# said aloud, and statements can be counted, which happens only while `tracking` is on.
SAID_ALOUD = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # Peers bring pools of their own; 64 would refuse the widest of them.
    "max_connections": "100",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}


def tuning():
    """The settings of Waybill's own PostgreSQL, read from its source: one list for everybody."""
    source = (ROOT / "src/postgres/settings.rs").read_text()
    table = re.search(r"const TUNING.*?= &\[(.*?)\n\];", source, re.S).group(1)
    return dict(re.findall(r'^\s*\("(\w+)", "([^"]*)"\)', table, re.M))


def find_binaries():
    """PostgreSQL's programs, looked for where scripts/prepare looks for them."""
    candidates = [os.environ.get("WAYBILL_PG_BIN", "")]
    if found := shutil.which("initdb"):
        candidates.append(Path(found).resolve().parent)
    candidates += sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=version_of, reverse=True)
    for folder in filter(None, map(str, candidates)):
        if all(os.access(f"{folder}/{name}", os.X_OK) for name in ("initdb", "postgres", "psql", "pgbench")):
            return Path(folder)
    raise Failed("PostgreSQL's programs were not found; scripts/prepare installs them")


def version_of(folder):
    """The number in a path such as /usr/lib/postgresql/15/bin."""
    return int(re.search(r"(\d+)", folder).group(1))


def unprivileged():
    """As whom PostgreSQL runs, as arguments for Popen: it refuses root."""
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
    """A private PostgreSQL in a temporary folder, behind a Unix socket that only its owner and
    root can reach. As a context manager it is there inside and gone outside, whatever happens."""

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
            # SIGINT is PostgreSQL's fast stop: it sends clients away instead of waiting for them.
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
        # In the file and not on the command line, which `alter system` could not override.
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
        """As Waybill's own PostgreSQL has it, where the build can do it."""
        asked = [self.binaries / "postgres", "-D", self.folder / "data", "-c", "wal_compression=lz4",
                 "-C", "wal_compression"]
        try:
            run(asked, 30, cwd="/", **self.owner)
            return {"wal_compression": "lz4"}
        except Failed:
            return {}

    def url(self, database):
        """The address of a database: the socket's folder stands where a host would."""
        return f"postgres://bench@{quote(str(self.folder), safe='')}/{database}"

    def sql(self, database, *statements):
        """Runs statements, each its own transaction, and returns the last one's rows as text."""
        command = [self.binaries / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
                   "-h", self.folder, "-U", "bench", "-d", database]
        for statement in statements:
            command += ["-c", statement]
        return run(command, 600).strip()

    def create(self, database, template="template1"):
        """A fresh database, in place of what may have that name."""
        self.sql("postgres", f'drop database if exists "{database}" with (force)',
                 f'create database "{database}" template "{template}"')

    def exists(self, database):
        """Whether there is one of that name."""
        return bool(self.sql("postgres", f"select 1 from pg_database where datname = '{database}'"))

    def settle(self, database):
        """The same start for every workload of every system: vacuumed, analysed, checkpointed."""
        self.sql(database, "vacuum (analyze)", "checkpoint")

    def set(self, name, value):
        """Changes a setting of the running server, for sessions that are open as well."""
        self.sql("postgres", f"alter system set {name} = '{value}'", "select pg_reload_conf()")
        time.sleep(0.3)
