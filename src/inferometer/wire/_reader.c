/* The compiled part of the wire. Optional: everything here exists in Python too, with the same results and more CPU
 * time (wire/reactor.py, wire/sse.py, wire/skeleton.py; a property test holds the two together).
 *
 * An epoll that also reads: `Poller` is `select.epoll` plus `attach`, after which the answer that arrives on a descriptor
 * is collected here, each read with its kernel stamp. Python hears of it when it is an event stream and complete (`take`
 * hands everything over at once), or when only Python can tell what it is, or whether it ends. It hears of a few at a time:
 * what Python does about each takes long, and meanwhile the other streams are to be read.
 *
 * A server may send faster than we read, and without end. So a poll reads a bounded number of bytes, of one stream and of
 * all, and what is left unread waits in a queue (edges are told once); an answer may have a bounded number of bytes; and
 * the interpreter is free while sockets are read. Where an answer ends is told by the sizes of its chunks alone.
 */
#define _GNU_SOURCE /* memmem */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <structmember.h>

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VERSION 5 /* as in wire/compiled.py */
#define READ_SIZE (16 * 1024)
#define MOST_EVENTS 1024
#define ON_EDGES (EPOLLIN | EPOLLRDHUP | EPOLLET) /* told once of what arrives: the kernel looks half as often */
#define COMPLETE (1 << 16) /* the last chunk of the stream is here */
#define LOOK (1 << 17)     /* not an event stream in plain chunks, or a broken one: take it, and look */
#define SURPLUS (1 << 18)  /* with COMPLETE: bytes came behind the last chunk, which were thrown away */
#define TOO_LARGE (1 << 19) /* it has more bytes than it may have */
#define AT_ONCE 16 /* answers that Python hears of between two rounds of reading */
#define AT_ONE_STREAM (256 * 1024) /* bytes that one poll reads of a stream, so that the others have their turn */
#define MOST_HEAD (64 * 1024) /* as in wire/http1.py */
#define MOST_SIZE_DIGITS 15   /* likewise */
#define KEPT_ROOM (1024 * 1024) /* bytes of a buffer that are kept for the next answer on the connection */
#define DELAY_ONCE 1 /* as in wire/sockets.py */
#define DELAY_ALWAYS 2
#define DELAY_AT 2     /* which read: behind the headers, which often come long before the first token */
#define DELAY_EVERY 64 /* reads: the kernel gives the delay up after each pause of 40 ms */
#define SEEN_AT 9      /* which read: a server that waits for acknowledgements has waited by then */
#define MOST_DIGITS 15 /* of a count: with more it is parsed, as a number that cannot be */

#ifndef SO_TIMESTAMPNS
#define SO_TIMESTAMPNS 35
#endif
#define SCM_STAMP SO_TIMESTAMPNS

typedef struct {
    int64_t end;   /* bytes of the stream up to and including this read */
    int64_t stamp; /* nanoseconds of the real-time clock */
    int64_t own;   /* 1 where the kernel gave no stamp and this is our own, taken after the read */
} Mark;

/* Where in its chunks an answer is: `left` is the size of a chunk as far as it was read, then what is missing of it. */
typedef struct {
    enum { SIZE, SIZE_END, DATA, DATA_END, DATA_ENDED, LAST, LAST_ENDED } phase;
    int digits;
    int64_t left;
} Framing;

typedef struct {
    int attached;
    enum { READING, TO_TELL, TOLD } state; /* nothing is read between the read that Python must hear of and `take` */
    int fresh; /* the answer's headers are still to come, or incomplete */
    unsigned int unread; /* events that are not dealt with: then it is in the poller's queue */
    size_t most;         /* bytes that the answer may have */
    size_t followed;     /* bytes whose framing was followed */
    Framing framing;
    int delay; /* of acknowledgements: DELAY_ONCE, DELAY_ALWAYS or 0 */
    int apart; /* 1 where the server was seen to send without waiting for one */
    char *data; /* kept from one answer to the next, so that it is allocated once per connection */
    size_t used, room;
    Mark *marks;
    size_t count, space;
} Stream;

typedef struct {
    PyObject_HEAD
    int epoll;
    Stream *streams; /* by descriptor */
    int size;
    int taken; /* how many descriptors were ready at the last poll, those read here included; MOST_EVENTS: more than that */
    struct {
        int fd, what;
    } *heard; /* answers that Python is still to hear of */
    int waiting, room;
    int *queue; /* descriptors of streams with something unread, in the order of their turns */
    int queued, queue_room;
    Py_ssize_t most_at_once; /* bytes that a poll may read */
    Py_ssize_t held;         /* bytes of memory that all streams fill */
    int polling;             /* a thread is in `poll` without the interpreter's lock: nothing else may be changed */
} Poller;

static PyObject *failed(void) { return PyErr_SetFromErrno(PyExc_OSError); }

static int control(Poller *self, int operation, int fd, unsigned int events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(self->epoll, operation, fd, &event);
}

/* Whether the streams may be touched: not from another thread while one polls. */
static int is_free(Poller *self) {
    if (self->polling) PyErr_SetString(PyExc_RuntimeError, "another thread is in poll()");
    return !self->polling;
}

