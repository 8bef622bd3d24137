# cython: language_level=3
"""Varints for the compiled modules, by the rules of varint.py. Inlined: nearly all of them take one byte."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef inline const unsigned char* read_raw32(
    const unsigned char* at, const unsigned char* end, uint32_t* raw
) noexcept nogil:
    """Past the number at `at`, which lands in `raw` with its zig-zag not undone; NULL if it is cut off or too wide."""
    cdef uint32_t byte, found
    cdef int shift
    if at >= end:
        return NULL
    byte = at[0]
    at += 1
    if byte < 0x80:
        raw[0] = byte
        return at
    found = byte & 0x7F
    shift = 7
    while at < end:
        byte = at[0]
        at += 1
        if shift == 28 and byte > 0x0F:
            return NULL
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw[0] = found
            return at
        shift += 7
    return NULL


cdef inline const unsigned char* read_raw64(
    const unsigned char* at, const unsigned char* end, uint64_t* raw
) noexcept nogil:
    cdef uint64_t byte, found
    cdef int shift
    if at >= end:
        return NULL
    byte = at[0]
    at += 1
    if byte < 0x80:
        raw[0] = byte
        return at
    found = byte & 0x7F
    shift = 7
    while at < end:
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            return NULL
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw[0] = found
            return at
        shift += 7
    return NULL


cdef inline const unsigned char* read_length(
    const unsigned char* at, const unsigned char* end, int64_t* length
) noexcept nogil:
    """As read_raw32 for the length of a field that lies before `end`: -1 is null; NULL where it cannot be right."""
    cdef uint32_t raw = 0
    at = read_raw32(at, end, &raw)
    if at == NULL:
        return NULL
    if raw & 1:
        length[0] = -1
        return at if raw == 1 else NULL
    length[0] = raw >> 1
    return at if length[0] <= end - at else NULL


cdef inline int64_t undo_zigzag(uint64_t raw) noexcept nogil:
    return <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


cdef inline int varint_size(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


cdef inline unsigned char* write_raw(unsigned char* at, uint64_t raw) noexcept nogil:
    while raw > 0x7F:
        at[0] = <unsigned char> ((raw & 0x7F) | 0x80)
        at += 1
        raw >>= 7
    at[0] = <unsigned char> raw
    return at + 1


cdef inline int64_t wrapping_sum(int64_t left, int64_t right) noexcept nogil:
    """What other readers make of a timestamp that overflows."""
    return <int64_t> (<uint64_t> left + <uint64_t> right)
