/* A broker with nothing but the hot path, in plain C: what the machine gives when the language costs nothing.
 *
 * One epoll loop, one log file, any topic name. It serves, without checking who asks for what:
 *   ApiVersions v0   a fixed reply
 *   Produce v9       one batch in one partition: CRC-32C checked, offset and epoch patched in place, one pwrite
 *   Fetch v12        whole batches by sendfile; all batches must have the size and record count of the first
 * A request it does not understand ends the connection. Usage: broker LOG_FILE; it prints the port it listens on.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 4 << 20,
    READ_BYTES = 64 << 10, /* small frames are read many at a time */
    REPLIES_BYTES = 1 << 16,
    EVENTS = 64,
    OFFERED_APIS = 24, /* about as many as the peer offers, for a reply of the same size */
};

enum { PRODUCE = 0, FETCH = 1, API_VERSIONS = 18 };
enum { PRODUCE_VERSION = 9, FETCH_VERSION = 12 };
enum { BATCH_LENGTH_AT = 8, EPOCH_AT = 12, CRC_AT = 17, CRC_FROM = 21, LAST_DELTA_AT = 23, BATCH_HEADER = 61 };

static struct {
    int file;
    uint64_t size, next_offset;
    uint64_t batch_bytes, batch_records; /* of the first batch */
} the_log;

typedef struct {
    int socket;
    size_t start, end; /* the unread part of `in` */
    uint8_t *in;
    size_t out_start, out_end; /* the unsent part of `out` */
    uint8_t out[REPLIES_BYTES];
    off_t file_at; /* then these bytes of the log */
    size_t file_bytes;
    size_t tail_bytes; /* then so many empty tag sections */
} Connection;

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* --- CRC-32C: three streams at once, since each instruction waits three cycles for the one before it --- */

enum { STREAM_BYTES = 4096 };
static uint32_t past_stream[4][256]; /* what STREAM_BYTES zero bytes make of each byte of a state */

static uint64_t load64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void prepare_crc(void) {
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++) {
            uint64_t state = (uint64_t)value << (8 * byte);
            for (int i = 0; i < STREAM_BYTES / 8; i++) state = _mm_crc32_u64(state, 0);
            past_stream[byte][value] = (uint32_t)state;
        }
}

static uint32_t skip_stream(uint32_t state) {
    return past_stream[0][state & 255] ^ past_stream[1][state >> 8 & 255] ^ past_stream[2][state >> 16 & 255] ^
           past_stream[3][state >> 24];
}

static uint32_t crc32c(const uint8_t *at, size_t count) {
    uint64_t state = 0xffffffff;
    while (count >= 3 * STREAM_BYTES) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < STREAM_BYTES; i += 8) {
            state = _mm_crc32_u64(state, load64(at + i));
            second = _mm_crc32_u64(second, load64(at + STREAM_BYTES + i));
            third = _mm_crc32_u64(third, load64(at + 2 * STREAM_BYTES + i));
        }
        state = skip_stream(skip_stream((uint32_t)state) ^ (uint32_t)second) ^ (uint32_t)third;
        at += 3 * STREAM_BYTES;
        count -= 3 * STREAM_BYTES;
    }
    for (; count >= 8; at += 8, count -= 8) state = _mm_crc32_u64(state, load64(at));
    for (; count; at++, count--) state = _mm_crc32_u8((uint32_t)state, *at);
    return ~(uint32_t)state;
}

/* --- reading a request: a cursor that goes bad instead of past the end --- */

typedef struct {
    uint8_t *at, *end;
    bool bad;
} Cursor;

static uint8_t *take(Cursor *c, size_t count) {
    static uint8_t nothing[64];
    if (c->bad || count > (size_t)(c->end - c->at)) {
        c->bad = true;
        return nothing; /* only fixed-size fields are read from it */
    }
    uint8_t *at = c->at;
    c->at += count;
    return at;
}