static Stream *stream_of(Poller *self, int fd) {
    return fd >= 0 && fd < self->size && self->streams[fd].attached ? &self->streams[fd] : NULL;
}

/* What was collected is no longer held; buffers of usual size are kept for the next answer. */
static void empty(Poller *self, Stream *stream) {
    self->held -= (Py_ssize_t)(stream->used + stream->count * sizeof(Mark));
    stream->used = stream->count = stream->followed = 0;
    if (stream->room > KEPT_ROOM || stream->space * sizeof(Mark) > KEPT_ROOM) {
        PyMem_RawFree(stream->data);
        PyMem_RawFree(stream->marks);
        stream->data = NULL;
        stream->marks = NULL;
        stream->room = stream->space = 0;
    }
}

static void leave_queue(Poller *self, int fd) {
    int kept = 0;
    for (int i = 0; i < self->queued; i++)
        if (self->queue[i] != fd) self->queue[kept++] = self->queue[i];
    self->queued = kept;
    self->streams[fd].unread = 0;
}

static void leave_heard(Poller *self, int fd) {
    int kept = 0;
    for (int i = 0; i < self->waiting; i++)
        if (self->heard[i].fd != fd) self->heard[kept++] = self->heard[i];
    self->waiting = kept;
}

static void forget(Poller *self, int fd) {
    if (fd < 0 || fd >= self->size) return;
    if (self->streams[fd].unread) leave_queue(self, fd);
    if (self->streams[fd].state == TO_TELL) leave_heard(self, fd);
    empty(self, &self->streams[fd]);
    PyMem_RawFree(self->streams[fd].data);
    PyMem_RawFree(self->streams[fd].marks);
    memset(&self->streams[fd], 0, sizeof(Stream));
}

static PyObject *Poller_register(Poller *self, PyObject *args) {
    int fd;
    unsigned int events;
    if (!PyArg_ParseTuple(args, "iI", &fd, &events)) return NULL;
    if (control(self, EPOLL_CTL_ADD, fd, events) < 0) return failed();
    Py_RETURN_NONE;
}

static PyObject *Poller_modify(Poller *self, PyObject *args) {
    int fd;
    unsigned int events;
    if (!PyArg_ParseTuple(args, "iI", &fd, &events)) return NULL;
    if (control(self, EPOLL_CTL_MOD, fd, events) < 0) return failed();
    Py_RETURN_NONE;
}

static PyObject *Poller_unregister(Poller *self, PyObject *number) {
    int fd = (int)PyLong_AsLong(number);
    if (fd == -1 && PyErr_Occurred()) return NULL;
    if (!is_free(self)) return NULL;
    forget(self, fd);
    if (control(self, EPOLL_CTL_DEL, fd, 0) < 0) return failed();
    Py_RETURN_NONE;
}

/* attach(fd, left, delay, most): `left` is -1 for an answer from its headers on; else these were read, and it says how many
 * bytes of a chunk and of its end are still to come, 0 where the next one's size is. */
static PyObject *Poller_attach(Poller *self, PyObject *args) {
    int fd, delay;
    long long left;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "iLin", &fd, &left, &delay, &most) || !is_free(self)) return NULL;
    if (fd < 0 || left < -1 || left == 1 || most < 0) {
        PyErr_SetString(PyExc_ValueError, "a descriptor and a size are not negative, and a chunk's end has two bytes");
        return NULL;
    }
    if (fd >= self->size) {
        int size = fd + 256;
        Stream *streams = PyMem_RawRealloc(self->streams, size * sizeof(Stream));
        if (streams == NULL) return PyErr_NoMemory();
        memset(streams + self->size, 0, (size - self->size) * sizeof(Stream));
        self->streams = streams;
        self->size = size;
    }
    if (control(self, EPOLL_CTL_MOD, fd, ON_EDGES) < 0) return failed();
    Stream *stream = &self->streams[fd];
    empty(self, stream);
    stream->attached = 1;
    stream->state = READING;
    stream->fresh = left < 0;
    stream->framing = (Framing){left > 2 ? DATA : left == 2 ? DATA_END : SIZE, 0, left > 2 ? left - 2 : 0};
    stream->most = (size_t)most;
    stream->delay = delay;
    stream->apart = 0;
    Py_RETURN_NONE;
}

/* take(fd, before) -> (data, marks, own, apart): `before` and all that was read since `attach`, which ends; marks are Mark
 * as int64, their ends counted from behind `before`; `own` says how many of them have no stamp of the kernel, `apart`
 * whether the server was seen to send without waiting for acknowledgements. */
static PyObject *Poller_take(Poller *self, PyObject *args) {
    int fd;
    const char *before;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "iy#", &fd, &before, &size) || !is_free(self)) return NULL;
    Stream *stream = stream_of(self, fd);
    Stream nothing = {0};
    if (stream == NULL) stream = &nothing;
    else if (control(self, EPOLL_CTL_MOD, fd, EPOLLIN) < 0) return failed(); /* tells again of what is unread */
    if (stream->unread) leave_queue(self, fd);
    if (stream->state == TO_TELL) leave_heard(self, fd);
    stream->state = READING;
    stream->attached = 0;
    PyObject *data = PyBytes_FromStringAndSize(NULL, size + (Py_ssize_t)stream->used);
    if (data == NULL) return NULL;
    memcpy(PyBytes_AS_STRING(data), before, size);
    if (stream->used) memcpy(PyBytes_AS_STRING(data) + size, stream->data, stream->used);
    Py_ssize_t own = 0;
    for (size_t i = 0; i < stream->count; i++) own += stream->marks[i].own;
    PyObject *taken = Py_BuildValue("Ny#ni", data, stream->marks ? (char *)stream->marks : "",
                                    (Py_ssize_t)(stream->count * sizeof(Mark)), own, stream->apart);
    empty(self, stream);
    return taken;
}

