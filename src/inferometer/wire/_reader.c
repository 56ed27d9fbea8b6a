/* The compiled part of the wire. Optional: everything here also exists in Python, with the same results and more CPU
 * time (wire/reactor.py, wire/sse.py, wire/skeleton.py, workload/writer.py; property tests compare the two).
 *
 * An epoll that also reads: `Poller` is `select.epoll` plus `attach`, after which the answer that arrives on a
 * descriptor is collected here, each read with its kernel timestamp. It is reported to Python when it is a complete
 * event stream (`take` then returns everything at once), or when only Python can determine what it is, or whether it
 * ends. Only a few answers are reported at a time: processing each in Python takes long, and the other streams must
 * be read meanwhile.
 *
 * A server may send faster than we read, and without end. So a poll reads a bounded number of bytes, from one stream
 * and from all, and streams with unread data wait in a queue (edge-triggered events are reported once); an answer
 * has a size limit; and the interpreter's lock is released while sockets are read. Only the chunk sizes determine
 * where an answer ends.
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
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define VERSION 10 /* as in wire/compiled.py */
#define READ_SIZE (16 * 1024)
#define MOST_EVENTS 1024
#define UNTOLD (EPOLLRDHUP | EPOLLPRI) /* possible after a read that leaves room: end of the peer, or urgent data */
#define ON_EDGES (EPOLLIN | UNTOLD | EPOLLET) /* edge-triggered: the kernel checks half as often */
#define COMPLETE (1 << 16) /* the last chunk of the stream has arrived */
#define LOOK (1 << 17)     /* not an event stream in regular chunks, or a broken one: take it over and examine it */
#define SURPLUS (1 << 18)  /* with COMPLETE: bytes arrived after the last chunk and were discarded */
#define TOO_LARGE (1 << 19) /* it exceeds its size limit */
#define AT_ONCE 16 /* answers reported to Python between two rounds of reading */
#define AT_ONE_STREAM (256 * 1024) /* bytes that one poll reads from a stream, so that the others are read too */
#define MOST_HEAD (64 * 1024) /* as in wire/http1.py */
#define MOST_KEPT_HEAD 512
#define MOST_SIZE_DIGITS 15   /* likewise */
#define MOST_READS (1 << 18)  /* of one answer, as in wire/connection.py */
#define KEPT_ROOM (1024 * 1024) /* bytes of a buffer that is kept for the next answer on the connection */
#define QUIET_PARTS 32     /* as in wire/reactor.py */
#define MOST_QUIET 1000000 /* milliseconds that are counted */
#define DELAY_ONCE 1 /* as in wire/sockets.py */
#define DELAY_ALWAYS 2
#define DELAY_AT 2     /* index of the read: after the headers, which often arrive long before the first token */
#define DELAY_EVERY 64 /* reads: the kernel ends the delay after each pause of 40 ms */
#define SEEN_AT 9      /* index of the read: a server that waits for acknowledgements has waited by then */
#define MOST_DIGITS 15 /* of a count: an event with more is parsed in Python */
#define MOST_ORIGINS 64 /* servers for which it is recorded whether they wait for acknowledgements */
#define MOST_SHAPES 16 /* event shapes per poller */
#define MOST_PARTS 4   /* of a shape before its text, or after it */
#define MOST_HELD 232  /* bytes in the holes of an answer: an id and two numbers */
#define MOST_NAME 200  /* characters of an id; as in wire/skeleton.py */

#ifndef SO_TIMESTAMPNS
#define SO_TIMESTAMPNS 35
#endif
#define SCM_STAMP SO_TIMESTAMPNS

#define UNPROVEN 0 /* as in wire/sockets.py */
#define LEFT (-1)

typedef struct {
    int64_t end;   /* bytes of the stream up to and including this read */
    int64_t stamp; /* nanoseconds of the real-time clock */
    int64_t own;   /* 1 if the kernel gave no timestamp and this is our own, taken after the read */
    int64_t since; /* its bytes arrived after this instant of the monotonic clock; UNPROVEN, or LEFT by the previous read */
} Mark;

/* The position of an answer within its chunks: `left` is the chunk size read so far, then the number of missing
 * bytes. */
typedef struct {
    enum { SIZE, SIZE_END, DATA, DATA_END, DATA_ENDED, LAST, LAST_ENDED } phase;
    int digits;
    int64_t left;
} Framing;

typedef struct {
    const char *text;
    Py_ssize_t size;
} Bytes;

/* The part of an event before its text, or after it: fixed parts, and between them holes, an id ('s') or a number
 * ('n'), whose content differs between answers but is the same in all events of one. */
typedef struct {
    int count;
    Bytes parts[MOST_PARTS];
    char holes[MOST_PARTS];
} Pattern;

/* The contents of the holes of one answer, one after the other. */
typedef struct {
    unsigned char prefix[MOST_PARTS], suffix[MOST_PARTS]; /* their sizes */
    char text[MOST_HELD];
} Holes;

/* The common shape of the events of many answers: see wire/skeleton.py. */
typedef struct {
    PyObject *kept; /* owns the bytes of the parts */
    Pattern prefix, suffix;
    int running, completion_first;
    Bytes between, after;
} Shape;

typedef struct {
    int64_t start, stop; /* its data */
    int64_t end;         /* where it is complete */
    int64_t total;       /* its running total */
    int bears;           /* whether it has text; -1: it does not match the shape, and Python parses it */
} Event;

typedef struct {
    int attached;
    int on_edges; /* edge-triggered; kept for the next answer if nothing can be unread */
    int emptied;  /* for a complete answer: nothing was unread after it, and no event was reported since */
    enum { READING, TO_TELL, TOLD } state; /* nothing is read between a read to be reported and `take` */
    int fresh; /* the answer's headers have not arrived, or not completely */
    unsigned int unread; /* unprocessed events: if any, it is in the poller's queue */
    int unproven;  /* polls prove nothing about the next read: Python may have left unread data */
    int64_t since; /* of the data waiting on it: see Mark */
    size_t most;         /* maximum bytes of the answer */
    size_t followed;     /* bytes whose framing was processed */
    size_t head;         /* bytes of its headers */
    size_t boundary;     /* start of the last processed size line; 0 if there was none */
    size_t chunk_at;     /* start of the data of the current chunk */
    int complete;        /* the last chunk was received */
    const Shape *shape;  /* expected shape of its events; NULL: Python determines it */
    Event *events;       /* one for each chunk so far */
    size_t event_count, event_space;
    int begun; /* an event with text has matched: `holes` has the contents of its holes */
    Framing framing;
    int delay; /* of acknowledgements: DELAY_ONCE, DELAY_ALWAYS or 0 */
    size_t renewed; /* after which read they are delayed again */
    int apart; /* 1 if the server was observed to send without waiting for one */
    int origin; /* number of its server */
    char *data; /* kept for the next answer, so that it is allocated once per connection */
    size_t used, room;
    Mark *marks;
    size_t count, space;
    Holes holes; /* here and not in the first event, which has left the processor's cache when the next one arrives */
} Stream;

