# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records as Arrow columns, compiled: batches straight into the memory of columns, and columns into batches.

This module knows Arrow's layout and not pyarrow: it fills and reads plain buffers, which arrow.py and arrow_rows.py wrap.
As in _rows.pyx, bytes that are not right are answered with a number, and the pure reader says what is wrong with them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tidelog.records._murmur2 cimport murmur2
from tidelog.records._varint cimport (
    read_length, read_raw32, read_raw64, undo_zigzag, varint_size, wrapping_sum, write_raw, zigzag
)

INTERFACE = 1

REFUSED = -1

cdef Py_ssize_t RECORD_SIZE_MIN = 7  # one byte each for seven fields
cdef int64_t MICROSECONDS = 1000


cdef struct Counts:
    int64_t rows
    int64_t key_bytes
    int64_t key_nulls
    int64_t value_bytes
    int64_t value_nulls
    int64_t topic_bytes
    int64_t headerless
    int64_t headers
    int64_t name_bytes
    int64_t content_bytes
    int64_t content_nulls


cdef inline unsigned char* _room(bytearray buffer, int64_t size) except NULL:
    """The memory of `buffer`, which has at least `size` bytes then."""
    cdef int64_t now = PyByteArray_GET_SIZE(buffer)
    if now < size:
        PyByteArray_Resize(buffer, max(size, 2 * now))
    return <unsigned char*> PyByteArray_AS_STRING(buffer)


cdef inline void _set_bit(unsigned char* bits, int64_t index, bint bit) noexcept:
    """Also clears the bits after it, which an attempt that was given up may have left."""
    cdef int shift = index & 7
    cdef unsigned char kept = bits[index >> 3] & ((1 << shift) - 1) if shift else 0
    bits[index >> 3] = <unsigned char> (kept | bit << shift)


cdef inline int64_t _microseconds(int64_t ms) noexcept:
    if ms > INT64_MAX // MICROSECONDS:
        return INT64_MAX
    if ms < INT64_MIN // MICROSECONDS:
        return INT64_MIN
    return ms * MICROSECONDS