/* heard(fd) -> how many reads there were since `attach`, and how many bytes. */
static PyObject *Poller_heard(Poller *self, PyObject *number) {
    int fd = (int)PyLong_AsLong(number);
    if ((fd == -1 && PyErr_Occurred()) || !is_free(self)) return NULL;
    Stream *stream = stream_of(self, fd);
    return Py_BuildValue("nn", stream == NULL ? 0 : (Py_ssize_t)stream->count, stream == NULL ? 0 : (Py_ssize_t)stream->used);
}

static int append_new(PyObject *list, PyObject *item) {
    if (item == NULL) return -1;
    int result = PyList_Append(list, item);
    Py_DECREF(item);
    return result;
}

/* Room for one more read; -1 where there is no memory. */
static int make_room(Stream *stream) {
    if (stream->room - stream->used < READ_SIZE) {
        size_t room = stream->room * 2 + 2 * READ_SIZE;
        char *data = PyMem_RawRealloc(stream->data, room);
        if (data == NULL) return -1;
        stream->data = data;
        stream->room = room;
    }
    if (stream->count == stream->space) {
        size_t space = stream->space * 2 + 64;
        Mark *marks = PyMem_RawRealloc(stream->marks, space * sizeof(Mark));
        if (marks == NULL) return -1;
        stream->marks = marks;
        stream->space = space;
    }
    return 0;
}

/* The kernel's stamp of a read, or our own. */
static void mark_read(Stream *stream, struct msghdr *message) {
    struct timespec at;
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    int own = head == NULL || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_STAMP;
    if (own)
        clock_gettime(CLOCK_REALTIME, &at);
    else
        memcpy(&at, CMSG_DATA(head), sizeof at);
    int64_t stamp = (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
    stream->marks[stream->count++] = (Mark){(int64_t)stream->used, stamp, own};
}

/* One read: how many bytes, 0 at the end, -1 with errno for an error. */
static ssize_t read_once(Stream *stream, int fd) {
    union {
        char room[CMSG_SPACE(sizeof(struct timespec))];
        struct cmsghdr align;
    } ancillary;
    struct iovec space = {.iov_base = stream->data + stream->used, .iov_len = READ_SIZE};
    struct msghdr message = {.msg_iov = &space,
                             .msg_iovlen = 1,
                             .msg_control = ancillary.room,
                             .msg_controllen = sizeof ancillary.room};
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
    if (got > 0) {
        stream->used += (size_t)got;
        mark_read(stream, &message);
    }
    return got;
}

/* Have the kernel acknowledge every second read instead of each, where that is asked: an acknowledgement costs as much as
 * a read. A server that waits for them (Nagle's algorithm) then waits 40 ms, after which the kernel is back to one for
 * each: where it is not, the server has sent on without. */
static void delay_acks(Stream *stream, int fd) {
    int at_once = 0;
    socklen_t size = sizeof at_once;
    size_t renewed = stream->delay == DELAY_ALWAYS ? stream->count % DELAY_EVERY : stream->count;
    if (renewed == DELAY_AT) setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, size);
    if (stream->count == SEEN_AT && getsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, &size) == 0)
        stream->apart = !at_once;
}

/* How often a text has another one in it, in any case. */
static int has(const char *text, size_t size, const char *wanted) {
    size_t length = strlen(wanted);
    int count = 0;
    for (size_t i = 0; i + length <= size; i++)
        count += (text[i] | 0x20) == (wanted[0] | 0x20) && strncasecmp(text + i, wanted, length) == 0;
    return count;
}