typedef struct {
    PyObject_HEAD
    int epoll;
    Stream *streams; /* by descriptor */
    int size;
    int64_t called_at; /* call time of the last poll */
    int64_t since; /* call time of the last complete poll before it: ready data arrived after it, unless it was left unread */
    int whole; /* the last poll was neither full nor interrupted: unreported descriptors were empty when it was called */
    int taken; /* number of ready descriptors at the last poll, including those read here; MOST_EVENTS: more than that */
    struct {
        int fd, what;
    } *heard; /* answers to be reported to Python */
    int waiting, room;
    int *queue; /* descriptors of streams with unread data, in the order of their turns */
    int queued, queue_room;
    Py_ssize_t most_at_once; /* bytes that a poll may read */
    Py_ssize_t held;         /* bytes of memory used by all streams */
    Shape shapes[MOST_SHAPES];
    int shape_count;
    uint64_t apart;          /* a bit for each server below 64: whether one of its streams was observed to be `apart` */
    struct { /* the last headers examined: many answers within a second have the same */
        char text[MOST_KEPT_HEAD];
        size_t size;
        int stream, shaped;
    } head;
    int polling;             /* a thread is in `poll` without the interpreter's lock: nothing else may be changed */
} Poller;

static int64_t monotonic(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static PyObject *failed(void) { return PyErr_SetFromErrno(PyExc_OSError); }

static int control(Poller *self, int operation, int fd, unsigned int events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(self->epoll, operation, fd, &event);
}

/* Whether the streams may be modified: not by another thread during a poll. */
static int is_free(Poller *self) {
    if (self->polling) PyErr_SetString(PyExc_RuntimeError, "another thread is in poll()");
    return !self->polling;
}

static Stream *stream_of(Poller *self, int fd) {
    return fd >= 0 && fd < self->size && self->streams[fd].attached ? &self->streams[fd] : NULL;
}

/* Whether a stream of this server was observed to send without waiting for acknowledgements. */
static int is_apart(const Poller *self, int origin) {
    return origin >= 0 && origin < MOST_ORIGINS && self->apart >> origin & 1;
}

/* Bytes of memory used by a stream. */
static size_t filled(const Stream *stream) {
    return stream->used + stream->count * sizeof(Mark) + stream->event_count * sizeof(Event);
}

/* Releases the collected data; buffers of usual size are kept for the next answer. */
static void empty(Poller *self, Stream *stream) {
    self->held -= (Py_ssize_t)filled(stream);
    stream->used = stream->count = stream->followed = stream->boundary = stream->event_count = 0;
    stream->begun = 0;
    stream->complete = 0;
    if (stream->room > KEPT_ROOM || stream->space * sizeof(Mark) > KEPT_ROOM ||
        stream->event_space * sizeof(Event) > KEPT_ROOM) {
        PyMem_RawFree(stream->data);
        PyMem_RawFree(stream->marks);
        PyMem_RawFree(stream->events);
        stream->data = NULL;
        stream->marks = NULL;
        stream->events = NULL;
        stream->room = stream->space = stream->event_space = 0;
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
    PyMem_RawFree(self->streams[fd].events);
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
    if (!PyArg_ParseTuple(args, "iI", &fd, &events) || !is_free(self)) return NULL;
    if (control(self, EPOLL_CTL_MOD, fd, events) < 0) return failed();
    if (fd < self->size) self->streams[fd].on_edges = 0;
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

/* How to read an answer that starts on a descriptor. */
typedef struct {
    long long left; /* -1 to start at the headers; else these were already read, and it is the number of bytes
                       left of a chunk and its end, 0 if the next size line follows */
    int delay;      /* of acknowledgements, as in wire/sockets.py */
    Py_ssize_t most; /* its size limit */
    int shape;       /* result of `expect`, -1 for none */
    int origin;      /* number of its server: observations about acknowledgements apply to all of its streams */
} Start;

static int attach_stream(Poller *self, int fd, Start start) {
    if (fd < 0 || start.left < -1 || start.left == 1 || start.most < 0 || start.shape >= self->shape_count) {
        PyErr_SetString(PyExc_ValueError, "a descriptor and a size are not negative, and a chunk's end has two bytes");
        return -1;
    }
    if (fd >= self->size) {
        int size = fd + 256;
        Stream *streams = PyMem_RawRealloc(self->streams, size * sizeof(Stream));
        if (streams == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memset(streams + self->size, 0, (size - self->size) * sizeof(Stream));
        self->streams = streams;
        self->size = size;
    }
    Stream *stream = &self->streams[fd];
    if (!stream->on_edges && control(self, EPOLL_CTL_MOD, fd, ON_EDGES) < 0) {
        failed();
        return -1;
    }
    empty(self, stream);
    stream->attached = stream->on_edges = 1;
    stream->state = READING;
    stream->fresh = start.left < 0;
    stream->shape = start.shape < 0 || start.left >= 0 ? NULL : &self->shapes[start.shape];
    int64_t left = start.left > 2 ? start.left - 2 : 0;
    stream->framing = (Framing){start.left > 2 ? DATA : start.left == 2 ? DATA_END : SIZE, 0, left};
    stream->most = (size_t)start.most;
    stream->unproven = start.left >= 0;
    stream->head = 0;
    stream->since = UNPROVEN;
    stream->delay = start.delay;
    stream->renewed = DELAY_AT;
    stream->origin = start.origin;
    stream->apart = 0;
    return 0;
}

/* attach(fd, left, delay, most, shape=-1, origin=-1): collect the answer that starts; see Start. */
static PyObject *Poller_attach(Poller *self, PyObject *args) {
    int fd;
    Start start = {.shape = -1, .origin = -1};
    if (!PyArg_ParseTuple(args, "iLin|ii", &fd, &start.left, &start.delay, &start.most, &start.shape, &start.origin) ||
        !is_free(self))
        return NULL;
    if (attach_stream(self, fd, start) < 0) return NULL;
    Py_RETURN_NONE;
}

/* begin(fd, request, delay, most, shape, origin) -> (instant, sent): send a request on an idle connection, if
 * nothing arrived on it meanwhile, and collect its answer from the headers on. `instant` is the monotonic clock just
 * before the send, `sent` the number of bytes that the socket took, or its error as a negative number: if not all
 * were taken, nothing is attached. None if bytes had arrived on the connection: then nothing was done. Keeps the
 * interpreter's lock, since no call blocks. */
static PyObject *Poller_begin(Poller *self, PyObject *args) {
    int fd;
    char any;
    Bytes request;
    Start start = {.left = -1};
    if (!PyArg_ParseTuple(args, "iy#inii", &fd, &request.text, &request.size, &start.delay, &start.most, &start.shape,
                          &start.origin) ||
        !is_free(self))
        return NULL;
    if (recv(fd, &any, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) Py_RETURN_NONE;
    int64_t sent_at = monotonic();
    ssize_t sent = send(fd, request.text, (size_t)request.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) sent = errno == EAGAIN ? 0 : -errno;
    if (sent == request.size && attach_stream(self, fd, start) < 0) return NULL;
    return Py_BuildValue("Ln", (long long)sent_at, (Py_ssize_t)sent);
}

/* heard(fd) -> number of reads since `attach`, and number of bytes. */
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

static int read_pattern(Pattern *pattern, PyObject *parts, const char *holes) {
    pattern->count = (int)PyTuple_GET_SIZE(parts);
    if (pattern->count < 1 || pattern->count > MOST_PARTS || (int)strlen(holes) != pattern->count - 1) return -1;
    memcpy(pattern->holes, holes, strlen(holes));
    for (int i = 0; i < pattern->count; i++) {
        PyObject *part = PyTuple_GET_ITEM(parts, i);
        if (!PyBytes_Check(part)) return -1;
        pattern->parts[i] = (Bytes){PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)};
    }
    return 0;
}

/* expect(prefix, holes, suffix, holes, running, between, after, completion_first) -> its number, for `attach`; -1 if
 * there are too many. */
static PyObject *Poller_expect(Poller *self, PyObject *args) {
    PyObject *prefix, *suffix;
    const char *prefix_holes, *suffix_holes;
    Shape shape = {0};
    if (!PyArg_ParseTuple(args, "O!sO!spy#y#p", &PyTuple_Type, &prefix, &prefix_holes, &PyTuple_Type, &suffix,
                          &suffix_holes, &shape.running, &shape.between.text, &shape.between.size, &shape.after.text,
                          &shape.after.size, &shape.completion_first) ||
        !is_free(self))
        return NULL;
    if (self->shape_count == MOST_SHAPES) return PyLong_FromLong(-1);
    if (read_pattern(&shape.prefix, prefix, prefix_holes) < 0 || read_pattern(&shape.suffix, suffix, suffix_holes) < 0) {
        PyErr_SetString(PyExc_ValueError, "a pattern has one to four parts of bytes and a hole between two of them");
        return NULL;
    }
    shape.kept = Py_NewRef(args);
    self->shapes[self->shape_count] = shape;
    return PyLong_FromLong(self->shape_count++);
}

/* The events that Python parses, as (number, start, stop) in the bytes passed to it; and the runs of recognised
 * events between them, as (first, one after the last, first total, last total). */
static int list_events(const Stream *stream, Py_ssize_t at, char *kept, PyObject *odd, PyObject *runs) {
    size_t begun = 0;
    for (size_t i = 0; i < stream->event_count; i++) {
        const Event *event = &stream->events[i];
        if (event->bears < 0) {
            Py_ssize_t size = (Py_ssize_t)(event->stop - event->start);
            memcpy(kept + at, stream->data + event->start, size);
            if (append_new(odd, Py_BuildValue("nnn", (Py_ssize_t)i, at, at + size)) < 0) return -1;
            at += size;
            begun = i + 1;
        } else if (i + 1 == stream->event_count || event[1].bears < 0) {
            long long first = stream->events[begun].total, last = event->total;
            if (append_new(runs, Py_BuildValue("nnLL", (Py_ssize_t)begun, (Py_ssize_t)i + 1, first, last)) < 0) return -1;
        }
    }
    return 0;
}

/* (bears, gains, ends) of the events, packed; gains are 0 if Python has to compute them: for events that it parses,
 * and for the events right after them. */
static PyObject *packed_events(const Stream *stream) {
    Py_ssize_t count = (Py_ssize_t)stream->event_count, size = count * (Py_ssize_t)sizeof(int64_t);
    PyObject *bears = PyByteArray_FromStringAndSize(NULL, size), *gains = PyByteArray_FromStringAndSize(NULL, size);
    PyObject *ends = PyBytes_FromStringAndSize(NULL, size);
    if (bears == NULL || gains == NULL || ends == NULL) {
        Py_XDECREF(bears);
        Py_XDECREF(gains);
        Py_XDECREF(ends);
        return NULL;
    }
    int64_t *bearing = (int64_t *)PyByteArray_AS_STRING(bears), *gained = (int64_t *)PyByteArray_AS_STRING(gains);
    int64_t *ended = (int64_t *)PyBytes_AS_STRING(ends);
    for (Py_ssize_t i = 0; i < count; i++) {
        const Event *event = &stream->events[i];
        int known = stream->shape->running && i > 0 && event->bears >= 0 && event[-1].bears >= 0;
        bearing[i] = event->bears > 0;
        gained[i] = known && event->total > event[-1].total ? event->total - event[-1].total : 0;
        ended[i] = event->end;
    }
    return Py_BuildValue("NNN", bears, gains, ends);
}

/* The headers and the events that Python parses, and in *recognised the data on the others: (odd, runs, bears,
 * gains, ends, size of the whole answer, whether the events state a running total). */
static PyObject *recognised_answer(const Stream *stream, PyObject **recognised) {
    Py_ssize_t head = (Py_ssize_t)stream->head, size = head;
    for (size_t i = 0; i < stream->event_count; i++)
        if (stream->events[i].bears < 0) size += (Py_ssize_t)(stream->events[i].stop - stream->events[i].start);
    PyObject *kept = PyBytes_FromStringAndSize(NULL, size), *odd = PyList_New(0), *runs = PyList_New(0), *packed = NULL;
    if (kept != NULL && odd != NULL && runs != NULL) {
        memcpy(PyBytes_AS_STRING(kept), stream->data, head);
        if (list_events(stream, head, PyBytes_AS_STRING(kept), odd, runs) == 0) packed = packed_events(stream);
    }
    if (packed != NULL)
        *recognised = Py_BuildValue("OOOni", odd, runs, packed, (Py_ssize_t)stream->used, stream->shape->running);
    else
        Py_CLEAR(kept);
    Py_XDECREF(odd);
    Py_XDECREF(runs);
    Py_XDECREF(packed);
    return kept;
}

static PyObject *whole_answer(const Stream *stream, const char *before, Py_ssize_t size) {
    PyObject *data = PyBytes_FromStringAndSize(NULL, size + (Py_ssize_t)stream->used);
    if (data == NULL) return NULL;
    memcpy(PyBytes_AS_STRING(data), before, size);
    if (stream->used) memcpy(PyBytes_AS_STRING(data) + size, stream->data, stream->used);
    return data;
}

/* Room for one more read; -1 if out of memory. */
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

/* The kernel's timestamp of a read, or our own. */
static void mark_read(Stream *stream, struct msghdr *message) {
    struct timespec at;
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    int own = head == NULL || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_STAMP;
    if (own)
        clock_gettime(CLOCK_REALTIME, &at);
    else
        memcpy(&at, CMSG_DATA(head), sizeof at);
    int64_t stamp = (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
    stream->marks[stream->count++] = (Mark){(int64_t)stream->used, stamp, own, stream->since};
}

/* `recvmsg` without the C library's wrapper for thread cancellation: 2% of a load. */
static ssize_t receive(int fd, struct msghdr *message) {
#ifdef SYS_recvmsg
    return syscall(SYS_recvmsg, fd, message, MSG_DONTWAIT);
#else
    return recvmsg(fd, message, MSG_DONTWAIT);
#endif
}

/* Have memory loaded that is written after the system call that follows: with many streams it has left the processor's
 * cache since the previous read of this one. */
static void prefetch(const void *memory, size_t size) {
    __builtin_prefetch(memory, 1);
    __builtin_prefetch((const char *)memory + size - 1, 1);
}

/* One read: number of bytes, 0 at the end, -1 with errno for an error. */
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
    prefetch(stream->marks + stream->count, sizeof(Mark));
    if (stream->event_count) prefetch(stream->events + stream->event_count, sizeof(Event));
    ssize_t got = receive(fd, &message);
    if (got > 0) {
        stream->used += (size_t)got;
        mark_read(stream, &message);
        stream->since = got == READ_SIZE ? LEFT : UNPROVEN;
    }
    return got;
}

/* Have the kernel acknowledge every second read instead of each, if requested: an acknowledgement costs as much as a
 * read. A server that waits for them (Nagle's algorithm) then waits 40 ms, after which the kernel is back to one for
 * each read: if it is not, the server has sent without waiting. An observation on one stream applies to all of its
 * server, including those in progress. */
static void delay_acks(Poller *self, Stream *stream, int fd) {
    int at_once = 0;
    socklen_t size = sizeof at_once;
    int known = stream->delay == DELAY_ALWAYS || is_apart(self, stream->origin);
    if (known ? stream->count >= stream->renewed : stream->delay == DELAY_ONCE && stream->count == DELAY_AT) {
        setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, size);
        stream->renewed = stream->count + DELAY_EVERY;
    }
    if (stream->delay && stream->count == SEEN_AT && getsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, &size) == 0) {
        stream->apart = !at_once;
        if (stream->apart && stream->origin >= 0 && stream->origin < MOST_ORIGINS)
            self->apart |= (uint64_t)1 << stream->origin;
    }
}

/* Number of occurrences of a text in another one, ignoring case. */
static int has(const char *text, size_t size, const char *wanted) {
    size_t length = strlen(wanted);
    int count = 0;
    for (size_t i = 0; i + length <= size; i++)
        count += (text[i] | 0x20) == (wanted[0] | 0x20) && strncasecmp(text + i, wanted, length) == 0;
    return count;
}

/* Whether the complete headers are those of a chunked event stream; Python reads anything else. */
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

/* One byte of the framing: the phase after it, -1 if it is irregular. */
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

static int begins(Bytes whole, Bytes part) {
    return whole.size >= part.size && memcmp(whole.text, part.text, part.size) == 0;
}

static Bytes from(Bytes whole, Py_ssize_t start) {
    return (Bytes){whole.text + start, whole.size - start};
}

/* The digits at the start of a text as a number, and what follows them; -1 if there are none. */
static int64_t number(Bytes *text) {
    int64_t value = 0;
    Py_ssize_t i = 0;
    for (; i < text->size && i < MOST_DIGITS && text->text[i] >= '0' && text->text[i] <= '9'; i++)
        value = value * 10 + (text->text[i] - '0');
    *text = from(*text, i);
    return i > 0 ? value : -1;
}

/* Number of bytes of a non-ASCII character; 0 if it is not valid UTF-8. */
static Py_ssize_t character(const unsigned char *at, Py_ssize_t size) {
    Py_ssize_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || size < length) return 0;
    for (Py_ssize_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if (at[0] == 0xe0 && at[1] < 0xa0) return 0;
    if (at[0] == 0xed && at[1] > 0x9f) return 0; /* surrogates */
    if (at[0] == 0xf0 && at[1] < 0x90) return 0;
    if (at[0] == 0xf4 && at[1] > 0x8f) return 0;
    return length;
}

/* The size of a JSON string, whose closing quote follows; -1 if only a parser can tell whether it is one. */
static Py_ssize_t text_size(Bytes rest) {
    const unsigned char *text = (const unsigned char *)rest.text;
    for (Py_ssize_t i = 0; i < rest.size;) {
        if (text[i] == '"') return i;
        if (text[i] < 0x20) return -1;
        if (text[i] == '\\') {
            if (i + 1 == rest.size || text[i + 1] == 0 || strchr("\"\\/bfnrt", text[i + 1]) == NULL) return -1;
            i += 2;
        } else if (text[i] < 0x80)
            i++;
        else {
            Py_ssize_t length = character(text + i, rest.size - i);
            if (length == 0) return -1;
            i += length;
        }
    }
    return -1;
}

/* Number of bytes of a text that match a pattern with these contents of its holes, -1 if it does not start with it;
 * *held moves behind them. */
static Py_ssize_t repeated_by(const Pattern *pattern, const unsigned char *sizes, const char **held, Bytes text) {
    Py_ssize_t at = 0;
    for (int i = 0; i < pattern->count; i++) {
        if (!begins(from(text, at), pattern->parts[i])) return -1;
        at += pattern->parts[i].size;
        if (i + 1 == pattern->count) break;
        if (!begins(from(text, at), (Bytes){*held, sizes[i]})) return -1;
        at += sizes[i];
        *held += sizes[i];
    }
    return at;
}

/* Whether the event's text is empty (0) or not (1), and its running total; -1 if it does not match the shape. */
static int fits(Bytes event, const Shape *shape, const Holes *holes, int64_t *total) {
    const char *held = holes->text;
    Py_ssize_t prefix = repeated_by(&shape->prefix, holes->prefix, &held, event);
    if (prefix < 0) return -1;
    Bytes rest = from(event, prefix);
    Py_ssize_t text = text_size(rest);
    if (text < 0) return -1;
    rest = from(rest, text);
    Py_ssize_t suffix = repeated_by(&shape->suffix, holes->suffix, &held, rest);
    if (suffix < 0) return -1;
    rest = from(rest, suffix);
    if (!shape->running) return rest.size == 0 ? text > 0 : -1;
    int64_t one = number(&rest);
    if (one < 0 || !begins(rest, shape->between)) return -1;
    rest = from(rest, shape->between.size);
    int64_t two = number(&rest);
    if (two < 0 || rest.size != shape->after.size || !begins(rest, shape->after)) return -1;
    *total = shape->completion_first ? one : two;
    return text > 0;
}

static int is_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("._:-", c ? c : ' ') != NULL;
}

/* Number of bytes of a text that fill a hole: an id, or a number in JSON format; 0 for none. */
static Py_ssize_t filling(Bytes text, char hole) {
    Py_ssize_t i = 0;
    if (hole == 's')
        while (i < text.size && i <= MOST_NAME && is_name(text.text[i])) i++;
    else
        while (i < text.size && i <= MOST_DIGITS && text.text[i] >= '0' && text.text[i] <= '9') i++;
    if (hole == 's' ? i > MOST_NAME : i > MOST_DIGITS || (i > 1 && text.text[0] == '0')) return 0;
    return i;
}

/* Number of bytes of a text that match a pattern, -1 if it does not start with it; the contents of the holes are added
 * to the `held` bytes so far. */
static Py_ssize_t taken_by(const Pattern *pattern, Bytes text, unsigned char *sizes, char *contents, size_t *held) {
    Py_ssize_t at = 0;
    for (int i = 0; i < pattern->count; i++) {
        if (!begins(from(text, at), pattern->parts[i])) return -1;
        at += pattern->parts[i].size;
        if (i + 1 == pattern->count) break;
        Py_ssize_t size = filling(from(text, at), pattern->holes[i]);
        if (size == 0 || *held + (size_t)size > MOST_HELD) return -1;
        memcpy(contents + *held, text.text + at, (size_t)size);
        sizes[i] = (unsigned char)size;
        *held += (size_t)size;
        at += size;
    }
    return at;
}

/* An event of an answer in which no event with text has matched so far: whether it does. */
static int begin_shape(Stream *stream, const Shape *shape, Bytes event, int64_t *total) {
    Holes *holes = &stream->holes;
    size_t held = 0;
    Py_ssize_t prefix = taken_by(&shape->prefix, event, holes->prefix, holes->text, &held);
    if (prefix < 0) return -1;
    Py_ssize_t text = text_size(from(event, prefix));
    if (text < 1 || taken_by(&shape->suffix, from(event, prefix + text), holes->suffix, holes->text, &held) < 0) return -1;
    stream->begun = fits(event, shape, holes, total) == 1;
    return stream->begun ? 1 : -1;
}

/* A chunk has arrived: record its event. An answer whose chunks are not one event each has no shape. */
static void note_event(Stream *stream) {
    const Shape *shape = stream->shape;
    const char *data = stream->data + stream->chunk_at;
    Py_ssize_t size = (Py_ssize_t)(stream->followed - stream->chunk_at), room = size - 8;
    if (stream->event_count == stream->event_space) {
        size_t space = stream->event_space * 2 + 64;
        Event *events = PyMem_RawRealloc(stream->events, space * sizeof(Event));
        if (events != NULL) {
            stream->events = events;
            stream->event_space = space;
        }
    }
    if (room < 0 || memcmp(data, "data: ", 6) != 0 || memcmp(data + 6 + room, "\n\n", 2) != 0 ||
        memchr(data + 6, '\n', room) != NULL || memchr(data + 6, '\r', room) != NULL ||
        stream->event_count == stream->event_space) {
        stream->shape = NULL;
        return;
    }
    Bytes text = {data + 6, room};
    Event event = {.start = (int64_t)stream->chunk_at + 6, .end = (int64_t)stream->followed, .bears = -1};
    event.stop = event.start + room;
    if (stream->begun)
        event.bears = fits(text, shape, &stream->holes, &event.total);
    else
        begin_shape(stream, shape, text, &event.total); /* Python parses this one, to find what is the same in all of them */
    stream->events[stream->event_count++] = event;
}

/* Process the chunks received: COMPLETE after the last one, LOOK if they are irregular, else 0. */
static int follow(Stream *stream) {
    Framing *framing = &stream->framing;
    while (stream->followed < stream->used) {
        if (framing->phase == DATA) {
            size_t here = stream->used - stream->followed;
            if ((uint64_t)framing->left < here) here = (size_t)framing->left;
            stream->followed += here;
            framing->left -= (int64_t)here;
            if (framing->left == 0) {
                framing->phase = DATA_END;
                if (stream->shape != NULL) note_event(stream);
            }
            continue;
        }
        char c = stream->data[stream->followed++];
        if (framing->phase == LAST_ENDED) return c == '\n' ? COMPLETE : LOOK;
        int phase = step(framing, c);
        if (phase < 0) return LOOK;
        framing->phase = phase;
        if (phase == DATA) stream->chunk_at = stream->followed;
        if (phase == SIZE && framing->digits == 0) stream->boundary = stream->followed;
    }
    return 0;
}

/* Discard what arrived after the last chunk. */
static int without_surplus(Stream *stream) {
    if (stream->followed == stream->used) return COMPLETE;
    stream->used = stream->followed;
    stream->marks[stream->count - 1].end = (int64_t)stream->used;
    return COMPLETE | SURPLUS;
}

/* Whether these headers are those of a chunked event stream, and in *shaped whether Python takes it for one. */
static int looked_at(Poller *self, const char *head, size_t size, int *shaped) {
    if (size != self->head.size || memcmp(head, self->head.text, size) != 0) {
        int stream = is_event_stream(head, size);
        *shaped = has(head, size, "\r\ncontent-type: text/event-stream") == 1 && has(head, size, "content-type") == 1;
        if (size > MOST_KEPT_HEAD) return stream;
        memcpy(self->head.text, head, size);
        self->head.size = size;
        self->head.stream = stream;
        self->head.shaped = *shaped;
    }
    *shaped = self->head.shaped;
    return self->head.stream;
}

/* The state of an answer after a read: COMPLETE, LOOK, TOO_LARGE, or 0 if more is to come. */
static int judged(Poller *self, Stream *stream) {
    if (stream->fresh) {
        const char *end = memmem(stream->data, stream->used, "\r\n\r\n", 4);
        size_t known = stream->used < 5 ? stream->used : 5;
        if (end == NULL) return memcmp(stream->data, "HTTP/", known) != 0 || stream->used > MOST_HEAD ? LOOK : 0;
        size_t size = (size_t)(end - stream->data) + 4;
        int shaped = 0;
        if (size > MOST_HEAD || !looked_at(self, stream->data, size, &shaped)) return LOOK;
        if (!shaped) stream->shape = NULL; /* Python may not take it for an event stream */
        stream->fresh = 0;
        stream->head = stream->followed = stream->boundary = size;
    }
    int what = follow(stream);
    stream->complete = what == COMPLETE;
    if (stream->complete) what = without_surplus(stream);
    return what != LOOK && (stream->used > stream->most || stream->count > MOST_READS) ? TOO_LARGE : what;
}

/* Read what waits on an attached descriptor, up to `most` bytes. A read that leaves room has emptied the socket; at
 * the peer's end, which is not reported again, one more read finds it, and a read stops at an urgent byte, whatever
 * follows it. Returns the events to be reported to Python, 0 for none; *unread is set to the remaining events if
 * there may be more to read. */
static int read_stream(Poller *self, int fd, ssize_t most, unsigned int *unread) {
    Stream *stream = &self->streams[fd];
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
        if (got < 0 && errno == EAGAIN) {
            stream->since = UNPROVEN; /* nothing is left, however much the previous read took */
            break;
        }
        if (got <= 0) return (int)events; /* the end, or an error: Python reads it again and decides */
        if (stream->delay || is_apart(self, stream->origin)) delay_acks(self, stream, fd);
        most -= got;
        int what = judged(self, stream);
        stream->emptied = got < READ_SIZE && !(events & UNTOLD);
        if (what) return what;
    } while (got < 0 || got == READ_SIZE || events & UNTOLD);
    return (int)(events & (EPOLLERR | EPOLLHUP | EPOLLOUT));
}

