"""Where received bytes lie until their frames are handled. No sockets here.

All connections of a loop receive into one shared scratch memory, one after the other, and handle their frames right
there: a connection that is quiet between whole frames holds nothing. Memory of its own it has only

* while a frame is incomplete: sized by what has arrived, at most doubled each time, never by what was announced;
* while its frames are large: kept from one to the next, so that nothing is allocated or moved for each of them, and
  given up by the first `shrink` that finds it unused.
"""

from __future__ import annotations

from tidelog.net.framing import FOREIGN_LENGTH_MIN, LENGTH, LENGTH_BYTES, bad_length

SCRATCH_BYTES = 64 << 10
LARGE_FRAME_BYTES = 32 << 10
"""From this size on a frame is read exactly to its end, into memory that is kept for the next one."""

RETAINED_BYTES_MAX = 2 << 20
"""A connection's memory above this is dropped as soon as it is empty. A default-sized produce request fits."""

_SMALL_REST_BYTES = 4 << 10
_SPARE_ROOM_BYTES = 64 << 10
_SPARES_MAX = 16
_NOTHING = memoryview(bytearray())

_unpack_length = LENGTH.unpack_from


class Scratch:
    """The memory that connections of one loop share; in use only while one of them handles what it received."""

    __slots__ = ("_spares", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_BYTES))
        self._spares: list[memoryview] = []

    def replace(self) -> None:
        """Leaves the present memory to the connection that is using it."""
        self.view = self._spares.pop() if self._spares else memoryview(bytearray(SCRATCH_BYTES))

    def give_back(self, view: memoryview) -> None:
        if len(self._spares) < _SPARES_MAX:
            self._spares.append(view)