/* Whether the headers, which have come, are those of an event stream in chunks; anything else is Python's to read. */
static int is_event_stream(const char *head, size_t size) {
    return size > 13 && memcmp(head, "HTTP/1.1 200", 12) == 0 && (head[12] == ' ' || head[12] == '\r') &&
           has(head, size, "\r\ntransfer-encoding: chunked\r\n") == 1 && has(head, size, "transfer-encoding") == 1 &&
           has(head, size, "text/event-stream");
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of the framing: the phase behind it, -1 where it is not as usual. */
static int step(Framing *framing, char c) {
    int digit = hex_digit(c);
    switch (framing->phase) {
    case SIZE:
        if (digit >= 0 && framing->digits++ < MOST_SIZE_DIGITS) {
            framing->left = framing->left * 16 + digit;
            return SIZE;
        }
        return c == '\r' && framing->digits > 0 ? SIZE_END : -1;
    case SIZE_END:
        return c != '\n' ? -1 : framing->left ? DATA : LAST;
    case DATA_END:
        return c == '\r' ? DATA_ENDED : -1;
    case DATA_ENDED:
        framing->left = framing->digits = 0;
        return c == '\n' ? SIZE : -1;
    case LAST: /* anything but an empty line is a trailer */
        return c == '\r' ? LAST_ENDED : -1;
    default:
        return -1;
    }
}

/* Follow the chunks through what has come: COMPLETE behind the last one, LOOK where they are not plain, else 0. */
static int follow(Stream *stream) {
    Framing *framing = &stream->framing;
    while (stream->followed < stream->used) {
        if (framing->phase == DATA) {
            size_t here = stream->used - stream->followed;
            if ((uint64_t)framing->left < here) here = (size_t)framing->left;
            stream->followed += here;
            framing->left -= (int64_t)here;
            if (framing->left == 0) framing->phase = DATA_END;
            continue;
        }
        char c = stream->data[stream->followed++];
        if (framing->phase == LAST_ENDED) return c == '\n' ? COMPLETE : LOOK;
        int phase = step(framing, c);
        if (phase < 0) return LOOK;
        framing->phase = phase;
    }
    return 0;
}

/* Throw away what came behind the last chunk. */
static int without_surplus(Stream *stream) {
    if (stream->followed == stream->used) return COMPLETE;
    stream->used = stream->followed;
    stream->marks[stream->count - 1].end = (int64_t)stream->used;
    return COMPLETE | SURPLUS;
}

/* What a read makes of an answer: COMPLETE, LOOK, TOO_LARGE, or 0 where more is to come. */
static int judged(Stream *stream) {
    if (stream->fresh) {
        const char *end = memmem(stream->data, stream->used, "\r\n\r\n", 4);
        size_t known = stream->used < 5 ? stream->used : 5;
        if (end == NULL) return memcmp(stream->data, "HTTP/", known) != 0 || stream->used > MOST_HEAD ? LOOK : 0;
        size_t size = (size_t)(end - stream->data) + 4;
        if (size > MOST_HEAD || !is_event_stream(stream->data, size)) return LOOK;
        stream->fresh = 0;
        stream->followed = size;
    }
    int what = follow(stream);
    if (what == COMPLETE) what = without_surplus(stream);
    return what != LOOK && stream->used > stream->most ? TOO_LARGE : what;
}

/* Read what waits on an attached descriptor, up to `most` bytes. A read that leaves room has taken all there was; with the
 * peer's end, which is no longer told either, one more finds it. Returns the events that Python must hear of, 0 for none;
 * *unread becomes the events that are left where there may be more to read. */
static int read_stream(Stream *stream, int fd, ssize_t most, unsigned int *unread) {
    unsigned int events = *unread;
    ssize_t got;
    *unread = 0;
    do {
        if (most <= 0) {
            *unread = events;
            return 0;
        }
        if (make_room(stream) < 0) return TOO_LARGE;
        got = read_once(stream, fd);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) break;
        if (got <= 0) return (int)events; /* the end, or an error: Python reads it again and decides */
        if (stream->delay) delay_acks(stream, fd);
        most -= got;
        int what = judged(stream);
        if (what) return what;
    } while (got < 0 || got == READ_SIZE || events & EPOLLRDHUP);
    return (int)(events & (EPOLLERR | EPOLLHUP | EPOLLOUT));
}

/* Room for one more in a list; -1 where there is no memory. */
static int grow(void **items, int count, int *room, size_t size) {
    if (count < *room) return 0;
    void *more = PyMem_RawRealloc(*items, (*room * 2 + MOST_EVENTS) * size);
    if (more == NULL) return -1;
    *items = more;
    *room = *room * 2 + MOST_EVENTS;
    return 0;
}

/* Python is to hear of an answer, when its turn comes. */
static int will_hear(Poller *self, int fd, int what) {
    if (grow((void **)&self->heard, self->waiting, &self->room, sizeof *self->heard) < 0) return -1;
    self->heard[self->waiting].fd = fd;
    self->heard[self->waiting++].what = what;
    self->streams[fd].state = TO_TELL;
    return 0;
}

/* A stream has something to read, when its turn comes. */
static int enqueue(Poller *self, int fd, unsigned int events) {
    Stream *stream = &self->streams[fd];
    if (!stream->unread) {
        if (grow((void **)&self->queue, self->queued, &self->queue_room, sizeof *self->queue) < 0) return -1;
        self->queue[self->queued++] = fd;
    }
    stream->unread |= events;
    return 0;
}

/* A round of reading: every stream in the queue has a turn, as long as the poll may read on; what is left of it goes to
 * the end of the queue. -1 where there is no memory. */
static int read_queue(Poller *self) {
    Py_ssize_t most = self->most_at_once;
    int turns = self->queued, turn = 0, result = 0;
    for (; turn < turns && most > 0 && result == 0; turn++) {
        int fd = self->queue[turn];
        Stream *stream = &self->streams[fd];
        unsigned int unread = stream->unread;
        size_t before = stream->used + stream->count * sizeof(Mark);
        stream->unread = 0;
        int what = read_stream(stream, fd, most < AT_ONE_STREAM ? most : AT_ONE_STREAM, &unread);
        Py_ssize_t more = (Py_ssize_t)(stream->used + stream->count * sizeof(Mark)) - (Py_ssize_t)before;
        self->held += more;
        most -= more;
        if (what) result = will_hear(self, fd, what);
        else if (unread) result = enqueue(self, fd, unread);
    }
    self->queued -= turn;
    if (self->queued) memmove(self->queue, self->queue + turn, self->queued * sizeof *self->queue);
    return result;
}