/* Recognise the events of a complete answer that started before its shape was known. */
static void recognise_late(Poller *self, Stream *stream, const Shape *shape) {
    int shaped;
    if (!stream->head || !looked_at(self, stream->data, stream->head, &shaped) || !shaped) return;
    size_t before = filled(stream);
    stream->shape = shape;
    stream->framing = (Framing){.phase = SIZE};
    stream->followed = stream->boundary = stream->head;
    follow(stream);
    self->held += (Py_ssize_t)(filled(stream) - before);
}

/* take(fd, before, shape=-1) -> (data, marks, own, apart, recognised, boundary): `before` and everything read since
 * `attach`, and detach; marks are Mark as int64, their ends counted from the end of `before`; `own` is the number of them
 * without a kernel timestamp, `apart` whether the server was observed to send without waiting for acknowledgements.
 * `recognised` is None, or the data on events that match the shape: then `data` only has the headers and the other
 * events. `shape`: the one that is known now, if none was at `attach`. `boundary` is the start of the last chunk size
 * line reached, 0 for none: processing of the chunks can continue there instead of at the start. */
static PyObject *Poller_take(Poller *self, PyObject *args) {
    int fd, shape = -1;
    const char *before;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "iy#|i", &fd, &before, &size, &shape) || !is_free(self)) return NULL;
    Stream *stream = stream_of(self, fd);
    Stream nothing = {0};
    if (stream == NULL) stream = &nothing;
    else if (!stream->complete || !stream->emptied) { /* makes the kernel report unread data again */
        if (control(self, EPOLL_CTL_MOD, fd, EPOLLIN) < 0) return failed();
        stream->on_edges = 0;
    }
    if (stream->unread) leave_queue(self, fd);
    if (stream->state == TO_TELL) leave_heard(self, fd);
    stream->state = READING;
    stream->attached = 0;
    PyObject *recognised = Py_NewRef(Py_None), *data;
    if (stream->complete && !stream->shape && size == 0 && shape >= 0 && shape < self->shape_count)
        recognise_late(self, stream, &self->shapes[shape]);
    if (stream->complete && stream->shape && stream->begun && size == 0) {
        Py_DECREF(recognised);
        recognised = NULL;
        data = recognised_answer(stream, &recognised);
    } else
        data = whole_answer(stream, before, size);
    if (data == NULL || recognised == NULL) {
        Py_XDECREF(data);
        Py_XDECREF(recognised);
        return NULL;
    }
    Py_ssize_t own = 0;
    for (size_t i = 0; i < stream->count; i++) own += stream->marks[i].own;
    PyObject *taken = Py_BuildValue("Ny#niNn", data, stream->marks ? (char *)stream->marks : "",
                                    (Py_ssize_t)(stream->count * sizeof(Mark)), own, stream->apart, recognised,
                                    (Py_ssize_t)stream->boundary);
    empty(self, stream);
    return taken;
}

