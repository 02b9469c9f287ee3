"""Connections between two ranks, and the frames on them.

A frame is a header, and behind one of kind DATA its payload, which goes straight from the sender's memory and
straight into the receiver's. Nothing here waits: a thread that waits for many connections at once calls.
"""

import collections
import errno
import os
import socket
import struct

# Kind, tag, number of the transfer at its sender, length of its payload in bytes, where the sender has it.
HEADER = struct.Struct("<BxxxxxxxqQQQ")
HELLO, OFFER, TAKE, REFUSE, DATA, WITHDRAW, LEAVE, ABORT, READ, GIVEN = range(10)
# So often a connection is read before others get their turn.
READS_MAX = 64
# A host that answers no probe for this long is given up, as everywhere in the library.
SILENCE_S = 8


class LinkLostError(Exception):
    """The other end is closed, or its host does not answer."""


class LinkEndedError(LinkLostError):
    """The connection has ended, or there is none, without a word on why."""


class GivenUpError(LinkLostError):
    """The rank at the other end has given the group up."""


class Link:
    """One connection. `on_frame(link, kind, tag, number, length, address)` is called for each header; for
    DATA it returns the memory for the payload, or None if nobody wants it, and what to call once the payload is there."""

    def __init__(self, connection, on_frame, rank=None):
        connection.setblocking(False)
        self.socket, self.rank = connection, rank
        self.is_connected, self._is_mute = True, False
        self._on_frame, self._outbox = on_frame, collections.deque()
        self._header = bytearray(HEADER.size)
        self._into, self._skip, self._on_payload = memoryview(self._header), 0, None

    @classmethod
    def connect(cls, address, on_frame, rank):
        """Begins to connect; the socket becomes writable when that is decided."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        link = cls(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC), on_frame, rank)
        link.is_connected = False
        watch(link.socket)
        problem = link.socket.connect_ex(address)
        if problem not in (0, errno.EINPROGRESS):
            link.socket.close()
            raise LinkEndedError(f"no connection to it: {os.strerror(problem)}")
        return link

    def put(self, kind, tag=0, number=0, length=0, address=0, payload=None, on_written=None):
        """Queues a frame. `on_written` is called once the system has all of it."""
        if self._is_mute:
            return
        head = HEADER.pack(kind, tag, number, length, address)
        self._outbox.append((memoryview(head), None if payload else on_written))
        if payload:
            self._outbox.append((payload, on_written))

    @property
    def wants_write(self):
        """Whether something waits for room, or for the connection."""
        return bool(self._outbox) or not self.is_connected

    def write(self):
        """Writes what there is room for."""
        if not self.is_connected:
            problem = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                raise LinkEndedError(f"nobody listens there: {os.strerror(problem)}")
            self.is_connected = True
        while self._outbox:
            part, on_written = self._outbox[0]
            try:
                sent = self.socket.send(part)
            except BlockingIOError:
                return
            except OSError:
                # The last words of the other end may be here, unread: reading tells when it has ended.
                self._outbox.clear()
                self._is_mute = True
                return
            if sent < len(part):
                self._outbox[0] = (part[sent:], on_written)
                continue
            self._outbox.popleft()
            if on_written:
                on_written()

    def read(self):
        """Reads what is there."""
        for _ in range(READS_MAX):
            if self._skip:
                room = memoryview(bytearray(min(self._skip, 1 << 16)))
            else:
                room = self._into
            try:
                count = self.socket.recv_into(room)
            except BlockingIOError:
                return
            except OSError as error:
                raise LinkEndedError(error.strerror) from error
            if count == 0:
                raise LinkEndedError("connection closed by peer")
            self._advance(count)

    def _advance(self, count):
        if self._skip:
            self._skip -= count
            return
        self._into = self._into[count:]
        if len(self._into):
            return
        on_payload, self._on_payload = self._on_payload, None
        self._into = memoryview(self._header)
        if on_payload is not None:
            on_payload()
            return
        kind, tag, number, length, address = HEADER.unpack(self._header)
        answer = self._on_frame(self, kind, tag, number, length, address)
        if kind != DATA:
            return
        if answer is None:
            self._skip = length
            return
        if length == 0:
            answer[1]()
            return
        self._into, self._on_payload = answer

    def close(self):
        """Closes it at once."""
        self._outbox.clear()
        self.socket.close()


def watch(connection):
    """Has the system look after a silent peer, and send small frames at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE_S // 2 - 1)