/* Have the attached streams read; the events of the others remain, in front, and their number is returned: -1 where there
 * is no memory. Without the interpreter's lock. */
static int read_ready(Poller *self, struct epoll_event *events, int count) {
    int others = 0;
    for (int i = 0; i < count; i++) {
        Stream *stream = events[i].events & EPOLLIN ? stream_of(self, events[i].data.fd) : NULL;
        if (stream == NULL) events[others++] = events[i];
        else if (stream->state == READING && enqueue(self, events[i].data.fd, events[i].events) < 0) return -1;
    }
    return self->queued && read_queue(self) < 0 ? -1 : others;
}

/* Whose turn it is. */
static int hear(Poller *self, PyObject *ready) {
    int turns = self->waiting < AT_ONCE ? self->waiting : AT_ONCE;
    for (int i = 0; i < turns; i++) {
        if (append_new(ready, Py_BuildValue("ii", self->heard[i].fd, self->heard[i].what)) < 0) return -1;
        self->streams[self->heard[i].fd].state = TOLD;
    }
    self->waiting -= turns;
    if (self->waiting) memmove(self->heard, self->heard + turns, self->waiting * sizeof *self->heard);
    if (self->waiting || self->queued) self->taken = MOST_EVENTS;
    return 0;
}

static PyObject *Poller_poll(Poller *self, PyObject *args) {
    double timeout;
    int most;
    if (!PyArg_ParseTuple(args, "di", &timeout, &most) || !is_free(self)) return NULL;
    if (most > MOST_EVENTS) most = MOST_EVENTS;
    int at_once = self->waiting || self->queued;
    int milliseconds = at_once ? 0 : timeout < 0 ? -1 : (int)fmin(ceil(timeout * 1e3), 1e9);
    struct epoll_event events[MOST_EVENTS];
    int count, others, error;
    self->polling = 1;
    Py_BEGIN_ALLOW_THREADS;
    count = epoll_wait(self->epoll, events, most, milliseconds);
    error = errno;
    others = count < 0 ? 0 : read_ready(self, events, count);
    Py_END_ALLOW_THREADS;
    self->polling = 0;
    if (others < 0) return PyErr_NoMemory();
    if (count < 0) {
        errno = error;
        if (errno != EINTR) return failed();
        if (PyErr_CheckSignals() < 0) return NULL;
        count = 0;
    }
    self->taken = count;
    PyObject *ready = PyList_New(0);
    if (ready == NULL) return NULL;
    for (int i = 0; i < others; i++) {
        if (append_new(ready, Py_BuildValue("ii", events[i].data.fd, (int)events[i].events)) < 0) {
            Py_DECREF(ready);
            return NULL;
        }
    }
    if (hear(self, ready) < 0) {
        Py_DECREF(ready);
        return NULL;
    }
    return ready;
}

static PyObject *Poller_close(Poller *self, PyObject *nothing) {
    if (!is_free(self)) return NULL;
    if (self->epoll >= 0) close(self->epoll);
    self->epoll = -1;
    for (int fd = 0; fd < self->size; fd++) forget(self, fd);
    Py_RETURN_NONE;
}

static PyObject *Poller_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    Py_ssize_t most_at_once = PY_SSIZE_T_MAX;
    if (!PyArg_ParseTuple(args, "|n", &most_at_once)) return NULL;
    if (most_at_once < READ_SIZE) most_at_once = READ_SIZE; /* else nothing would ever be read */
    Poller *self = (Poller *)type->tp_alloc(type, 0); /* all zero */
    if (self == NULL) return NULL;
    self->most_at_once = most_at_once;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->epoll < 0) {
        PyObject *nothing = failed();
        Py_DECREF(self);
        return nothing;
    }
    return (PyObject *)self;
}