/* Room for one more in a list; -1 if out of memory. */
static int grow(void **items, int count, int *room, size_t size) {
    if (count < *room) return 0;
    void *more = PyMem_RawRealloc(*items, (*room * 2 + MOST_EVENTS) * size);
    if (more == NULL) return -1;
    *items = more;
    *room = *room * 2 + MOST_EVENTS;
    return 0;
}

/* Queue an answer to be reported to Python. */
static int will_hear(Poller *self, int fd, int what) {
    if (grow((void **)&self->heard, self->waiting, &self->room, sizeof *self->heard) < 0) return -1;
    self->heard[self->waiting].fd = fd;
    self->heard[self->waiting++].what = what;
    self->streams[fd].state = TO_TELL;
    return 0;
}

/* Queue a stream with unread data. A stream that was not in the queue had nothing unread, and was empty when the
 * last complete poll before this one was called, or was read after that. */
static int enqueue(Poller *self, int fd, unsigned int events) {
    Stream *stream = &self->streams[fd];
    if (!stream->unread) {
        if (grow((void **)&self->queue, self->queued, &self->queue_room, sizeof *self->queue) < 0) return -1;
        self->queue[self->queued++] = fd;
        if (stream->since != LEFT) stream->since = stream->unproven ? UNPROVEN : self->since;
        stream->unproven = 0;
    }
    stream->unread |= events;
    return 0;
}