static int16_t take16(Cursor *c) {
    uint16_t value;
    memcpy(&value, take(c, 2), 2);
    return (int16_t)be16toh(value);
}

static int32_t take32(Cursor *c) {
    uint32_t value;
    memcpy(&value, take(c, 4), 4);
    return (int32_t)be32toh(value);
}

static int64_t take64(Cursor *c) {
    uint64_t value;
    memcpy(&value, take(c, 8), 8);
    return (int64_t)be64toh(value);
}

static uint32_t take_uvarint(Cursor *c) {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t byte = *take(c, 1);
        value |= (uint32_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    c->bad = true;
    return 0;
}

static void skip_compact(Cursor *c) { /* a string: its length is stored plus one, 0 is null */
    uint32_t stored = take_uvarint(c);
    if (stored > 1 && (size_t)(c->end - c->at) >= stored - 1)
        c->at += stored - 1;
    else if (stored > 1)
        c->bad = true;
}

/* --- writing a reply --- */

static uint8_t *put16(uint8_t *at, uint16_t value) {
    value = htobe16(value);
    memcpy(at, &value, 2);
    return at + 2;
}

static uint8_t *put32(uint8_t *at, uint32_t value) {
    value = htobe32(value);
    memcpy(at, &value, 4);
    return at + 4;
}

static uint8_t *put64(uint8_t *at, uint64_t value) {
    value = htobe64(value);
    memcpy(at, &value, 8);
    return at + 8;
}

static uint8_t *put_uvarint(uint8_t *at, uint32_t value) {
    for (; value > 127; value >>= 7) *at++ = (uint8_t)(value | 128);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_topic(uint8_t *at, const Cursor *name) { /* one topic with one partition; `name` as it came */
    size_t count = (size_t)(name->end - name->at);
    *at++ = 2;
    memcpy(at, name->at, count);
    at += count;
    *at++ = 2;
    return at;
}

/* --- the three requests. Each gives the end of its reply, or NULL to end the connection --- */

static uint8_t *api_versions(uint8_t *at) {
    at = put16(at, 0);
    at = put32(at, OFFERED_APIS);
    for (int api = 0; api < OFFERED_APIS; api++) at = put16(put16(put16(at, (uint16_t)api), 0), 9);
    return at;
}

static Cursor take_name(Cursor *c) {
    Cursor name = {c->at, c->at, false};
    skip_compact(c);
    name.end = c->at;
    return name;
}

static uint8_t *produce(Cursor *c, uint8_t *at) {
    take(c, 1); /* header tags */
    skip_compact(c);
    take16(c);
    take32(c);
    uint32_t topics = take_uvarint(c);
    Cursor name = take_name(c);
    uint32_t partitions = take_uvarint(c);
    int32_t index = take32(c);
    uint32_t size = take_uvarint(c) - 1;
    if (c->bad || topics != 2 || partitions != 2 || name.end - name.at > 250 || size < BATCH_HEADER ||
        size > (size_t)(c->end - c->at))
        return NULL;
    uint8_t *batch = c->at;
    uint32_t length, crc, last_delta;
    memcpy(&length, batch + BATCH_LENGTH_AT, 4);
    memcpy(&crc, batch + CRC_AT, 4);
    memcpy(&last_delta, batch + LAST_DELTA_AT, 4);
    if (be32toh(length) + 12 != size || be32toh(crc) != crc32c(batch + CRC_FROM, size - CRC_FROM)) return NULL;
    uint64_t base_offset = the_log.next_offset;
    put64(batch, base_offset);
    put32(batch + EPOCH_AT, 0);
    for (size_t written = 0; written < size;) {
        ssize_t done = pwrite(the_log.file, batch + written, size - written, (off_t)(the_log.size + written));
        if (done < 0) die("pwrite");
        written += (size_t)done;
    }
    the_log.size += size;
    the_log.next_offset += be32toh(last_delta) + 1;
    if (!the_log.batch_bytes) {
        the_log.batch_bytes = size;
        the_log.batch_records = be32toh(last_delta) + 1;
    }
    *at++ = 0; /* header tags */
    at = put_topic(at, &name);
    at = put16(put32(at, (uint32_t)index), 0);
    at = put64(put64(put64(at, base_offset), (uint64_t)-1), 0);
    *at++ = 1; /* no record errors */
    *at++ = 0; /* no message */
    *at++ = 0;
    *at++ = 0;
    at = put32(at, 0);
    *at++ = 0;
    return at;
}

static uint8_t *fetch(Connection *conn, Cursor *c, uint8_t *at) {
    take(c, 1);
    take(c, 4 + 4 + 4 + 4 + 1 + 4 + 4);
    uint32_t topics = take_uvarint(c);
    Cursor name = take_name(c);
    uint32_t partitions = take_uvarint(c);
    int32_t index = take32(c);
    take32(c);
    uint64_t offset = (uint64_t)take64(c);
    take(c, 4 + 8);
    uint32_t bytes_max = (uint32_t)take32(c);
    if (c->bad || topics != 2 || partitions != 2 || name.end - name.at > 250 || !the_log.batch_bytes ||
        offset > the_log.next_offset)
        return NULL;
    uint64_t position = offset / the_log.batch_records * the_log.batch_bytes;
    uint64_t bytes = bytes_max / the_log.batch_bytes * the_log.batch_bytes;
    if (bytes > the_log.size - position) bytes = the_log.size - position;
    *at++ = 0;
    at = put32(put16(put32(at, 0), 0), 0);
    at = put_topic(at, &name);
    at = put16(put32(at, (uint32_t)index), 0);
    at = put64(put64(put64(at, the_log.next_offset), the_log.next_offset), 0);
    *at++ = 0;
    at = put32(at, (uint32_t)-1);
    at = put_uvarint(at, (uint32_t)bytes + 1);
    conn->file_at = (off_t)position;
    conn->file_bytes = bytes;
    conn->tail_bytes = 3;
    return at;
}

static bool answer(Connection *conn, uint8_t *frame, size_t size) {
    Cursor c = {frame, frame + size, false};
    int16_t api = take16(&c), version = take16(&c);
    uint32_t correlation = (uint32_t)take32(&c);
    int16_t client = take16(&c);
    if (client > 0 && client <= c.end - c.at) c.at += client;
    uint8_t *reply = conn->out + conn->out_end, *at = put32(reply + 4, correlation);
    if (api == API_VERSIONS && version == 0)
        at = api_versions(at);
    else if (api == PRODUCE && version == PRODUCE_VERSION)
        at = produce(&c, at);
    else if (api == FETCH && version == FETCH_VERSION)
        at = fetch(conn, &c, at);
    else
        at = NULL;
    if (!at || c.bad) return false;
    put32(reply, (uint32_t)((size_t)(at - reply) - 4 + conn->file_bytes + conn->tail_bytes));
    conn->out_end += (size_t)(at - reply);
    return true;
}

/* --- moving bytes --- */

enum Sent { ALL, SOME, BROKEN };

static enum Sent send_replies(Connection *conn) {
    static const uint8_t tail[3];
    while (conn->out_start < conn->out_end) {
        ssize_t done = send(conn->socket, conn->out + conn->out_start, conn->out_end - conn->out_start,
                            MSG_NOSIGNAL | (conn->file_bytes ? MSG_MORE : 0));
        if (done < 0) return errno == EAGAIN ? SOME : BROKEN;
        conn->out_start += (size_t)done;
    }
    conn->out_start = conn->out_end = 0;
    while (conn->file_bytes) {
        ssize_t done = sendfile(conn->socket, the_log.file, &conn->file_at, conn->file_bytes);
        if (done < 0) return errno == EAGAIN ? SOME : BROKEN;
        if (!done) return BROKEN;
        conn->file_bytes -= (size_t)done;
    }
    while (conn->tail_bytes) {
        ssize_t done = send(conn->socket, tail, conn->tail_bytes, MSG_NOSIGNAL);
        if (done < 0) return errno == EAGAIN ? SOME : BROKEN;
        conn->tail_bytes -= (size_t)done;
    }
    return ALL;
}

/* Answers the whole frames in the buffer; a reply with records goes out before the next request is looked at. */
static enum Sent answer_frames(Connection *conn) {
    while (conn->end - conn->start >= 4) {
        uint32_t size;
        memcpy(&size, conn->in + conn->start, 4);
        size = be32toh(size);
        if (size > BUFFER_BYTES - 4) return BROKEN;
        if (conn->end - conn->start < 4 + (size_t)size) break;
        if (!answer(conn, conn->in + conn->start + 4, size)) return BROKEN;
        conn->start += 4 + (size_t)size;
        if (conn->file_bytes || conn->out_end > REPLIES_BYTES - 1024) {
            enum Sent sent = send_replies(conn);
            if (sent != ALL) return sent;
        }
    }
    return send_replies(conn);
}

/* How much to read: a large frame exactly to its end, so that the next one starts at the front and nothing moves. */
static size_t room(Connection *conn) {
    size_t held = conn->end - conn->start;
    if (!held) conn->start = conn->end = 0;
    if (held >= 4) {
        uint32_t size;
        memcpy(&size, conn->in + conn->start, 4);
        size_t missing = 4 + (size_t)be32toh(size) - held;
        if (conn->start && conn->end + missing > BUFFER_BYTES) {
            memmove(conn->in, conn->in + conn->start, held);
            conn->start = 0;
            conn->end = held;
        }
        if (missing > READ_BYTES) return missing;
    } else if (conn->end + READ_BYTES > BUFFER_BYTES) {
        memmove(conn->in, conn->in + conn->start, held);
        conn->start = 0;
        conn->end = held;
    }
    return READ_BYTES < BUFFER_BYTES - conn->end ? READ_BYTES : BUFFER_BYTES - conn->end;
}

static bool serve(Connection *conn, int epoll, uint32_t events) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = conn};
    enum Sent sent = ALL;
    if (events & EPOLLOUT) {
        sent = send_replies(conn);
        if (sent == ALL) sent = answer_frames(conn);
        if (sent == ALL) epoll_ctl(epoll, EPOLL_CTL_MOD, conn->socket, &interest);
    } else {
        size_t wanted = room(conn); /* moves conn->end */
        ssize_t got = recv(conn->socket, conn->in + conn->end, wanted, 0);
        if (got <= 0) return got < 0 && errno == EAGAIN;
        conn->end += (size_t)got;
        sent = answer_frames(conn);
        interest.events = EPOLLOUT;
        if (sent == SOME) epoll_ctl(epoll, EPOLL_CTL_MOD, conn->socket, &interest);
    }
    return sent != BROKEN;
}

static void accept_one(int listener, int epoll) {
    int one = 1, socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (socket < 0) return;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Connection *conn = calloc(1, sizeof *conn);
    if (!conn || !(conn->in = malloc(BUFFER_BYTES))) die("malloc");
    conn->socket = socket;
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &interest)) die("epoll_ctl");
}

static int listen_anywhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 128) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        die("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: %s LOG_FILE\n", argv[0]), 2;
    the_log.file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (the_log.file < 0) die(argv[1]);
    prepare_crc();
    int epoll = epoll_create1(0), listener = listen_anywhere();
    struct epoll_event events[EVENTS], interest = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &interest)) die("epoll_ctl");
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            Connection *conn = events[i].data.ptr;
            if (!conn) {
                accept_one(listener, epoll);
            } else if (!serve(conn, epoll, events[i].events)) {
                close(conn->socket);
                free(conn->in);
                free(conn);
            }
        }
    }
}