static void Poller_dealloc(Poller *self) {
    Py_XDECREF(Poller_close(self, NULL));
    PyMem_RawFree(self->streams);
    PyMem_RawFree(self->heard);
    PyMem_RawFree(self->queue);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Numbers that grow in number. */
typedef struct {
    int64_t *items;
    Py_ssize_t count, room;
} Numbers;

static int add(Numbers *numbers, int64_t item) {
    if (numbers->count == numbers->room) {
        Py_ssize_t room = numbers->room * 2 + 512;
        int64_t *items = PyMem_Realloc(numbers->items, room * sizeof(int64_t));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        numbers->items = items;
        numbers->room = room;
    }
    numbers->items[numbers->count++] = item;
    return 0;
}

/* (first, second) as bytes of packed int64; frees both. */
static PyObject *packed_pair(Numbers *first, Numbers *second) {
    PyObject *pair = Py_BuildValue("y#y#", first->items ? (char *)first->items : "", first->count * sizeof(int64_t),
                                   second->items ? (char *)second->items : "", second->count * sizeof(int64_t));
    PyMem_Free(first->items);
    PyMem_Free(second->items);
    return pair;
}

static PyObject *freed(Numbers *first, Numbers *second) {
    PyMem_Free(first->items);
    PyMem_Free(second->items);
    return NULL;
}

/* split_events(raw, start) -> (spans, ends) of a body whose every chunk is one event `data: ...\n\n`, None for another:
 * where the data of each event begins and ends, and where the event does. */
/* The size of the chunk whose size line begins at `at`; moves behind the line. -1 where there is none. */
static Py_ssize_t chunk_size(const char *raw, Py_ssize_t length, Py_ssize_t *at) {
    Py_ssize_t size = 0, begin = *at;
    while (*at < length && *at - begin < 16 && hex_digit(raw[*at]) >= 0) size = size * 16 + hex_digit(raw[(*at)++]);
    if (*at == begin || *at - begin == 16 || length - *at < 2 || raw[*at] != '\r' || raw[*at + 1] != '\n') return -1;
    *at += 2;
    return size;
}

static PyObject *split_events(PyObject *module, PyObject *args) {
    const char *raw;
    Py_ssize_t length, at;
    if (!PyArg_ParseTuple(args, "y#n", &raw, &length, &at)) return NULL;
    Numbers spans = {0}, ends = {0};
    for (;;) {
        Py_ssize_t size = chunk_size(raw, length, &at);
        if (size == 0 && length - at == 2 && memcmp(raw + at, "\r\n", 2) == 0) return packed_pair(&spans, &ends);
        if (size < 8 || size > length - at - 2) break;
        const char *line = raw + at + 6;
        Py_ssize_t room = size - 8;
        if (memcmp(raw + at, "data: ", 6) != 0 || memcmp(line + room, "\n\n\r\n", 4) != 0) break;
        if (memchr(line, '\n', room) != NULL || memchr(line, '\r', room) != NULL) break;
        if (add(&spans, at + 6) < 0 || add(&spans, at + 6 + room) < 0 || add(&ends, at + size) < 0)
            return freed(&spans, &ends);
        at += size + 2;
    }
    freed(&spans, &ends);
    Py_RETURN_NONE;
}

/* read_run(raw, spans, start, prefix, suffix, running, between, after, completion_first) -> (bears, totals): events from
 * `start` on as long as they fit the shape; wire/skeleton.py says what that means. */
typedef struct {
    const char *text;
    Py_ssize_t size;
} Bytes;

static int begins(Bytes whole, Bytes part) {
    return whole.size >= part.size && memcmp(whole.text, part.text, part.size) == 0;
}

static Bytes from(Bytes whole, Py_ssize_t start) {
    return (Bytes){whole.text + start, whole.size - start};
}

/* The digits that a text begins with, as a number, and what follows them; -1 where there are none. */
static int64_t number(Bytes *text) {
    int64_t value = 0;
    Py_ssize_t i = 0;
    for (; i < text->size && i < MOST_DIGITS && text->text[i] >= '0' && text->text[i] <= '9'; i++)
        value = value * 10 + (text->text[i] - '0');
    *text = from(*text, i);
    return i > 0 ? value : -1;
}

/* Whether the event's text is empty (0) or not (1), and its running total; -1 where it does not fit the shape. */
static int fits(Bytes event, Bytes prefix, Bytes suffix, int running, Bytes between, Bytes after, int completion_first,
                int64_t *total) {
    if (!begins(event, prefix)) return -1;
    Bytes rest = from(event, prefix.size);
    const char *quote = memchr(rest.text, '"', rest.size);
    if (quote == NULL) return -1;
    Py_ssize_t text = quote - rest.text;
    rest = from(rest, text);
    if (!running) return rest.size == suffix.size && begins(rest, suffix) ? text > 0 : -1;
    if (!begins(rest, suffix)) return -1;
    rest = from(rest, suffix.size);
    int64_t one = number(&rest);
    if (one < 0 || !begins(rest, between)) return -1;
    rest = from(rest, between.size);
    int64_t two = number(&rest);
    if (two < 0 || rest.size != after.size || !begins(rest, after)) return -1;
    *total = completion_first ? one : two;
    return text > 0;
}

/* read_run(raw, spans, start, before, *shape) -> ((bears, gains), total): of each event from `start` on that fits the shape
 * whether it bears text and by how much its running total is more than the one before, packed; and the last total. */
static PyObject *read_run(PyObject *module, PyObject *args) {
    Bytes raw, spans, prefix, suffix, between, after;
    Py_ssize_t start;
    long long before;
    int running, completion_first;
    if (!PyArg_ParseTuple(args, "y#y#nLy#y#py#y#p", &raw.text, &raw.size, &spans.text, &spans.size, &start, &before,
                          &prefix.text, &prefix.size, &suffix.text, &suffix.size, &running, &between.text,
                          &between.size, &after.text, &after.size, &completion_first))
        return NULL;
    Numbers bears = {0}, gains = {0};
    for (Py_ssize_t i = start; i < spans.size / 16; i++) {
        int64_t span[2], total = 0;
        memcpy(span, spans.text + 16 * i, sizeof span);
        if (span[0] < 0 || span[1] < span[0] || span[1] > raw.size) {
            PyErr_SetString(PyExc_ValueError, "an event lies outside of the answer");
            return freed(&bears, &gains);
        }
        Bytes event = {raw.text + span[0], span[1] - span[0]};
        int bearing = fits(event, prefix, suffix, running, between, after, completion_first, &total);
        if (bearing < 0) break;
        if (add(&bears, bearing) < 0) return freed(&bears, &gains);
        if (!running) continue;
        if (add(&gains, total > before ? total - before : 0) < 0) return freed(&bears, &gains);
        before = total;
    }
    return Py_BuildValue("NL", packed_pair(&bears, &gains), before);
}

/* place_tokens(reads, stamps, marks, offset, ends, tokens, sent_at, framing, visible) -> (read_at, read_tokens, read_slack,
 * visible_at): of the reads that bear tokens, packed, and the instant of the event with that number (None for -1).
 * load/answer.py says what they mean. All reads have the kernel's stamp. */
typedef struct {
    int64_t at, until;                 /* its instant, and how many bytes there were with it */
    int64_t tokens, bearing, last_end; /* bearing: events with tokens; last_end: where the last of them ends */
} Read;

static int64_t slack_of(const Read *reads, Py_ssize_t read, int64_t sent_at) {
    int64_t slack = reads[read].at - (read > 0 ? reads[read - 1].at : sent_at);
    return slack > 0 ? slack : 0;
}

/* The reads one by one, without their tokens; -1 where the lists are not what they should be. */
static int list_reads(Read *listed, PyObject *reads, PyObject *stamps, Bytes marks, int64_t offset) {
    int64_t until = 0;
    Py_ssize_t first = PyList_GET_SIZE(reads);
    for (Py_ssize_t i = 0; i < first; i++) {
        PyObject *read = PyList_GET_ITEM(reads, i), *stamp = PyList_GET_ITEM(stamps, i);
        int64_t at[2];
        if (!PyBytes_Check(read) || !PyBytes_Check(stamp) || PyBytes_GET_SIZE(stamp) != sizeof at) return -1;
        memcpy(at, PyBytes_AS_STRING(stamp), sizeof at);
        until += PyBytes_GET_SIZE(read);
        listed[i] = (Read){at[0] * 1000000000 + at[1] - offset, until, 0, 0, 0};
    }
    for (Py_ssize_t i = 0; i < marks.size / (Py_ssize_t)sizeof(Mark); i++) {
        Mark mark;
        memcpy(&mark, marks.text + i * sizeof mark, sizeof mark);
        listed[first + i] = (Read){mark.stamp - offset, until + mark.end, 0, 0, 0};
    }
    return 0;
}

/* Tokens of the events, each to the read that completed it; *visible becomes the read of that event. */
static int give_tokens(Read *reads, Py_ssize_t count, const int64_t *ends, PyObject *tokens, Py_ssize_t *visible) {
    Py_ssize_t read = 0, wanted = *visible;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tokens); i++) {
        int64_t amount = PyLong_AsLongLong(PyList_GET_ITEM(tokens, i));
        if (amount == -1 && PyErr_Occurred()) return -1;
        while (read < count && reads[read].until < ends[i]) read++;
        if (read == count) {
            PyErr_SetString(PyExc_ValueError, "an event ends behind the last read");
            return -1;
        }
        if (i == wanted) *visible = read;
        if (amount <= 0) continue;
        reads[read].tokens += amount;
        reads[read].bearing += 1;
        reads[read].last_end = ends[i];
    }
    return 0;
}