/* A round of reading: every stream in the queue has a turn, as long as the poll may read on; streams with data left
 * go to the end of the queue. -1 if out of memory. */
static int read_queue(Poller *self) {
    Py_ssize_t most = self->most_at_once;
    int turns = self->queued, turn = 0, result = 0;
    for (; turn < turns && most > 0 && result == 0; turn++) {
        int fd = self->queue[turn];
        Stream *stream = &self->streams[fd];
        unsigned int unread = stream->unread;
        size_t before = filled(stream);
        stream->unread = 0;
        int what = read_stream(self, fd, most < AT_ONE_STREAM ? most : AT_ONE_STREAM, &unread);
        Py_ssize_t more = (Py_ssize_t)filled(stream) - (Py_ssize_t)before;
        self->held += more;
        most -= more;
        if (what) result = will_hear(self, fd, what);
        else if (unread) result = enqueue(self, fd, unread);
    }
    self->queued -= turn;
    if (self->queued) memmove(self->queue, self->queue + turn, self->queued * sizeof *self->queue);
    return result;
}

/* Have the attached streams read; the events of the others remain, in front, and their number is returned: -1 if out
 * of memory. Runs without the interpreter's lock. */
static int read_ready(Poller *self, struct epoll_event *events, int count) {
    int others = 0;
    for (int i = 0; i < count; i++) {
        Stream *stream = events[i].events & EPOLLIN ? stream_of(self, events[i].data.fd) : NULL;
        if (stream == NULL) events[others++] = events[i];
        else if (stream->state != READING) stream->emptied = 0; /* `take` makes the kernel report it again */
        else if (enqueue(self, events[i].data.fd, events[i].events) < 0) return -1;
    }
    return self->queued && read_queue(self) < 0 ? -1 : others;
}

