"""A writer of protocol 2 in another language, with another SQLite.

Written from the wire part of docs/decisions/0002-write-lock.md and from nothing else. It obeys orders, one a line, and
answers each with one line. It knows nothing of gates, identities and sums: it polls, as the older users of the protocol do.

Usage: peer.py <lock path>
"""

import errno
import json
import os
import sqlite3
import stat
import sys
import threading
import time

POLL = 0.025
RECORD_BYTES = 1024
BOUND = 10.0
SQLITE_BUSY = 5


class Ambiguous(ValueError):
    """Two keys of one name."""


def without_doubles(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Ambiguous
    return found


def fits(raw):
    """Whether the sum of a record fits; None if it has none."""
    before, found, after = raw.rpartition(b',"check":"')
    if not found:
        return None
    total = 0xCBF29CE484222325
    for byte in before:
        total = (total ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return after[:16] == b"%016x" % total


def read(path):
    """What lies at the record's path: its bytes, or None."""
    try:
        with open(path, "rb") as file:
            return file.read(65536)
    except OSError:
        return None


def whole(value):
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if is_number and value == int(value) else None


def named(raw):
    """The fields of a record that names somebody."""
    try:
        fields = json.loads(raw, object_pairs_hook=without_doubles)
    except (TypeError, ValueError):
        return None
    if isinstance(fields, dict) and (whole(fields.get("pid")) or 0) > 0:
        return fields
    return None


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def is_busy(error):
    code = getattr(error, "sqlite_errorcode", None)
    return code == SQLITE_BUSY if code is not None else str(error) == "database is locked"


def same(one, other):
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


class Lock:
    def __init__(self, path):
        self.path = path
        self.mutex_path = path + ".mutex"
        self.connection = None
        self.mutex = None
        self.record = None
        self.launch = f"{os.getpid()}:{threading.get_native_id()}:{os.urandom(8).hex()}"
        self.holds = 0

    def open(self):
        # Opens the mutex through SQLite, which makes it with 0 bytes if it is missing.
        if self.connection is None:
            self.connection = sqlite3.connect(self.mutex_path, timeout=0, isolation_level=None)
            self.mutex = os.stat(self.mutex_path)

    def close(self):
        self.connection.close()
        self.connection = None

    def attempt(self):
        self.open()
        try:
            self.connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
                raise
            if is_busy(error):
                return False
            raise
        is_ours = False
        try:
            if self.has_moved():
                self.connection.execute("COMMIT")
                self.close()
                return self.attempt()
            is_ours = self.passes_fence()
            if is_ours:
                self.sign()
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        if not is_ours:
            self.connection.execute("COMMIT")
        return is_ours

    def has_moved(self):
        try:
            return not same(os.stat(self.mutex_path), self.mutex)
        except FileNotFoundError:
            return True

    def passes_fence(self):
        try:
            there = os.lstat(self.path)
        except FileNotFoundError:
            return self.adopt(os.O_CREAT | os.O_EXCL)
        if self.record is not None and same(os.fstat(self.record), there):
            return True
        if not stat.S_ISREG(there.st_mode):
            return False
        raw = read(self.path)
        if raw is None:
            return False
        if there.st_size == 0:
            return self.adopt(0)
        try:
            fields = json.loads(raw, object_pairs_hook=without_doubles)
        except Ambiguous:
            return False
        except ValueError:
            # A torn record; anything of another size is not ours to judge.
            return there.st_size == RECORD_BYTES and self.adopt(0)
        if not isinstance(fields, dict):
            return False
        protocol = fields.get("protocol")
        if whole(protocol) == 2:
            return self.adopt(0)
        if not (protocol is None or whole(protocol) == 1) or named(raw) is None:
            return False
        if is_alive(whole(fields["pid"])):
            return False
        os.unlink(self.path)
        return self.adopt(os.O_CREAT | os.O_EXCL)

    def adopt(self, how):
        try:
            record = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | how, 0o600)
        except (FileExistsError, FileNotFoundError):
            return False
        if self.record is not None:
            os.close(self.record)
        self.record = record
        return True

    def sign(self):
        self.holds += 1
        now = time.time_ns() // 1_000_000
        fields = {
            "protocol": 2,
            "pid": os.getpid(),
            "thread_id": threading.get_native_id(),
            "token": f"{self.launch}:{self.holds}",
            "created_at_ms": now,
            "acquiredAt": now,
            "role": "peer",
            "argv0": "peer.py",
            "purpose": "peer",
            "label": "",
        }
        raw = json.dumps(fields, separators=(",", ":")).encode()
        raw = raw.ljust(RECORD_BYTES)
        if os.pwrite(self.record, raw, 0) != RECORD_BYTES:
            raise OSError(errno.EIO, "a short write")

    def acquire(self, seconds):
        """Attempts at 0, poll, 2 poll, .. and at the deadline."""
        end = time.monotonic() + seconds
        while not self.attempt():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL, left))
        return True

    def release(self):
        self.connection.execute("COMMIT")

    def claim(self):
        """Holds as protocol 1 did: a file that is complete when it gets its name."""
        fields = {"pid": os.getpid(), "token": self.launch, "acquiredAt": time.time_ns() // 1_000_000}
        new = f"{self.path}.{os.getpid()}"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(fields, file)
        try:
            os.link(new, self.path)
        except FileExistsError:
            return False
        finally:
            os.unlink(new)
        return True


def writer(raw):
    """Whom a record names, in the words of an answer."""
    fields = named(raw) or {}
    return f"{whole(fields.get('pid'))} {fields.get('purpose')}"


def rounds(lock, count, hold, rest, name):
    """Enters and leaves, and says so at the guarded resource itself."""
    log = os.open(lock.path + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    longest = 0.0
    for number in range(count):
        begun = time.monotonic()
        if not lock.acquire(6 * BOUND):
            return f"starved after {number} rounds"
        longest = max(longest, time.monotonic() - begun)
        os.write(log, f"enter {name} {number}\n".encode())
        time.sleep(hold)
        os.write(log, f"leave {name} {number}\n".encode())
        lock.release()
        if rest:
            time.sleep(rest)
    os.close(log)
    return f"done {longest * 1000:.0f}"


def obey(lock, verb, rest):
    if verb == "open":
        lock.open()
        return "opened"
    if verb == "acquire":
        if lock.acquire(int(rest[0]) / 1000):
            return "granted"
        return f"busy {writer(read(lock.path))}"
    if verb == "release":
        lock.release()
        return "released"
    if verb == "record":
        raw = read(lock.path)
        return f"{writer(raw)} sum={fits(raw)} size={len(raw)}"
    if verb == "rounds":
        count, hold, pause, name = rest
        return rounds(lock, int(count), int(hold) / 1e6, int(pause) / 1e6, name)
    if verb == "claim":
        return "claimed" if lock.claim() else "taken"
    if verb == "unclaim":
        os.unlink(lock.path)
        return "unclaimed"
    return "what?"


def main():
    lock = Lock(sys.argv[1])
    print("=> ready", flush=True)
    for line in sys.stdin:
        verb, *rest = line.split()
        try:
            answer = obey(lock, verb, rest)
        except Exception as error:  # The other side shows it.
            answer = f"error {type(error).__name__}: {error}"
        print(f"=> {answer}", flush=True)


main()