cdef class ColumnBuilder:
    """Columns of the Kafka source's schema that grow batch by batch."""

    cdef Counts counts
    cdef bint with_headers
    cdef bytearray key_valid, key_ends, key_data
    cdef bytearray value_valid, value_ends, value_data
    cdef bytearray topic_ends, topic_data
    cdef bytearray partitions, offsets, timestamps, timestamp_types
    cdef bytearray header_valid, header_ends, name_ends, name_data, content_valid, content_ends, content_data

    def __cinit__(self, bint with_headers):
        self.with_headers = with_headers
        self.key_valid, self.key_ends, self.key_data = bytearray(), bytearray(4), bytearray()
        self.value_valid, self.value_ends, self.value_data = bytearray(), bytearray(4), bytearray()
        self.topic_ends, self.topic_data = bytearray(4), bytearray()
        self.partitions, self.offsets = bytearray(), bytearray()
        self.timestamps, self.timestamp_types = bytearray(), bytearray()
        self.header_valid, self.header_ends = bytearray(), bytearray(4)
        self.name_ends, self.name_data = bytearray(4), bytearray()
        self.content_valid, self.content_ends, self.content_data = bytearray(), bytearray(4), bytearray()

    @property
    def rows(self):
        return self.counts.rows

    def takes(self, Py_ssize_t body_bytes, Py_ssize_t count, Py_ssize_t topic_bytes):
        """Whether so many bytes of records fit, whatever is in them: columns end at 2 GiB."""
        cdef int64_t most = max(
            self.counts.key_bytes, self.counts.value_bytes, self.counts.name_bytes, self.counts.content_bytes
        )
        # A byte of a header's name that is no UTF-8 is replaced by three.
        return most + 3 * body_bytes <= INT32_MAX and self.counts.topic_bytes + count * topic_bytes <= INT32_MAX

    def add(
        self,
        body,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        append_time,
        bytes topic not None,
        int32_t partition,
        int64_t first_offset,
    ):
        """Takes in the records from `first_offset` on; gives their number. REFUSED: not one, for not all are right."""
        cdef Py_buffer view
        cdef Counts counts = self.counts
        cdef int64_t before = counts.rows
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            if count < 0 or count > view.len // RECORD_SIZE_MIN:
                return REFUSED if count or view.len else 0
            if not self.takes(view.len, count, PyBytes_GET_SIZE(topic)):
                raise OverflowError("the columns are full: finish them before this batch")
            if not self._add_all(
                &counts, <const unsigned char*> view.buf, view.len, count, base_offset, base_timestamp,
                append_time is not None, 0 if append_time is None else append_time, first_offset,
            ):
                return REFUSED
        finally:
            PyBuffer_Release(&view)
        self._add_place(&counts, before, topic, partition, append_time is not None)
        self.counts = counts
        return counts.rows - before

    cdef int _add_all(
        self, Counts* counts, const unsigned char* at, Py_ssize_t size, Py_ssize_t count, int64_t base_offset,
        int64_t base_timestamp, bint append_timed, int64_t append_time, int64_t first_offset,
    ) except -1:
        """1 if all are right. Whatever one record may need has room before the first is looked at."""
        cdef const unsigned char* body_end = at + size
        cdef const unsigned char* end
        cdef const unsigned char* key_at
        cdef const unsigned char* value_at
        cdef uint32_t raw = 0
        cdef uint64_t wide = 0
        cdef int64_t key_length = 0, value_length = 0, offset, delta, headers_before, row = counts.rows
        cdef unsigned char* key_valid = _room(self.key_valid, (row + count + 7) >> 3)
        cdef unsigned char* value_valid = _room(self.value_valid, (row + count + 7) >> 3)
        cdef unsigned char* header_valid = _room(self.header_valid, (row + count + 7) >> 3)
        cdef int32_t* key_ends = <int32_t*> _room(self.key_ends, 4 * (row + count + 1))
        cdef int32_t* value_ends = <int32_t*> _room(self.value_ends, 4 * (row + count + 1))
        cdef int32_t* header_ends = <int32_t*> _room(self.header_ends, 4 * (row + count + 1))
        cdef unsigned char* key_data = _room(self.key_data, counts.key_bytes + size)
        cdef unsigned char* value_data = _room(self.value_data, counts.value_bytes + size)
        cdef int64_t* offsets = <int64_t*> _room(self.offsets, 8 * (row + count))
        cdef int64_t* timestamps = <int64_t*> _room(self.timestamps, 8 * (row + count))
        for _ in range(count):
            at = read_raw32(at, body_end, &raw)
            if at == NULL or raw & 1 or (raw >> 1) > body_end - at:
                return 0
            end = at + (raw >> 1)
            at = read_raw64(at + 1, end, &wide)  # over the attributes, of which none is in use
            if at == NULL:
                return 0
            at = read_raw32(at, end, &raw)
            if at == NULL:
                return 0
            delta = undo_zigzag(raw)
            if (delta > 0 and base_offset > INT64_MAX - delta) or (delta < 0 and base_offset < INT64_MIN - delta):
                return 0
            offset = base_offset + delta
            at = key_at = read_length(at, end, &key_length)
            if at == NULL:
                return 0
            if key_length > 0:
                at += key_length
            at = value_at = read_length(at, end, &value_length)
            if at == NULL:
                return 0
            if value_length > 0:
                at += value_length
            if at >= end:
                return 0
            if at[0] == 0:
                at += 1
                if offset >= first_offset:
                    _set_bit(header_valid, row, False)
                    counts.headerless += 1
            else:
                headers_before = counts.headers
                at = self._add_headers(counts, at, end, offset >= first_offset)
                if offset >= first_offset:
                    _set_bit(header_valid, row, counts.headers > headers_before)
                    counts.headerless += counts.headers == headers_before
            if at != end:
                return 0
            if offset < first_offset:
                continue
            header_ends[row + 1] = <int32_t> counts.headers
            _set_bit(key_valid, row, key_length >= 0)
            if key_length >= 0:
                memcpy(key_data + counts.key_bytes, key_at, key_length)
                counts.key_bytes += key_length
            else:
                counts.key_nulls += 1
            key_ends[row + 1] = <int32_t> counts.key_bytes
            _set_bit(value_valid, row, value_length >= 0)
            if value_length >= 0:
                memcpy(value_data + counts.value_bytes, value_at, value_length)
                counts.value_bytes += value_length
            else:
                counts.value_nulls += 1
            value_ends[row + 1] = <int32_t> counts.value_bytes
            offsets[row] = offset
            timestamps[row] = _microseconds(
                append_time if append_timed else wrapping_sum(base_timestamp, undo_zigzag(wide))
            )
            row += 1
        if at != body_end:
            return 0
        counts.rows = row
        return 1

    cdef const unsigned char* _add_headers(
        self, Counts* counts, const unsigned char* at, const unsigned char* end, bint wanted
    ) except? NULL:
        """Past the headers; NULL without an exception if they are not right."""
        cdef uint32_t raw = 0
        cdef int64_t header, name_length = 0, content_length = 0
        cdef const unsigned char* name_at
        cdef int32_t* name_ends = NULL
        cdef int32_t* content_ends = NULL
        cdef unsigned char* content_valid = NULL
        cdef unsigned char* content_data = NULL
        at = read_raw32(at, end, &raw)
        if at == NULL or raw & 1 or (raw >> 1) > (end - at) // 2:
            return NULL
        wanted = wanted and self.with_headers
        if wanted:
            name_ends = <int32_t*> _room(self.name_ends, 4 * (counts.headers + (raw >> 1) + 1))
            content_ends = <int32_t*> _room(self.content_ends, 4 * (counts.headers + (raw >> 1) + 1))
            content_valid = _room(self.content_valid, (counts.headers + (raw >> 1) + 7) >> 3)
            content_data = _room(self.content_data, counts.content_bytes + (end - at))
        for _ in range(raw >> 1):
            at = name_at = read_length(at, end, &name_length)
            if at == NULL or name_length < 0:
                return NULL
            at = read_length(at + name_length, end, &content_length)
            if at == NULL:
                return NULL
            if wanted:
                header = counts.headers
                self._add_name(counts, name_at, name_length)
                name_ends[header + 1] = <int32_t> counts.name_bytes
                _set_bit(content_valid, header, content_length >= 0)
                if content_length >= 0:
                    memcpy(content_data + counts.content_bytes, at, content_length)
                    counts.content_bytes += content_length
                else:
                    counts.content_nulls += 1
                content_ends[header + 1] = <int32_t> counts.content_bytes
                counts.headers += 1
            if content_length > 0:
                at += content_length
        return at

    cdef int _add_name(self, Counts* counts, const unsigned char* name, int64_t length) except -1:
        cdef unsigned char* data = _room(self.name_data, counts.name_bytes + length)
        cdef int64_t position
        for position in range(length):
            if name[position] >= 0x80:
                break
        else:
            memcpy(data + counts.name_bytes, name, length)
            counts.name_bytes += length
            return 0
        # Columns of text hold nothing but UTF-8; readers trust them.
        text = PyUnicode_DecodeUTF8(<const char*> name, length, "replace").encode()
        length = PyBytes_GET_SIZE(text)
        data = _room(self.name_data, counts.name_bytes + length)
        memcpy(data + counts.name_bytes, PyBytes_AS_STRING(text), length)
        counts.name_bytes += length
        return 0

    cdef int _add_place(self, Counts* counts, int64_t row, bytes topic, int32_t partition, bint append_timed) except -1:
        """The columns that are the same all over a batch."""
        cdef Py_ssize_t length = PyBytes_GET_SIZE(topic)
        cdef int32_t* partitions = <int32_t*> _room(self.partitions, 4 * counts.rows)
        cdef int32_t* types = <int32_t*> _room(self.timestamp_types, 4 * counts.rows)
        cdef int32_t* ends = <int32_t*> _room(self.topic_ends, 4 * (counts.rows + 1))
        cdef unsigned char* data = _room(self.topic_data, counts.topic_bytes + (counts.rows - row) * length)
        while row < counts.rows:
            partitions[row] = partition
            types[row] = append_timed
            memcpy(data + counts.topic_bytes, PyBytes_AS_STRING(topic), length)
            counts.topic_bytes += length
            ends[row + 1] = <int32_t> counts.topic_bytes
            row += 1
        return 0

    def finish(self):
        """The buffers of the columns, in the schema's order, and how many nulls are in each. Nothing can be added then.

        A column is (nulls, buffers); the last one is (nulls, buffers, length and columns of its items) or None.
        """
        cdef Counts counts = self.counts
        bits, ends = (counts.rows + 7) >> 3, 4 * (counts.rows + 1)
        item_bits, item_ends = (counts.headers + 7) >> 3, 4 * (counts.headers + 1)
        columns = (
            (
                counts.key_nulls,
                (_cut(self.key_valid, bits), _cut(self.key_ends, ends), _cut(self.key_data, counts.key_bytes)),
            ),
            (
                counts.value_nulls,
                (_cut(self.value_valid, bits), _cut(self.value_ends, ends), _cut(self.value_data, counts.value_bytes)),
            ),
            (0, (None, _cut(self.topic_ends, ends), _cut(self.topic_data, counts.topic_bytes))),
            (0, (None, _cut(self.partitions, 4 * counts.rows))),
            (0, (None, _cut(self.offsets, 8 * counts.rows))),
            (0, (None, _cut(self.timestamps, 8 * counts.rows))),
            (0, (None, _cut(self.timestamp_types, 4 * counts.rows))),
        )
        names = (0, (None, _cut(self.name_ends, item_ends), _cut(self.name_data, counts.name_bytes)))
        contents = (
            counts.content_nulls,
            (
                _cut(self.content_valid, item_bits),
                _cut(self.content_ends, item_ends),
                _cut(self.content_data, counts.content_bytes),
            ),
        )
        headers = (
            counts.headerless,
            (_cut(self.header_valid, bits), _cut(self.header_ends, ends)),
            (counts.headers, names, contents),
        )
        return counts.rows, columns, headers if self.with_headers else None