/* Which stream has its turn. */
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

/* Wait for events, and poll again every `step` milliseconds (-1: only once), or after a fraction of the time without
 * events, so that data is known to have arrived after a recent poll. The instant that counts is when a poll was
 * called, because the time of the last check of a blocking poll is unknown. */
static int wait_for(Poller *self, struct epoll_event *events, int most, int milliseconds, int step) {
    int count, waited = 0;
    do {
        int look = waited / QUIET_PARTS > step ? waited / QUIET_PARTS : step;
        int wait = step >= 0 && (milliseconds < 0 || look < milliseconds) ? look : milliseconds;
        if (self->whole) self->since = self->called_at;
        self->called_at = monotonic();
        count = epoll_wait(self->epoll, events, most, wait);
        self->whole = count >= 0 && count < most;
        if (milliseconds > 0) milliseconds -= wait;
        if (waited < MOST_QUIET) waited += wait;
    } while (count == 0 && milliseconds != 0);
    return count;
}

/* poll(timeout, most, step=-1): the ready descriptors, after at most `timeout` seconds; -1 means without limit. */
static PyObject *Poller_poll(Poller *self, PyObject *args) {
    double timeout;
    int most, step = -1;
    if (!PyArg_ParseTuple(args, "di|i", &timeout, &most, &step) || !is_free(self)) return NULL;
    if (most > MOST_EVENTS) most = MOST_EVENTS;
    int at_once = self->waiting || self->queued;
    int milliseconds = at_once ? 0 : timeout < 0 ? -1 : (int)fmin(ceil(timeout * 1e3), 1e9);
    struct epoll_event events[MOST_EVENTS];
    int count, others, error;
    self->polling = 1;
    Py_BEGIN_ALLOW_THREADS;
    count = wait_for(self, events, most, milliseconds, step);
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
    for (int i = 0; i < self->shape_count; i++) Py_DECREF(self->shapes[i].kept);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* A growing array of numbers. */
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

/* split_events(raw, start) -> (spans, ends) of a body in which every chunk is one event `data: ...\n\n`, None for
 * any other: start and end of each event's data, and the end of the event. */
/* The size of the chunk whose size line starts at `at`; moves after the line. -1 if there is none. */
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

/* read_run(raw, spans, start, before, *shape) -> ((bears, gains), total): for each matching event from `start` on
 * whether it has text and how much its running total exceeds the previous one, packed; and the last total. */
static PyObject *read_run(PyObject *module, PyObject *args) {
    Bytes raw, spans;
    Py_ssize_t start;
    long long before;
    Shape shape = {.prefix = {.count = 1}, .suffix = {.count = 1}};
    Bytes *prefix = shape.prefix.parts, *suffix = shape.suffix.parts;
    const Holes none = {0};
    if (!PyArg_ParseTuple(args, "y#y#nLy#y#py#y#p", &raw.text, &raw.size, &spans.text, &spans.size, &start, &before,
                          &prefix->text, &prefix->size, &suffix->text, &suffix->size, &shape.running,
                          &shape.between.text, &shape.between.size, &shape.after.text, &shape.after.size,
                          &shape.completion_first))
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
        int bearing = fits(event, &shape, &none, &total);
        if (bearing < 0) break;
        if (add(&bears, bearing) < 0) return freed(&bears, &gains);
        if (!shape.running) continue;
        if (add(&gains, total > before ? total - before : 0) < 0) return freed(&bears, &gains);
        before = total;
    }
    return Py_BuildValue("NL", packed_pair(&bears, &gains), before);
}

