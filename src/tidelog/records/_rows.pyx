# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records as Python objects, compiled: what record.py and build.py do, at some ten times their speed.

Nothing is decided here. Bytes that are not right are answered with None, and then the pure reader says what is wrong
with them; arguments of a kind that is not expected are given to the pure writer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_FromLongLong
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tidelog.records._murmur2 cimport murmur2 as hash_of
from tidelog.records._varint cimport (
    read_length, read_raw32, read_raw64, undo_zigzag, varint_size, wrapping_sum, write_raw, zigzag
)

cdef extern from *:
    """
    /* An instance of a subclass of tuple that is still to be filled, without the tuple that its __new__ would copy. */
    static CYTHON_INLINE PyObject* tidelog_new_row(PyObject* type, Py_ssize_t size) {
        PyObject* row = ((PyTypeObject*) type)->tp_alloc((PyTypeObject*) type, size);
    #if PY_VERSION_HEX >= 0x030E0000
        if (row != NULL) ((PyTupleObject*) row)->ob_hash = -1;
    #endif
        return row;
    }
    """
    object tidelog_new_row(object row_type, Py_ssize_t size)
    void PyObject_GC_UnTrack(object)
    bint PyObject_IS_GC(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

INTERFACE = 1

cdef Py_ssize_t RECORD_SIZE_MIN = 7  # one byte each for seven fields
cdef Py_ssize_t RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5
cdef Py_ssize_t LENGTH_MAX = 5


def read_rows(
    body,
    Py_ssize_t count,
    int64_t base_offset,
    int64_t base_timestamp,
    append_time,
    type row_type not None,
    tuple prefix not None,
    int64_t first_offset,
):
    """One `row_type(*prefix, offset, timestamp, key, value, headers)` for each record from `first_offset` on.

    `row_type` is a subclass of tuple. None if `body` is not exactly `count` whole records.
    """
    cdef Py_buffer view
    if not issubclass(row_type, tuple):
        raise TypeError(f"rows are tuples, {row_type.__name__} is not")
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if count < 0 or count > view.len // RECORD_SIZE_MIN:
            return None
        return _read_all(
            <const unsigned char*> view.buf, view.len, count, base_offset, base_timestamp, append_time, row_type,
            prefix, first_offset,
        )
    finally:
        PyBuffer_Release(&view)


cdef list _read_all(
    const unsigned char* at, Py_ssize_t size, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp,
    object append_time, object row_type, tuple prefix, int64_t first_offset,
):
    cdef const unsigned char* body_end = at + size
    cdef const unsigned char* end
    cdef const unsigned char* key_at
    cdef const unsigned char* value_at
    cdef uint32_t raw = 0
    cdef uint64_t wide = 0
    cdef int64_t key_length = 0, value_length = 0, offset, delta, stamp, last_stamp = 0
    cdef Py_ssize_t prefix_size = PyTuple_GET_SIZE(prefix), index, place
    cdef bint append_timed = append_time is not None, acyclic = True
    cdef object timestamp = None, headers, row
    cdef list rows = []
    for item in prefix:
        acyclic = acyclic and not PyObject_IS_GC(item)
    for index in range(count):
        at = read_raw32(at, body_end, &raw)
        if at == NULL or raw & 1 or (raw >> 1) > body_end - at:
            return None
        end = at + (raw >> 1)
        at = read_raw64(at + 1, end, &wide)  # over the attributes, of which none is in use
        if at == NULL:
            return None
        at = read_raw32(at, end, &raw)
        if at == NULL:
            return None
        delta = undo_zigzag(raw)
        at = key_at = read_length(at, end, &key_length)
        if at == NULL:
            return None
        if key_length > 0:
            at += key_length
        at = value_at = read_length(at, end, &value_length)
        if at == NULL:
            return None
        if value_length > 0:
            at += value_length
        if at >= end:
            return None
        if at[0] == 0:
            at += 1
            headers = ()
        else:
            headers = _read_headers(&at, end)
            if headers is None:
                return None
        if at != end:
            return None
        if (delta > 0 and base_offset > INT64_MAX - delta) or (delta < 0 and base_offset < INT64_MIN - delta):
            number = <object> base_offset + <object> delta  # no offset of a real log, but neither is it refused
            if number < first_offset:
                continue
        else:
            offset = base_offset + delta
            if offset < first_offset:
                continue
            number = PyLong_FromLongLong(offset)
        if append_timed:
            timestamp = append_time
        else:
            stamp = wrapping_sum(base_timestamp, undo_zigzag(wide))
            if timestamp is None or stamp != last_stamp:  # records of one moment share the number
                timestamp = PyLong_FromLongLong(stamp)
                last_stamp = stamp
        row = tidelog_new_row(row_type, prefix_size + 5)
        for place in range(prefix_size):
            _put(row, place, <object> PyTuple_GET_ITEM(prefix, place))
        _put(row, prefix_size, number)
        _put(row, prefix_size + 1, timestamp)
        _put(row, prefix_size + 2, _bytes_or_none(key_at, key_length))
        _put(row, prefix_size + 3, _bytes_or_none(value_at, value_length))
        _put(row, prefix_size + 4, headers)
        if acyclic:
            PyObject_GC_UnTrack(row)  # or the collector would look at every record again and again
        rows.append(row)
    return rows if at == body_end else None


cdef inline void _put(object row, Py_ssize_t place, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(row, place, item)


cdef inline object _bytes_or_none(const unsigned char* at, int64_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char*> at, length)


cdef tuple _read_headers(const unsigned char** cursor, const unsigned char* end):
    cdef const unsigned char* at = cursor[0]
    cdef const unsigned char* name_at
    cdef uint32_t raw = 0
    cdef int64_t name_length = 0, value_length = 0
    cdef list headers = []
    at = read_raw32(at, end, &raw)
    if at == NULL or raw & 1:
        return None
    for _ in range(raw >> 1):
        at = name_at = read_length(at, end, &name_length)
        if at == NULL or name_length < 0:
            return None
        at = read_length(at + name_length, end, &value_length)
        if at == NULL:
            return None
        name = PyUnicode_DecodeUTF8(<const char*> name_at, name_length, "surrogateescape")
        headers.append((name, _bytes_or_none(at, value_length)))
        if value_length > 0:
            at += value_length
    cursor[0] = at
    return tuple(headers)


def append_record(
    bytearray body not None, int64_t offset_delta, int64_t timestamp_delta, key, value, *, headers=()
):
    """As build.py has it."""
    cdef Py_ssize_t size, before, header_count = len(headers)
    cdef unsigned char* at
    if not (_is_plain(key) and _is_plain(value)):
        return _append_by_python(body, offset_delta, timestamp_delta, key, value, headers)
    size = 1 + varint_size(zigzag(timestamp_delta)) + varint_size(zigzag(offset_delta))
    size += _field_size(key) + _field_size(value) + varint_size(zigzag(header_count))
    if header_count:
        headers = tuple(headers)
        names_and_values = _header_size(<tuple> headers)
        if names_and_values < 0:
            return _append_by_python(body, offset_delta, timestamp_delta, key, value, headers)
        size += names_and_values
    before = PyByteArray_GET_SIZE(body)
    PyByteArray_Resize(body, before + varint_size(zigzag(size)) + size)
    at = <unsigned char*> PyByteArray_AS_STRING(body) + before
    at = write_raw(at, zigzag(size))
    at[0] = 0  # attributes, of which none is in use
    at = write_raw(at + 1, zigzag(timestamp_delta))
    at = write_raw(at, zigzag(offset_delta))
    at = _write_field(at, key)
    at = _write_field(at, value)
    at = write_raw(at, zigzag(header_count))
    if header_count:
        _write_headers(at, <tuple> headers)
    return PyByteArray_GET_SIZE(body) - before


def record_size_max(key, value, headers=()):
    """As build.py has it."""
    cdef Py_ssize_t size = RECORD_OVERHEAD_MAX + 2 * LENGTH_MAX
    if not headers and _is_plain(key) and _is_plain(value):
        if key is not None:
            size += PyBytes_GET_SIZE(key)
        if value is not None:
            size += PyBytes_GET_SIZE(value)
        return size
    from tidelog.records.build import record_size_max_pure

    return record_size_max_pure(key, value, headers)


def murmur2(bytes data not None):
    """As key_hash.py has it."""
    return hash_of(<const unsigned char*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef _append_by_python(body, offset_delta, timestamp_delta, key, value, headers):
    from tidelog.records.build import append_record_pure

    return append_record_pure(body, offset_delta, timestamp_delta, key, value, headers=headers)


cdef inline bint _is_plain(object content) noexcept:
    return content is None or PyBytes_Check(content)


cdef inline Py_ssize_t _field_size(object content) noexcept:
    if content is None:
        return 1
    return varint_size(zigzag(PyBytes_GET_SIZE(content))) + PyBytes_GET_SIZE(content)


cdef inline unsigned char* _write_field(unsigned char* at, object content) noexcept:
    if content is None:
        at[0] = 1  # the varint of -1
        return at + 1
    return _write_bytes(at, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))


cdef inline unsigned char* _write_bytes(unsigned char* at, const char* data, Py_ssize_t size) noexcept:
    at = write_raw(at, zigzag(size))
    memcpy(at, data, size)
    return at + size


cdef Py_ssize_t _header_size(tuple headers) except -2:
    """-1 if there is anything but pairs of text and bytes, or text that UTF-8 does not have as it is."""
    cdef Py_ssize_t size = 0, name_size = 0
    for header in headers:
        if type(header) is not tuple or len(<tuple> header) != 2:
            return -1
        name, content = <tuple> header
        if type(name) is not str or not _is_plain(content):
            return -1
        try:
            PyUnicode_AsUTF8AndSize(name, &name_size)
        except UnicodeEncodeError:
            return -1
        size += varint_size(zigzag(name_size)) + name_size + _field_size(content)
    return size


cdef int _write_headers(unsigned char* at, tuple headers) except -1:
    cdef Py_ssize_t name_size = 0
    cdef const char* name_data
    for header in headers:
        name, content = <tuple> header
        name_data = PyUnicode_AsUTF8AndSize(name, &name_size)
        at = _write_bytes(at, name_data, name_size)
        at = _write_field(at, content)
    return 0