class ReceiveBuffer:
    """Turns what `recv_into` wrote into frames that are writable views on that same memory.

    The cycle is: `space`, `received`, then `next_frame` until it gives None, then `settle` before any other
    connection may use the scratch. A frame is valid until the next call of `next_frame` or `settle`, unless `hold`
    or `surrender` was called first.
    """

    __slots__ = (
        "_end",
        "_expected",
        "_first",
        "_large_seen",
        "_largest",
        "_max_bytes",
        "_memory",
        "_own",
        "_scratch",
        "_start",
        "_wanted",
    )

    def __init__(self, scratch: Scratch, max_bytes: int) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._memory = _NOTHING  # where the bytes from _start to _end lie: the scratch, or _own
        self._own: memoryview | None = None
        self._start = 0
        self._end = 0
        self._wanted = 0  # size of the incomplete frame at _start with its prefix, as far as it is known
        self._expected = SCRATCH_BYTES  # how much to read when an own memory is empty
        self._largest = 0  # largest frame that arrived whole: no stranger's promise
        self._large_seen = False
        self._first = True

    @property
    def capacity(self) -> int:
        """Bytes of memory this connection holds for itself."""
        return 0 if self._own is None else len(self._own)

    @property
    def unhandled_bytes(self) -> int:
        return self._end - self._start

    def space(self) -> memoryview:
        """Where the next bytes are to be written. Only to be asked for after `next_frame` gave None."""
        own = self._own
        if own is None:
            self._memory = view = self._scratch.view
            return view[self._end :] if self._end else view
        rest = self._end - self._start
        if not rest:
            return own[: self._expected]
        if rest <= _SMALL_REST_BYTES:
            target = own if self._large_seen and len(own) >= self._expected else self._scratch.view
            if self._wanted <= len(target):
                return self._continue_in(target, rest)
        if self._start + self._wanted > len(own) and (self._start or self._end == len(own)):
            own = self._make_room(own, rest)
        return own[self._end : self._start + self._wanted]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its prefix, or None when more must be received. Raises FrameError."""
        start = self._start
        rest = self._end - start
        if rest < LENGTH_BYTES:
            if rest:
                self._wanted = LENGTH_BYTES
            elif self._own is None:
                self._start = self._end = 0
            else:
                self._rewind(self._own)
            return None
        memory = self._memory
        length: int = _unpack_length(memory, start)[0]
        if length < 0 or length > self._max_bytes or length >= FOREIGN_LENGTH_MIN:
            error = bad_length(length, self._max_bytes, first=self._first)
            if error is not None:
                raise error
        stop = start + LENGTH_BYTES + length
        if stop > self._end:
            self._wanted = stop - start
            return None
        self._start = stop
        self._first = False
        if length > LARGE_FRAME_BYTES:
            if stop - start != self._expected or not self._large_seen:
                self._note_large(length)
        elif self._large_seen:
            self._expected = SCRATCH_BYTES
        return memory[start + LENGTH_BYTES : stop]

    def settle(self) -> None:
        """Leaves the scratch to other connections, taking along what is not handled yet."""
        if self._own is not None:
            return
        rest = self._end - self._start
        if rest:
            own = memoryview(bytearray(max(rest, self._capacity_for(rest))))
            own[:rest] = self._memory[self._start : self._end]
            self._own = self._memory = own
            self._end = rest
        else:
            self._memory = _NOTHING
            self._end = 0
        self._start = 0

    def hold(self) -> None:
        """Keeps the last frame valid until the next call of `next_frame`, over any number of loop turns."""
        if self._own is None:
            self._own = self._memory
            self._scratch.replace()

    def surrender(self) -> None:
        """Leaves the memory of the last frame to whoever holds it, for good."""
        rest = self._end - self._start
        remains = bytes(self._memory[self._start : self._end])
        if self._own is None:
            self._scratch.replace()
        own = memoryview(bytearray(remains)) if rest else None
        self._own = own
        self._memory = _NOTHING if own is None else own
        self._start = 0
        self._end = rest

    def shrink(self) -> None:
        """Gives up kept memory if no large frame has come since the last call."""
        if not self._large_seen and self._start == self._end:
            self._own = None
            self._memory = _NOTHING
        self._large_seen = False

    def _note_large(self, length: int) -> None:
        self._large_seen = True
        size = length + LENGTH_BYTES
        # Frames of one sender resemble each other: to ask for just as much again usually takes exactly one frame.
        self._expected = min(size, RETAINED_BYTES_MAX)
        self._largest = max(self._largest, self._expected)

    def _rewind(self, own: memoryview) -> None:
        self._start = self._end = 0
        if self._large_seen and self._expected <= len(own) <= RETAINED_BYTES_MAX:
            return
        self._own = None
        self._memory = _NOTHING
        if len(own) == SCRATCH_BYTES:
            self._scratch.give_back(own)

    def _continue_in(self, target: memoryview, rest: int) -> memoryview:
        """A few bytes are cheaper to move than to be read around: starts `target` with them and reads freely on."""
        target[:rest] = self._memory[self._start : self._end]
        self._memory = target
        self._start = 0
        self._end = rest
        own = self._own
        if target is own:
            return target[rest : max(self._wanted, self._expected)]
        self._own = None
        if own is not None and len(own) == SCRATCH_BYTES:
            self._scratch.give_back(own)
        return target[rest:]

    def _make_room(self, own: memoryview, rest: int) -> memoryview:
        capacity = max(len(own), self._capacity_for(rest))
        target = own if capacity == len(own) else memoryview(bytearray(capacity))
        target[:rest] = own[self._start : self._end]
        self._own = self._memory = target
        self._start = 0
        self._end = rest
        return target

    def _capacity_for(self, rest: int) -> int:
        """Memory for the incomplete frame of which `rest` bytes are there."""
        if self._largest < self._wanted:
            return min(self._wanted, max(2 * rest, self._largest, _SMALL_REST_BYTES))
        # A sender of such frames is known: some room to spare, lest each slightly larger one moves everything.
        return -(-self._wanted // _SPARE_ROOM_BYTES) * _SPARE_ROOM_BYTES