/* place_tokens(reads, stamps, since, marks, offset, ends, tokens, sent_at, framing, visible) -> (read_at,
 * read_tokens, read_slack, visible_at): of the reads with tokens, packed, and the instant of the event with the
 * number `visible` (None for -1). See load/answer.py for their meaning. All reads have the kernel's timestamp. */
typedef struct {
    int64_t at, until;                 /* its instant, and the number of bytes received with it */
    int64_t since;                     /* see Mark */
    int64_t after;                     /* its bytes arrived after this instant */
    int64_t tokens, bearing, last_end; /* bearing: events with tokens; last_end: where the last of them ends */
} Read;

/* The reads one by one, without their tokens; -1 if the lists are invalid. */
static int list_reads(Read *listed, PyObject *reads, PyObject *stamps, PyObject *since, Bytes marks, int64_t offset) {
    int64_t until = 0;
    Py_ssize_t first = PyList_GET_SIZE(reads);
    for (Py_ssize_t i = 0; i < first; i++) {
        PyObject *read = PyList_GET_ITEM(reads, i), *stamp = PyList_GET_ITEM(stamps, i);
        int64_t at[2], proof = PyLong_AsLongLong(PyList_GET_ITEM(since, i));
        if (proof == -1 && PyErr_Occurred()) return -1;
        if (!PyBytes_Check(read) || !PyBytes_Check(stamp) || PyBytes_GET_SIZE(stamp) != sizeof at) return -1;
        memcpy(at, PyBytes_AS_STRING(stamp), sizeof at);
        until += PyBytes_GET_SIZE(read);
        listed[i] = (Read){.at = at[0] * 1000000000 + at[1] - offset, .until = until, .since = proof};
    }
    for (Py_ssize_t i = 0; i < marks.size / (Py_ssize_t)sizeof(Mark); i++) {
        Mark mark;
        memcpy(&mark, marks.text + i * sizeof mark, sizeof mark);
        listed[first + i] = (Read){.at = mark.stamp - offset, .until = until + mark.end, .since = mark.since};
    }
    return 0;
}

/* The instant after which the bytes of each read arrived: the timestamp of the previous read, or a later poll that
 * proves it. Bytes that a read left may have arrived as early as that read's own bytes. */
static void bound_reads(Read *reads, Py_ssize_t count, int64_t sent_at) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Read *read = &reads[i];
        read->after = i == 0 ? sent_at : read->since == LEFT ? reads[i - 1].after : reads[i - 1].at;
        if (read->since > 0 && read->since > read->after && read->since <= read->at) read->after = read->since;
    }
}