static PyObject *placed_tokens(const Read *reads, Py_ssize_t count, int64_t sent_at, Py_ssize_t framing, Py_ssize_t visible) {
    int64_t *packed = PyMem_Malloc((3 * count + 1) * sizeof(int64_t));
    if (packed == NULL) return PyErr_NoMemory();
    Py_ssize_t bearing = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (reads[i].tokens == 0) continue;
        int exact = reads[i].bearing == 1 && reads[i].until - reads[i].last_end <= framing;
        packed[bearing] = reads[i].at;
        packed[count + bearing] = reads[i].tokens;
        packed[2 * count + bearing] = exact ? 0 : slack_of(reads, i, sent_at);
        bearing++;
    }
    Py_ssize_t size = bearing * (Py_ssize_t)sizeof(int64_t);
    PyObject *seen = visible < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(reads[visible].at);
    PyObject *placed = Py_BuildValue("y#y#y#N", packed, size, packed + count, size, packed + 2 * count, size, seen);
    PyMem_Free(packed);
    return placed;
}

static PyObject *place_tokens(PyObject *module, PyObject *args) {
    PyObject *reads, *stamps, *tokens, *placed = NULL;
    Bytes marks;
    Py_buffer ends;
    long long offset, sent_at;
    Py_ssize_t framing, visible;
    if (!PyArg_ParseTuple(args, "O!O!y#Ly*O!Lnn", &PyList_Type, &reads, &PyList_Type, &stamps, &marks.text, &marks.size,
                          &offset, &ends, &PyList_Type, &tokens, &sent_at, &framing, &visible))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(reads) + marks.size / (Py_ssize_t)sizeof(Mark);
    Read *listed = PyMem_Calloc(count + 1, sizeof(Read));
    int fit = PyList_GET_SIZE(reads) == PyList_GET_SIZE(stamps) && ends.len == PyList_GET_SIZE(tokens) * 8 &&
              visible < PyList_GET_SIZE(tokens);
    if (listed == NULL)
        PyErr_NoMemory();
    else if (!fit || list_reads(listed, reads, stamps, marks, offset) < 0)
        PyErr_SetString(PyExc_ValueError, "reads and stamps, or ends and tokens, do not fit");
    else if (give_tokens(listed, count, ends.buf, tokens, &visible) == 0)
        placed = placed_tokens(listed, count, sent_at, framing, visible);
    PyMem_Free(listed);
    PyBuffer_Release(&ends);
    return placed;
}