cdef bytearray _cut(bytearray buffer, int64_t size):
    PyByteArray_Resize(buffer, size)
    return buffer


# An Arrow array of binary, as it lies in memory.
cdef struct Binary:
    const unsigned char* valid
    const int32_t* ends
    const unsigned char* data
    int64_t data_bytes
    int64_t first
    int64_t length


cdef class ColumnSource:
    """Arrow columns whose rows become records. Whatever the columns claim is checked before it is read."""

    cdef Py_ssize_t length
    cdef Py_buffer views[16]
    cdef int view_count
    cdef Binary keys, values, names, contents
    cdef bint has_keys, has_values, has_headers
    cdef const int64_t* timestamps
    cdef const unsigned char* timestamps_valid
    cdef int64_t timestamps_first
    cdef const int32_t* header_ends
    cdef const unsigned char* headers_valid
    cdef int64_t headers_first

    def __cinit__(self, Py_ssize_t length, keys, values, timestamps, headers):
        """A column of binary is (first, length, validity, ends, data); timestamps are (first, validity, milliseconds);
        headers are (first, validity, ends, names, contents). Each may be None, as may each validity."""
        self.length = length
        if keys is not None:
            self.has_keys = True
            self._open_binary(&self.keys, keys)
            self._must_hold(length, self.keys.length)
        if values is not None:
            self.has_values = True
            self._open_binary(&self.values, values)
            self._must_hold(length, self.values.length)
        if timestamps is not None:
            first, valid, numbers = timestamps
            self.timestamps_first = first
            self.timestamps_valid = <const unsigned char*> self._open(valid, (first + length + 7) >> 3)
            self.timestamps = <const int64_t*> self._open(numbers, 8 * (first + length))
        if headers is not None:
            self.has_headers = True
            first, valid, ends, names, contents = headers
            self.headers_first = first
            self.headers_valid = <const unsigned char*> self._open(valid, (first + length + 7) >> 3)
            self.header_ends = <const int32_t*> self._open(ends, 4 * (first + length + 1))
            self._open_binary(&self.names, names)
            self._open_binary(&self.contents, contents)
            self._must_hold(self.names.length, self.contents.length)

    def __dealloc__(self):
        for index in range(self.view_count):
            PyBuffer_Release(&self.views[index])

    cdef const void* _open(self, buffer, int64_t least) except? NULL:
        if buffer is None:
            return NULL
        PyObject_GetBuffer(buffer, &self.views[self.view_count], PyBUF_SIMPLE)
        self.view_count += 1
        self._must_hold(least, self.views[self.view_count - 1].len)
        return self.views[self.view_count - 1].buf

    cdef int _must_hold(self, int64_t least, int64_t there) except -1:
        if there < least:
            raise ValueError(f"an Arrow buffer should hold {least}, it holds {there}")
        return 0

    cdef int _open_binary(self, Binary* binary, column) except -1:
        first, length, valid, ends, data = column
        if first < 0 or length < 0:
            raise ValueError("an Arrow array of negative length")
        binary.first, binary.length = first, length
        binary.valid = <const unsigned char*> self._open(valid, (first + length + 7) >> 3)
        if ends is None:
            self._must_hold(length, 0)
        binary.ends = <const int32_t*> self._open(ends, 4 * (first + length + 1) if length else 0)
        binary.data = <const unsigned char*> self._open(data, 0)
        binary.data_bytes = 0 if data is None else self.views[self.view_count - 1].len
        return 0

    def partitions(self, int32_t count, explicit=None):
        """For each row the partition of its key, or -1 where it has none; what `explicit` (int32) says goes first."""
        cdef bytearray chosen = bytearray(4 * self.length)
        cdef int32_t* ids = <int32_t*> PyByteArray_AS_STRING(chosen)
        cdef const unsigned char* at = NULL
        cdef int64_t size = -1
        cdef Py_buffer view
        cdef Py_ssize_t row
        if count <= 0:
            raise ValueError("a topic has one partition at least")
        if explicit is not None:
            PyObject_GetBuffer(explicit, &view, PyBUF_SIMPLE)
            try:
                self._must_hold(4 * self.length, view.len)
                memcpy(ids, view.buf, 4 * self.length)
            finally:
                PyBuffer_Release(&view)
        for row in range(self.length):
            if explicit is not None and ids[row] >= 0:
                continue
            ids[row] = -1
            if self.has_keys:
                _cell(&self.keys, row, &at, &size)
                if size >= 0:
                    ids[row] = <int32_t> ((murmur2(at, size) & 0x7FFFFFFF) % <uint32_t> count)
        return chosen

    def append(self, bytearray body not None, rows, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit, int64_t now_ms):
        """Adds the records of `rows[start:stop]` (int32; None: of all rows) to `body` until it holds `limit` bytes.

        Gives where it stopped, and first and greatest timestamp. Where it stopped may be `start`: that record alone is
        too large.
        """
        cdef Py_buffer view
        if rows is None:
            if not 0 <= start <= stop <= self.length:
                raise IndexError("no such rows")
            return self._append(body, NULL, start, stop, limit, now_ms)
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= stop <= view.len // 4:
                raise IndexError("no such rows")
            return self._append(body, <const int32_t*> view.buf, start, stop, limit, now_ms)
        finally:
            PyBuffer_Release(&view)

    cdef tuple _append(
        self, bytearray body, const int32_t* rows, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit, int64_t now_ms
    ):
        cdef const unsigned char* key = NULL
        cdef const unsigned char* value = NULL
        cdef int64_t key_size = -1, value_size = -1, headers = 0, first_header = 0, timestamp, size, used, delta
        cdef int64_t base_timestamp = now_ms, max_timestamp = now_ms
        cdef Py_ssize_t index = start, row
        cdef unsigned char* at
        used = PyByteArray_GET_SIZE(body)
        while index < stop:
            row = index if rows == NULL else rows[index]
            if row < 0 or row >= self.length:
                raise IndexError("no such row")
            timestamp = self._timestamp(row, now_ms)
            if index == start:
                base_timestamp = max_timestamp = timestamp
            if (base_timestamp < 0 and timestamp > INT64_MAX + base_timestamp) or (
                base_timestamp > 0 and timestamp < INT64_MIN + base_timestamp
            ):
                raise OverflowError(f"timestamps {base_timestamp} and {timestamp} are too far apart for one batch")
            delta = timestamp - base_timestamp
            if self.has_keys:
                _cell(&self.keys, row, &key, &key_size)
            if self.has_values:
                _cell(&self.values, row, &value, &value_size)
            if self.has_headers:
                headers = self._headers_of(row, &first_header)
            size = 1 + varint_size(zigzag(delta)) + varint_size(zigzag(index - start)) + varint_size(zigzag(headers))
            size += _size(key_size) + _size(value_size)
            if headers:
                size += self._headers_size(first_header, headers)
            if used + varint_size(zigzag(size)) + size > limit:
                break
            max_timestamp = max(max_timestamp, timestamp)
            at = _room(body, used + varint_size(zigzag(size)) + size) + used
            at = write_raw(at, zigzag(size))
            at[0] = 0  # attributes, of which none is in use
            at = write_raw(at + 1, zigzag(delta))
            at = write_raw(at, zigzag(index - start))
            at = _write(at, key, key_size)
            at = _write(at, value, value_size)
            at = write_raw(at, zigzag(headers))
            if headers:
                at = self._write_headers(at, first_header, headers)
            used = at - <unsigned char*> PyByteArray_AS_STRING(body)
            index += 1
        PyByteArray_Resize(body, used)
        return index, base_timestamp, max_timestamp

    cdef inline int64_t _timestamp(self, Py_ssize_t row, int64_t now_ms) noexcept:
        if self.timestamps == NULL:
            return now_ms
        if self.timestamps_valid != NULL and not _bit(self.timestamps_valid, self.timestamps_first + row):
            return now_ms
        return self.timestamps[self.timestamps_first + row]

    cdef int64_t _headers_of(self, Py_ssize_t row, int64_t* first) except -1:
        cdef int64_t end
        if self.headers_valid != NULL and not _bit(self.headers_valid, self.headers_first + row):
            return 0
        first[0] = self.header_ends[self.headers_first + row]
        end = self.header_ends[self.headers_first + row + 1]
        if not 0 <= first[0] <= end <= self.names.length:
            raise ValueError("the offsets of an Arrow list are not in order")
        return end - first[0]

    cdef int64_t _headers_size(self, int64_t first, int64_t count) except -1:
        cdef const unsigned char* at = NULL
        cdef int64_t length = 0, size = 0, header
        for header in range(first, first + count):
            _cell(&self.names, header, &at, &length)
            if length < 0:
                raise ValueError("a record header needs a key: it is null")
            size += _size(length)
            _cell(&self.contents, header, &at, &length)
            size += _size(length)
        return size

    cdef unsigned char* _write_headers(self, unsigned char* to, int64_t first, int64_t count) except NULL:
        cdef const unsigned char* at = NULL
        cdef int64_t length = 0, header
        for header in range(first, first + count):
            _cell(&self.names, header, &at, &length)
            to = _write(to, at, length)
            _cell(&self.contents, header, &at, &length)
            to = _write(to, at, length)
        return to


