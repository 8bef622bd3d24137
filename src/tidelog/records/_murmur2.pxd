# cython: language_level=3
"""MurmurHash2 for the compiled modules, as key_hash.py has it."""

from libc.stdint cimport uint32_t


cdef inline uint32_t murmur2(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995, h = <uint32_t> 0x9747B28C ^ <uint32_t> size, k
    cdef Py_ssize_t position = 0, whole = size & ~<Py_ssize_t> 3
    while position < whole:
        k = (
            data[position]
            | <uint32_t> data[position + 1] << 8
            | <uint32_t> data[position + 2] << 16
            | <uint32_t> data[position + 3] << 24
        ) * m
        h = (h * m) ^ ((k ^ (k >> 24)) * m)
        position += 4
    if size - whole == 3:
        h ^= <uint32_t> data[whole + 2] << 16
    if size - whole >= 2:
        h ^= <uint32_t> data[whole + 1] << 8
    if size != whole:
        h = (h ^ data[whole]) * m
    h = (h ^ (h >> 13)) * m
    return h ^ (h >> 15)
