"""One group's connections between pairs of ranks, each made when it is first needed, and the thread that serves them.

Every rank listens from the start. So a connection to a rank that has ended is refused at once, and one that is open
tells by its end that the rank has. The addresses, and a secret that a caller has to know, go around in the group.
"""

import collections
import ctypes
import errno
import hashlib
import hmac
import os
import selectors
import socket
import struct
import threading
import time

from .._tributary import TributaryError
from . import _peer_memory as peer_memory
from ._links import ABORT, HELLO, LEAVE, GivenUpError, Link, LinkEndedError, LinkLostError, watch

# A rank's secret, port and address, its process, and where that has the secret.
CARD = struct.Struct("<16sH62sIQ")
SECRET = struct.Struct("<QQ")
# Callers that have not said who they are: how many there may be, and for how long if there are so many.
STRANGERS_MAX, GREETING_S = 64, 5
# How long a group that is left waits until its last frames are with the system.
LEAVE_S = 1
# Once a rank's connections have ended: one look for a call of it that waits to be accepted, one for what it says there.
LAST_LOOKS = 2


class Mesh:
    """Connections by rank. `on_frame(rank, kind, tag, number, length, address)` is as for a `Link`, `on_lost(rank, error)` is
    called once for a rank that can no longer be reached, and `on_time()` says how long the thread may sleep. All three
    run on the mesh's thread, which starts with the first `post`."""

    def __init__(self, group, on_frame, on_lost, on_time):
        self._own, self._on_frame, self._on_lost, self._on_time = group.rank, on_frame, on_lost, on_time
        self._secret = os.urandom(16)
        # A peer that reads this in this process's memory has found the process that it looks for.
        self._readable = ctypes.create_string_buffer(self._secret, 16)
        self._listener, host = listen(group)
        port = self._listener.getsockname()[1] if self._listener else 0
        cards = bytearray(CARD.size * group.size)
        card = CARD.pack(self._secret, port, host.encode(), os.getpid(), ctypes.addressof(self._readable))
        group.allgather(card, cards)
        self._cards = list(CARD.iter_unpack(cards))
        # What tells this group from others, and gives no secret away.
        self.session = hashlib.sha256(b"session" + self._cards[0][0]).hexdigest()[:16]
        # The first link of a rank carries what this side has to say; there is a second one if both called.
        self._links, self._strangers, self.lost, self._is_readable = {}, {}, {}, {}
        # Ranks without a link that works: why, and how often to look yet before they are lost.
        self._ended = {}
        self._selector, self._process = selectors.DefaultSelector(), os.getpid()
        self._posted, self._has_left = collections.deque(), False
        self._thread, self._lock, self._wake = None, threading.Lock(), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def post(self, action):
        """Has the mesh's thread call `action`."""
        if self._process != os.getpid():
            raise RuntimeError(f"the group belongs to process {self._process}, which forked this one")
        with self._lock:
            if self._has_left:
                raise RuntimeError("the group was closed")
            self._posted.append(action)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="tributary-transfers", daemon=True)
                self._thread.start()
            os.eventfd_write(self._wake, 1)

    def leave(self, is_aborted):
        """Tells the other ranks, and closes everything."""
        if self._process != os.getpid():
            return
        with self._lock:
            if self._has_left:
                return
            # Both at once: the mesh's thread ends when it finds that this rank has left and that nothing is posted.
            self._has_left = True
            self._posted.append(lambda: self._say_goodbye(ABORT if is_aborted else LEAVE))
            thread = self._thread
            os.eventfd_write(self._wake, 1)
        if thread is None:
            self._close()
        elif thread is not threading.current_thread():
            thread.join(2 * LEAVE_S)

    # On the mesh's thread.

    def put(self, rank, *frame, **payload):
        """Sends a frame to a rank; none if it is lost."""
        if self.reach(rank) and rank in self._links:
            link = self._links[rank][0]
            link.put(*frame, **payload)
            self._write(link)

    def reach(self, rank):
        """Sees to it that there is a connection. False if the rank is lost."""
        if rank in self.lost:
            return False
        if rank not in self._links and rank not in self._ended:
            secret, port, host, *_ = self._cards[rank]
            if not port:
                self._lose(rank, LinkLostError("its host has no address for others (TRIBUTARY_HOST_ADDRESS)"))
                return False
            try:
                link = Link.connect((host.rstrip(b"\0").decode(), port), self._handle, rank)
            except LinkEndedError as error:
                self._ended[rank] = error, LAST_LOOKS
                return True
            link.put(HELLO, self._own, *SECRET.unpack(secret))
            self._links[rank] = [link]
            self._selector.register(link.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, link)
        return True

    def can_read(self, rank):
        """Whether this process can read the memory of a rank's: on the same host, and the kernel allows it."""
        if rank not in self._is_readable:
            secret, port, host, process, address = self._cards[rank]
            found = ctypes.create_string_buffer(16)
            self._is_readable[rank] = (
                bool(port) and host == self._cards[self._own][2] and peer_memory.is_wanted()
                and peer_memory.read(process, address, ctypes.addressof(found), 16)
                and hmac.compare_digest(found.raw, secret))
        return self._is_readable[rank]

    def read(self, rank, address, target, length):
        """Reads from a rank's memory. Whether all came."""
        return peer_memory.read(self._cards[rank][3], address, target, length)

    def drop(self, rank, reason):
        """Gives a rank up."""
        self._lose(rank, LinkLostError(reason))

    def _serve(self):
        try:
            self._run()
        except BaseException as error:
            # A fault of this module. Nobody may wait for a thread that is gone.
            with self._lock:
                self._has_left = True
            for rank in set(range(len(self._cards))) - {self._own}:
                self._lose(rank, LinkLostError(f"this rank's transfers have failed: {error!r}"))
            # What was begun meanwhile ends like the rest.
            while self._posted:
                self._posted.popleft()()
            raise
        finally:
            self._close()

    def _run(self):
        self._selector.register(self._wake, selectors.EVENT_READ)
        if self._listener:
            self._selector.register(self._listener, selectors.EVENT_READ)
        until = None
        while until is None or self._goes_on(until):
            limit_s = self._on_time() if until is None else 0.01
            for key, events in self._selector.select(0 if self._ended else limit_s):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data is None:
                    os.eventfd_read(self._wake)
                else:
                    self._attend(key.data, events)
            while self._posted:
                self._posted.popleft()()
            self._turn_strangers_away()
            self._lose_ended()
            if self._has_left and until is None and not self._posted:
                until = time.monotonic() + LEAVE_S

    def _goes_on(self, until):
        links = [link for each in self._links.values() for link in each]
        return any(link.wants_write for link in links) and time.monotonic() < until

    def _accept(self):
        while len(self._strangers) < STRANGERS_MAX:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            watch(connection)
            link = Link(connection, self._handle)
            self._strangers[link] = time.monotonic() + GREETING_S
            self._selector.register(connection, selectors.EVENT_READ, link)

    def _turn_strangers_away(self):
        if len(self._strangers) < STRANGERS_MAX:
            return  # one of them may be a rank whose host is busy
        now = time.monotonic()
        for link, until in list(self._strangers.items()):
            if until < now:
                self._turn_away(link)

    def _turn_away(self, link):
        del self._strangers[link]
        self._selector.unregister(link.socket)
        link.close()

    def _attend(self, link, events):
        if events & selectors.EVENT_WRITE:
            self._write(link)
        # Closed meanwhile, maybe by what another link has told in the same look.
        if events & selectors.EVENT_READ and link.socket.fileno() >= 0:
            try:
                link.read()
            except LinkLostError as error:
                self._give_link_up(link, error)

    def _write(self, link):
        if link.socket.fileno() < 0:
            return
        try:
            if link.is_connected or self._is_decided(link):
                link.write()
        except LinkLostError as error:
            self._give_link_up(link, error)
            return
        if link.socket.fileno() >= 0:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.wants_write else 0)
            if self._selector.get_key(link.socket).events != events:
                self._selector.modify(link.socket, events, link)

    @staticmethod
    def _is_decided(link):
        probe = selectors.PollSelector()
        probe.register(link.socket, selectors.EVENT_WRITE)
        return bool(probe.select(0))

    def _handle(self, link, kind, tag, number, length, address):
        if link.rank is None:
            self._admit(link, kind, tag, SECRET.pack(number, length))
            return None
        if kind == ABORT:
            raise GivenUpError
        if kind == LEAVE:
            raise LinkLostError("it has left the group (connection closed)")
        return self._on_frame(link.rank, kind, tag, number, length, address)

    def _admit(self, link, kind, rank, secret):
        is_member = kind == HELLO and 0 <= rank < len(self._cards) and rank != self._own and rank not in self.lost
        if not is_member or not hmac.compare_digest(secret, self._secret):
            raise LinkLostError("a stranger called")
        del self._strangers[link]
        link.rank = rank
        self._links.setdefault(rank, []).append(link)

    def _give_link_up(self, link, error):
        """Ends a link, and loses its rank, unless there may be more of the rank's words elsewhere."""
        if link in self._strangers:
            self._turn_away(link)
        elif not isinstance(error, LinkEndedError):
            self._lose(link.rank, error)
        elif link in (links := self._links.get(link.rank, [])):
            self._selector.unregister(link.socket)
            link.close()
            links.remove(link)
            # A rank that has called, too, says everything on that link, which may have been read in part. It ends as
            # well if the rank is gone.
            if not links:
                del self._links[link.rank]
                self._ended[link.rank] = error, LAST_LOOKS

    def _lose_ended(self):
        for rank, (error, looks) in list(self._ended.items()):
            if rank in self._links or rank in self.lost:
                del self._ended[rank]
            elif looks > 0:
                self._ended[rank] = error, looks - 1
            else:
                del self._ended[rank]
                self._lose(rank, error)

    def _lose(self, rank, error):
        if rank in self.lost:
            return
        self.lost[rank] = error
        for link in self._links.pop(rank, []):
            self._selector.unregister(link.socket)
            link.close()
        self._on_lost(rank, error)

    def _say_goodbye(self, kind):
        # Behind all else that this rank has said: on another link it could be heard before that.
        for link, *_ in list(self._links.values()):
            link.put(kind)
            self._write(link)

    def _close(self):
        for links in self._links.values():
            for link in links:
                link.close()
        for link in self._strangers:
            link.close()
        if self._listener:
            self._listener.close()
        self._selector.close()
        # A thread that has the lock may be about to write to the descriptor, which must not be another file's by then.
        with self._lock:
            os.close(self._wake)


def listen(group):
    """A listening socket at a port of the system's choice, and its address; None where others can't reach this host."""
    try:
        host, ports = ("127.0.0.1", [0]) if group.is_on_one_host else (group.host_address(), group.host_ports())
    except TributaryError:
        return None, ""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        try:
            listener = socket.create_server((host, port), family=family, backlog=max(128, group.size))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == ports[-1]:
                raise
        else:
            break
    listener.setblocking(False)
    return listener, host