cdef inline bint _bit(const unsigned char* bits, int64_t index) noexcept:
    return bits[index >> 3] >> (index & 7) & 1


cdef inline int _cell(const Binary* binary, int64_t row, const unsigned char** at, int64_t* size) except -1:
    """Where the bytes of the row are; a size of -1 is null."""
    cdef int64_t place = binary.first + row, start, end
    if binary.valid != NULL and not _bit(binary.valid, place):
        size[0] = -1
        return 0
    start, end = binary.ends[place], binary.ends[place + 1]
    if not 0 <= start <= end <= binary.data_bytes:
        raise ValueError("the offsets of an Arrow array are not in order")
    at[0] = binary.data + start
    size[0] = end - start
    return 0


cdef inline int64_t _size(int64_t length) noexcept:
    return 1 if length < 0 else varint_size(zigzag(length)) + length


cdef inline unsigned char* _write(unsigned char* to, const unsigned char* at, int64_t length) noexcept:
    if length < 0:
        to[0] = 1  # the varint of -1
        return to + 1
    to = write_raw(to, zigzag(length))
    memcpy(to, at, length)
    return to + length


def rows_by_partition(ids):
    """Which rows go to which partition: their numbers (int32) in order, by the id (int32) of their partition."""
    cdef Py_buffer view
    cdef const int32_t* wanted
    cdef Py_ssize_t row, count
    cdef int32_t last = 0
    cdef bytearray chosen = None
    cdef dict used = {}, found = {}
    cdef int32_t* numbers
    cdef int64_t size = 0
    PyObject_GetBuffer(ids, &view, PyBUF_SIMPLE)
    try:
        wanted = <const int32_t*> view.buf
        count = view.len // 4
        for row in range(count):
            if chosen is None or wanted[row] != last:
                if chosen is not None:
                    used[last] = size
                last = wanted[row]
                chosen = found.get(last)
                if chosen is None:
                    chosen = found[last] = bytearray()
                size = used.get(last, 0)
            numbers = <int32_t*> _room(chosen, 4 * (size + 1) if size else 64)
            numbers[size] = <int32_t> row
            size += 1
        if chosen is not None:
            used[last] = size
        for last, chosen in found.items():
            PyByteArray_Resize(chosen, 4 * <int64_t> used[last])
        return found
    finally:
        PyBuffer_Release(&view)