/* send_each(fds, payloads) -> (stamps, sizes): one payload to each socket. `stamps` are the monotonic clock before each
 * send and after the last, packed; `sizes` how many bytes each socket took, packed: 0 where it is full or gone. Empty: all
 * of them. Keeps the interpreter's lock: sends do not wait. */
static int64_t monotonic(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static PyObject *send_each(PyObject *module, PyObject *args) {
    Py_buffer fds;
    PyObject *payloads, *sent = NULL;
    if (!PyArg_ParseTuple(args, "y*O!", &fds, &PyList_Type, &payloads)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(payloads);
    int64_t *stamps = PyMem_Malloc((2 * count + 1) * sizeof(int64_t)), *sizes = stamps + count + 1;
    int whole = 1, fit = fds.len == count * (Py_ssize_t)sizeof(int);
    for (Py_ssize_t i = 0; i < count; i++) fit &= PyBytes_Check(PyList_GET_ITEM(payloads, i));
    if (stamps == NULL)
        PyErr_NoMemory();
    else if (!fit)
        PyErr_SetString(PyExc_ValueError, "descriptors and payloads do not fit");
    else {
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *payload = PyList_GET_ITEM(payloads, i);
            stamps[i] = monotonic();
            sizes[i] = send(((int *)fds.buf)[i], PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload),
                            MSG_DONTWAIT | MSG_NOSIGNAL);
            whole &= sizes[i] == PyBytes_GET_SIZE(payload);
            if (sizes[i] < 0) sizes[i] = 0;
        }
        stamps[count] = monotonic();
        Py_ssize_t size = count * (Py_ssize_t)sizeof(int64_t);
        sent = Py_BuildValue("y#y#", stamps, size + 8, sizes, whole ? 0 : size);
    }
    PyMem_Free(stamps);
    PyBuffer_Release(&fds);
    return sent;
}

static PyMethodDef methods[] = {
    {"register", (PyCFunction)Poller_register, METH_VARARGS, "register(fd, events)"},
    {"modify", (PyCFunction)Poller_modify, METH_VARARGS, "modify(fd, events)"},
    {"unregister", (PyCFunction)Poller_unregister, METH_O, "unregister(fd): what was collected is lost"},
    {"attach", (PyCFunction)Poller_attach, METH_VARARGS, "attach(fd, left, delay, most): collect what arrives on it"},
    {"take", (PyCFunction)Poller_take, METH_VARARGS, "take(fd, before) -> (data, marks, own, apart): what was collected; ends it"},
    {"heard", (PyCFunction)Poller_heard, METH_O, "heard(fd) -> (reads, bytes) collected so far"},
    {"poll", (PyCFunction)Poller_poll, METH_VARARGS, "poll(timeout, most) -> [(fd, events), ...]"},
    {"close", (PyCFunction)Poller_close, METH_NOARGS, "close()"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"taken", T_INT, offsetof(Poller, taken), READONLY, "descriptors that were ready at the last poll"},
    {"held", T_PYSSIZET, offsetof(Poller, held), READONLY, "bytes of memory that the collected answers fill"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject PollerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "inferometer.wire._reader.Poller",
    .tp_basicsize = sizeof(Poller),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "An epoll that reads attached descriptors by itself.",
    .tp_new = Poller_new,
    .tp_dealloc = (destructor)Poller_dealloc,
    .tp_methods = methods,
    .tp_members = members,
};

static PyMethodDef functions[] = {
    {"split_events", split_events, METH_VARARGS, "split_events(raw, start) -> (spans, ends) or None"},
    {"read_run", read_run, METH_VARARGS, "read_run(raw, spans, start, before, *shape) -> ((bears, gains), total)"},
    {"send_each", send_each, METH_VARARGS, "send_each(fds, payloads) -> (stamps, sizes)"},
    {"place_tokens", place_tokens, METH_VARARGS, "place_tokens(reads, stamps, ...) -> what each read brought"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_reader", "The compiled part of the wire.", -1, functions};

PyMODINIT_FUNC PyInit__reader(void) {
    if (PyType_Ready(&PollerType) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    if (PyModule_AddIntConstant(made, "VERSION", VERSION) < 0 || PyModule_AddIntConstant(made, "LOOK", LOOK) < 0 ||
        PyModule_AddIntConstant(made, "COMPLETE", COMPLETE) < 0 || PyModule_AddIntConstant(made, "SURPLUS", SURPLUS) < 0 ||
        PyModule_AddIntConstant(made, "TOO_LARGE", TOO_LARGE) < 0 ||
        PyModule_AddObjectRef(made, "Poller", (PyObject *)&PollerType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