/* Tokens of the events, each added to the read that completed it; *visible is set to the read of that event. */
static int give_tokens(Read *reads, Py_ssize_t count, const int64_t *ends, const int64_t *tokens, Py_ssize_t events,
                       Py_ssize_t *visible) {
    Py_ssize_t read = 0, wanted = *visible;
    for (Py_ssize_t i = 0; i < events; i++) {
        int64_t amount = tokens[i];
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

static PyObject *placed_tokens(const Read *reads, Py_ssize_t count, Py_ssize_t framing, Py_ssize_t visible) {
    int64_t *packed = PyMem_Malloc((3 * count + 1) * sizeof(int64_t));
    if (packed == NULL) return PyErr_NoMemory();
    Py_ssize_t bearing = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (reads[i].tokens == 0) continue;
        int all = i + 1 == count || reads[i + 1].since != LEFT; /* else its timestamp may be that of the bytes it left */
        int exact = all && reads[i].bearing == 1 && reads[i].until - reads[i].last_end <= framing;
        int64_t slack = exact ? 0 : reads[i].at - reads[i].after;
        packed[bearing] = reads[i].at;
        packed[count + bearing] = reads[i].tokens;
        packed[2 * count + bearing] = slack > 0 ? slack : 0;
        bearing++;
    }
    Py_ssize_t size = bearing * (Py_ssize_t)sizeof(int64_t);
    PyObject *seen = visible < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(reads[visible].at);
    PyObject *placed = Py_BuildValue("y#y#y#N", packed, size, packed + count, size, packed + 2 * count, size, seen);
    PyMem_Free(packed);
    return placed;
}

static PyObject *place_tokens(PyObject *module, PyObject *args) {
    PyObject *reads, *stamps, *since, *placed = NULL;
    Bytes marks;
    Py_buffer ends, tokens;
    long long offset, sent_at;
    Py_ssize_t framing, visible;
    if (!PyArg_ParseTuple(args, "O!O!O!y#Ly*y*Lnn", &PyList_Type, &reads, &PyList_Type, &stamps, &PyList_Type, &since,
                          &marks.text, &marks.size, &offset, &ends, &tokens, &sent_at, &framing, &visible))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(reads) + marks.size / (Py_ssize_t)sizeof(Mark);
    Read *listed = PyMem_Calloc(count + 1, sizeof(Read));
    int fit = PyList_GET_SIZE(reads) == PyList_GET_SIZE(stamps) && PyList_GET_SIZE(reads) == PyList_GET_SIZE(since) &&
              ends.len == tokens.len && tokens.len % 8 == 0 && visible < tokens.len / 8;
    if (listed == NULL)
        PyErr_NoMemory();
    else if (!fit || list_reads(listed, reads, stamps, since, marks, offset) < 0)
        PyErr_SetString(PyExc_ValueError, "reads and stamps, or ends and tokens, do not fit");
    else if (give_tokens(listed, count, ends.buf, tokens.buf, tokens.len / 8, &visible) == 0) {
        bound_reads(listed, count, sent_at);
        placed = placed_tokens(listed, count, framing, visible);
    }
    PyMem_Free(listed);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&tokens);
    return placed;
}

/* send_each(fds, payloads) -> (stamps, sizes): one payload to each socket. `stamps` are the monotonic clock before
 * each send and after the last, packed; `sizes` the number of bytes each socket took, packed: 0 if it is full or
 * closed. Empty: all of them. Keeps the interpreter's lock: sends do not block. */
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

/* total(numbers) -> the sum of contiguous int64; OverflowError if it exceeds int64. */
static PyObject *total(PyObject *module, PyObject *numbers) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(numbers, &buffer, PyBUF_SIMPLE) < 0) return NULL;
    int64_t sum = 0;
    int over = 0;
    for (Py_ssize_t i = 0; i < buffer.len / 8; i++) {
        int64_t number;
        memcpy(&number, (const char *)buffer.buf + 8 * i, sizeof number);
        over |= __builtin_add_overflow(sum, number, &sum);
    }
    PyBuffer_Release(&buffer);
    if (over) {
        PyErr_SetString(PyExc_OverflowError, "the sum is no int64");
        return NULL;
    }
    return PyLong_FromLongLong(sum);
}

/* The word of a tuple selected by a number. */
static PyObject *picked(PyObject *words, const char *numbers, Py_ssize_t i) {
    uint32_t number;
    memcpy(&number, numbers + 4 * i, sizeof number);
    return PyTuple_GET_ITEM(words, number % (uint32_t)PyTuple_GET_SIZE(words));
}

/* join_words(first, rest, numbers) -> a text of one word for each uint32, from the tuple `first` for the first one
 * and from `rest` for the others, with spaces between: the number modulo their count. TypeError if a word is not
 * ASCII. */
static PyObject *join_words(PyObject *module, PyObject *args) {
    PyObject *first, *rest, *text = NULL;
    Py_buffer numbers;
    if (!PyArg_ParseTuple(args, "O!O!y*", &PyTuple_Type, &first, &PyTuple_Type, &rest, &numbers)) return NULL;
    Py_ssize_t count = numbers.len / 4, size = count - 1;
    int plain = PyTuple_GET_SIZE(first) > 0 && PyTuple_GET_SIZE(rest) > 0 && PyTuple_GET_SIZE(rest) <= UINT32_MAX;
    for (Py_ssize_t i = 0; i < count && plain; i++) {
        PyObject *word = picked(i ? rest : first, numbers.buf, i);
        plain = PyUnicode_Check(word) && PyUnicode_IS_ASCII(word);
        if (plain) size += PyUnicode_GET_LENGTH(word);
    }
    if (!plain)
        PyErr_SetString(PyExc_TypeError, "words are of ASCII characters");
    else if ((text = PyUnicode_New(count ? size : 0, 127)) != NULL) {
        char *at = (char *)PyUnicode_1BYTE_DATA(text);
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *word = picked(i ? rest : first, numbers.buf, i);
            Py_ssize_t length = PyUnicode_GET_LENGTH(word);
            if (i) *at++ = ' ';
            memcpy(at, PyUnicode_1BYTE_DATA(word), (size_t)length);
            at += length;
        }
    }
    PyBuffer_Release(&numbers);
    return text;
}

static PyMethodDef methods[] = {
    {"register", (PyCFunction)Poller_register, METH_VARARGS, "register(fd, events)"},
    {"modify", (PyCFunction)Poller_modify, METH_VARARGS, "modify(fd, events)"},
    {"unregister", (PyCFunction)Poller_unregister, METH_O, "unregister(fd): what was collected is lost"},
    {"expect", (PyCFunction)Poller_expect, METH_VARARGS, "expect(prefix, holes, ...) -> the number of a shape of events"},
    {"attach", (PyCFunction)Poller_attach, METH_VARARGS, "attach(fd, left, delay, most, shape, origin): collect what arrives on it"},
    {"begin", (PyCFunction)Poller_begin, METH_VARARGS, "begin(fd, request, delay, most, shape, origin) -> (instant, sent)"},
    {"take", (PyCFunction)Poller_take, METH_VARARGS, "take(fd, before, shape=-1) -> (data, marks, own, ...): what was collected; ends it"},
    {"heard", (PyCFunction)Poller_heard, METH_O, "heard(fd) -> (reads, bytes) collected so far"},
    {"poll", (PyCFunction)Poller_poll, METH_VARARGS, "poll(timeout, most, step=-1) -> [(fd, events), ...]"},
    {"close", (PyCFunction)Poller_close, METH_NOARGS, "close()"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"taken", T_INT, offsetof(Poller, taken), READONLY, "descriptors that were ready at the last poll"},
    {"since", T_LONGLONG, offsetof(Poller, since), READONLY, "when the last whole poll before the last one was called"},
    {"whole", T_INT, offsetof(Poller, whole), READONLY, "whether the last poll was neither full nor interrupted"},
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
    {"total", total, METH_O, "total(numbers) -> the sum of int64 in one piece"},
    {"join_words", join_words, METH_VARARGS, "join_words(first, rest, numbers) -> a text of one word for each number"},
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
