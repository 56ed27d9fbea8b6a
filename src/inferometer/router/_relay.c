/* The compiled part of the router: an epoll that also relays. Optional: router/relay.py does the same in Python,
 * with more CPU time per event.
 *
 * `Poller` is `select.epoll` plus `relay`, after which the body that arrives on one descriptor is passed on to
 * another inside `poll`, without the interpreter, until its framing (chunks, a length, or the end of the connection)
 * shows that it is complete. Bytes are passed on as they arrive, including chunk framing: an event that the server
 * wrote is sent with the read that returned it. A sink that accepts no more stops the reading of its source, so that
 * a slow client slows down only its own server; memory per stream is bounded by one read.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VERSION 1 /* as in router/relay.py */
#define READ_SIZE (64 * 1024)
#define MOST_EVENTS 512
#define MOST_WAIT_MS 200 /* a signal that arrives between two polls is noticed after this time at the latest */
#define MOST_SIZE_LINE 4096 /* as in wire/http1.py, like the next two */
#define MOST_TRAILER (64 * 1024)
#define MOST_SIZE_DIGITS 15

#define READ_EVENT 1
#define DONE (1 << 20)    /* as in router/relay.py: the body is complete */
#define CUT (1 << 21)     /* the source ended early */
#define GONE (1 << 22)    /* the sink accepts nothing any more */
#define BROKEN (1 << 23)  /* the framing is invalid */
#define SURPLUS (1 << 24) /* with DONE: surplus bytes arrived after the body and were discarded */

enum kind { NONE, WATCHED, SOURCE, SINK };
enum mode { CHUNKED, LENGTH, UNTIL_CLOSE };
enum state { SIZE, SPACE, SIZE_LF, EXTENSION, EXTENSION_LF, DATA, DATA_CR, DATA_LF, TRAILER };

typedef struct {
    int source, sink;
    enum mode mode;
    enum state state;
    int digits;       /* of the size being read; of the end of the trailer, which is CR LF CR LF */
    int framing;      /* bytes of the line or trailer being read */
    int64_t left;     /* bytes of the chunk or of the body not yet received */
    int flags;        /* how it ended; reported when everything is sent */
    char *pending;    /* what the sink did not accept */
    size_t begin, end;
    int64_t bytes, reads, first_ns, last_ns;
} Pair;

typedef struct {
    enum kind kind;
    uint32_t events; /* as registered with the kernel */
    Pair *pair;
} Slot;

typedef struct {
    int fd;
    uint32_t events;
} Reported;

typedef struct {
    PyObject_HEAD
    int epoll;
    Slot *slots;
    int size;
    Reported reported[2 * MOST_EVENTS];
    int count;
    char *buffer;
    struct epoll_event ready[MOST_EVENTS];
} Poller;

static int64_t now_ns(void) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return (int64_t)moment.tv_sec * 1000000000 + moment.tv_nsec;
}

static int control(Poller *self, int operation, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data = {.fd = fd}};
    if (epoll_ctl(self->epoll, operation, fd, &event) < 0) return -1;
    self->slots[fd].events = events;
    return 0;
}

/* Without events it is removed from the set: errors and hang-ups are reported whether requested or not, again and
 * again. */
static void want(Poller *self, int fd, uint32_t events) {
    uint32_t before = self->slots[fd].events;
    if (before == events) return;
    control(self, !events ? EPOLL_CTL_DEL : !before ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, events);
}

/* -- framing ---------------------------------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The size line of a chunk is complete; after an empty chunk the trailer ends with an empty line, which may be next. */
static int sized(Pair *pair) {
    pair->state = pair->left ? DATA : TRAILER;
    pair->framing = 0;
    pair->digits = 2;
    return 0;
}

/* One byte of framing; 1 when the body is complete, -1 if the framing is invalid. */
static int step(Pair *pair, char c) {
    if (++pair->framing > (pair->state == TRAILER ? MOST_TRAILER : MOST_SIZE_LINE)) return -1;
    switch (pair->state) {
    case SIZE: {
        int digit = hex_digit(c);
        if (digit >= 0) {
            if (++pair->digits > MOST_SIZE_DIGITS) return -1;
            pair->left = pair->left * 16 + digit;
            return 0;
        }
        if (!pair->digits) return -1;
    } /* fall through */
    case SPACE:
        if (c == '\r') pair->state = SIZE_LF;
        else if (c == ';') pair->state = EXTENSION;
        else if (c == ' ' || c == '\t') pair->state = SPACE;
        else return -1;
        return 0;
    case SIZE_LF: return c == '\n' ? sized(pair) : -1;
    case EXTENSION_LF:
        if (c == '\n') return sized(pair);
        pair->state = EXTENSION; /* fall through */
    case EXTENSION:
        if (c == '\r') pair->state = EXTENSION_LF;
        return 0;
    case DATA_CR:
        if (c != '\r') return -1;
        pair->state = DATA_LF;
        return 0;
    case DATA_LF:
        if (c != '\n') return -1;
        pair->state = SIZE;
        pair->digits = pair->framing = 0;
        return 0;
    case TRAILER:
        if (c == '\r') pair->digits = pair->digits == 2 ? 3 : 1;
        else if (c == '\n' && pair->digits % 2) pair->digits++;
        else pair->digits = 0;
        return pair->digits == 4;
    case DATA: break;
    }
    return -1;
}

/* How many of the bytes belong to the body, -1 if the framing is invalid; `*done` is set if the body is complete
 * with them. */
static Py_ssize_t advance(Pair *pair, const char *data, Py_ssize_t size, int *done) {
    if (pair->mode == UNTIL_CLOSE) return size;
    if (pair->mode == LENGTH) {
        Py_ssize_t taken = size < pair->left ? size : (Py_ssize_t)pair->left;
        pair->left -= taken;
        *done = pair->left == 0;
        return taken;
    }
    Py_ssize_t at = 0;
    while (at < size) {
        if (pair->state == DATA) {
            int64_t room = size - at;
            int64_t taken = room < pair->left ? room : pair->left;
            at += taken;
            pair->left -= taken;
            if (!pair->left) pair->state = DATA_CR;
            continue;
        }
        int end = step(pair, data[at++]);
        if (end < 0) return -1;
        if (end) {
            *done = 1;
            return at;
        }
    }
    return at;
}

/* -- pairs ------------------------------------------------------------------------------------------------------------ */

static void report(Poller *self, int fd, uint32_t events) {
    if (self->count < 2 * MOST_EVENTS) self->reported[self->count++] = (Reported){fd, events};
}

/* The pair is over: Python owns both descriptors again. It stays with its source until `take`. */
static void finish(Poller *self, Pair *pair, int flags) {
    pair->flags = flags;
    self->slots[pair->source].kind = WATCHED;
    want(self, pair->source, EPOLLIN);
    if (self->slots[pair->sink].pair == pair) {
        self->slots[pair->sink].kind = WATCHED;
        self->slots[pair->sink].pair = NULL;
        want(self, pair->sink, EPOLLIN);
    }
    report(self, pair->source, flags);
}

/* Hand bytes to the sink; bytes that it does not accept wait, and stop the source. -1 if the sink is gone. */
static int pass_on(Pair *pair, const char *data, size_t size) {
    size_t at = 0;
    while (at < size) {
        ssize_t sent = send(pair->sink, data + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += (size_t)sent;
        } else if (sent < 0 && errno == EINTR) {
            continue;
        } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else {
            return -1;
        }
    }
    if (at == size) return 0;
    char *pending = malloc(size - at);
    if (pending == NULL) return -1;
    memcpy(pending, data + at, size - at);
    pair->pending = pending;
    pair->begin = 0;
    pair->end = size - at;
    return 0;
}

static void hold_back(Poller *self, Pair *pair) {
    want(self, pair->source, 0);
    want(self, pair->sink, EPOLLIN | EPOLLOUT);
}

static void pump(Poller *self, Pair *pair) {
    if (pair->pending) return; /* stopped by an event of the same poll */
    ssize_t size = recv(pair->source, self->buffer, READ_SIZE, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (size <= 0) {
        finish(self, pair, size == 0 && pair->mode == UNTIL_CLOSE ? DONE : CUT);
        return;
    }
    int done = 0;
    Py_ssize_t taken = advance(pair, self->buffer, size, &done);
    if (taken < 0) {
        finish(self, pair, BROKEN);
        return;
    }
    pair->last_ns = now_ns();
    if (!pair->first_ns) pair->first_ns = pair->last_ns;
    pair->bytes += taken;
    pair->reads++;
    if (pass_on(pair, self->buffer, (size_t)taken) < 0) {
        finish(self, pair, GONE);
        return;
    }
    int flags = done ? (taken < size ? DONE | SURPLUS : DONE) : 0;
    if (pair->pending) {
        pair->flags = flags;
        hold_back(self, pair);
    } else if (flags) {
        finish(self, pair, flags);
    }
}

static void flush(Poller *self, Pair *pair) {
    while (pair->begin < pair->end) {
        ssize_t sent = send(pair->sink, pair->pending + pair->begin, pair->end - pair->begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) pair->begin += (size_t)sent;
        else if (sent < 0 && errno == EINTR) continue;
        else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        else {
            finish(self, pair, GONE);
            return;
        }
    }
    free(pair->pending);
    pair->pending = NULL;
    if (pair->flags) {
        finish(self, pair, pair->flags);
        return;
    }
    want(self, pair->sink, EPOLLIN);
    want(self, pair->source, EPOLLIN);
}

static void discard(Pair *pair) {
    free(pair->pending);
    free(pair);
}

/* Separate the two without a report to Python. */
static void part(Poller *self, Pair *pair) {
    Slot *source = &self->slots[pair->source], *sink = &self->slots[pair->sink];
    if (source->pair == pair) {
        source->pair = NULL;
        if (source->kind == SOURCE) {
            source->kind = WATCHED;
            want(self, pair->source, EPOLLIN);
        }
    }
    if (sink->pair == pair) {
        sink->pair = NULL;
        sink->kind = WATCHED;
        want(self, pair->sink, EPOLLIN);
    }
    discard(pair);
}

static void serve(Poller *self, int ready) {
    for (int at = 0; at < ready; at++) {
        int fd = self->ready[at].data.fd;
        uint32_t events = self->ready[at].events;
        Slot *slot = &self->slots[fd];
        switch (slot->kind) {
        case SOURCE: pump(self, slot->pair); break;
        case SINK:
            if (events & EPOLLOUT && slot->pair->pending) flush(self, slot->pair);
            if (events & ~(uint32_t)EPOLLOUT) report(self, fd, events & ~(uint32_t)EPOLLOUT);
            break;
        case WATCHED: report(self, fd, events); break;
        case NONE: break;
        }
    }
}

/* -- Poller ----------------------------------------------------------------------------------------------------------- */

static PyObject *poller_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)args, (void)keywords;
    Poller *self = (Poller *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->slots = NULL;
    self->size = 0;
    self->count = 0;
    self->buffer = malloc(READ_SIZE);
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->buffer == NULL || self->epoll < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void shut(Poller *self) {
    if (self->epoll >= 0) close(self->epoll);
    self->epoll = -1;
    for (int fd = 0; fd < self->size; fd++) {
        Pair *pair = self->slots[fd].pair;
        if (pair != NULL && pair->source == fd) discard(pair);
        self->slots[fd].pair = NULL;
    }
    free(self->slots);
    self->slots = NULL;
    self->size = 0;
}

static void poller_dealloc(Poller *self) {
    shut(self);
    free(self->buffer);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int make_room(Poller *self, int fd) {
    if (fd < 0 || self->epoll < 0) {
        errno = EBADF;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (fd < self->size) return 0;
    int size = self->size ? self->size : 64;
    while (size <= fd) size *= 2;
    Slot *slots = realloc(self->slots, (size_t)size * sizeof(Slot));
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(slots + self->size, 0, (size_t)(size - self->size) * sizeof(Slot));
    self->slots = slots;
    self->size = size;
    return 0;
}

static PyObject *poller_register(Poller *self, PyObject *args) {
    int fd;
    unsigned int events;
    if (!PyArg_ParseTuple(args, "iI", &fd, &events) || make_room(self, fd) < 0) return NULL;
    if (control(self, EPOLL_CTL_ADD, fd, events) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    self->slots[fd].kind = WATCHED;
    Py_RETURN_NONE;
}

static PyObject *poller_modify(Poller *self, PyObject *args) {
    int fd;
    unsigned int events;
    if (!PyArg_ParseTuple(args, "iI", &fd, &events) || make_room(self, fd) < 0) return NULL;
    Slot *slot = &self->slots[fd];
    if (slot->kind == WATCHED && slot->events == events) Py_RETURN_NONE;
    if (slot->kind == SOURCE || slot->kind == SINK) part(self, slot->pair);
    if (control(self, EPOLL_CTL_MOD, fd, events) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyObject *poller_unregister(Poller *self, PyObject *args) {
    int fd;
    if (!PyArg_ParseTuple(args, "i", &fd) || make_room(self, fd) < 0) return NULL;
    if (self->slots[fd].pair != NULL) part(self, self->slots[fd].pair); /* Python watches both again */
    self->slots[fd] = (Slot){NONE, 0, NULL};
    struct epoll_event unused = {0};
    if (epoll_ctl(self->epoll, EPOLL_CTL_DEL, fd, &unused) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyObject *poller_relay(Poller *self, PyObject *args) {
    int source, sink, mode;
    long long left;
    Py_buffer data;
    Py_ssize_t body_at;
    if (!PyArg_ParseTuple(args, "iiiLy*n", &source, &sink, &mode, &left, &data, &body_at)) return NULL;
    if (make_room(self, source) < 0 || make_room(self, sink) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    if (self->slots[source].kind != WATCHED || self->slots[sink].kind != WATCHED || self->slots[source].pair != NULL ||
        body_at > data.len || mode < CHUNKED || mode > UNTIL_CLOSE) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "relay: both descriptors must be watched, and not be relayed already");
        return NULL;
    }
    Pair *pair = calloc(1, sizeof(Pair));
    if (pair == NULL) {
        PyBuffer_Release(&data);
        return PyErr_NoMemory();
    }
    *pair = (Pair){.source = source, .sink = sink, .mode = (enum mode)mode, .state = SIZE, .left = mode == LENGTH ? left : 0};
    int done = mode == LENGTH && left == 0, flags = 0;
    Py_ssize_t size = data.len - body_at, taken = 0;
    if (size) {
        taken = advance(pair, (char *)data.buf + body_at, size, &done);
        pair->first_ns = pair->last_ns = now_ns();
        pair->bytes = taken < 0 ? 0 : taken;
        pair->reads = 1;
    }
    if (taken < 0) flags = BROKEN;
    else if (pass_on(pair, data.buf, (size_t)(body_at + taken)) < 0) flags = GONE;
    else if (done) flags = taken < size ? DONE | SURPLUS : DONE;
    PyBuffer_Release(&data);
    self->slots[source].pair = pair;
    pair->flags = flags;
    if (flags && !pair->pending) return PyLong_FromLong(flags); /* over at once: `take` returns the rest */
    self->slots[source].kind = SOURCE;
    self->slots[sink].kind = SINK;
    self->slots[sink].pair = pair;
    if (pair->pending) hold_back(self, pair);
    return PyLong_FromLong(0);
}

static PyObject *poller_take(Poller *self, PyObject *args) {
    int source;
    if (!PyArg_ParseTuple(args, "i", &source) || make_room(self, source) < 0) return NULL;
    Pair *pair = self->slots[source].pair;
    if (pair == NULL || pair->source != source) {
        PyErr_SetString(PyExc_ValueError, "take: nothing was relayed from this descriptor");
        return NULL;
    }
    PyObject *taken = Py_BuildValue(
        "(LLLL)", (long long)pair->bytes, (long long)pair->reads, (long long)pair->first_ns, (long long)pair->last_ns);
    part(self, pair);
    return taken;
}

static PyObject *poller_poll(Poller *self, PyObject *args) {
    double timeout;
    int most;
    if (!PyArg_ParseTuple(args, "di", &timeout, &most) || make_room(self, 0) < 0) return NULL;
    if (most > MOST_EVENTS) most = MOST_EVENTS;
    int64_t until = timeout < 0 ? INT64_MAX : now_ns() + (int64_t)(timeout * 1e9);
    self->count = 0;
    for (;;) {
        int wait = MOST_WAIT_MS, ready, failed = 0;
        int64_t left = timeout < 0 ? INT64_MAX : (until - now_ns() + 999999) / 1000000;
        if (left < wait) wait = left > 0 ? (int)left : 0;
        Py_BEGIN_ALLOW_THREADS
        ready = epoll_wait(self->epoll, self->ready, most, wait);
        failed = ready < 0 ? errno : 0;
        if (ready > 0) serve(self, ready);
        Py_END_ALLOW_THREADS
        if (failed && failed != EINTR) {
            errno = failed;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        if (PyErr_CheckSignals() < 0) return NULL;
        if (self->count || (timeout >= 0 && now_ns() >= until)) break;
    }
    PyObject *events = PyList_New(self->count);
    if (events == NULL) return NULL;
    for (int at = 0; at < self->count; at++) {
        PyObject *event = Py_BuildValue("(iI)", self->reported[at].fd, self->reported[at].events);
        if (event == NULL) {
            Py_DECREF(events);
            return NULL;
        }
        PyList_SET_ITEM(events, at, event);
    }
    return events;
}

static PyObject *poller_close(Poller *self, PyObject *unused) {
    (void)unused;
    shut(self);
    Py_RETURN_NONE;
}

static PyMethodDef poller_methods[] = {
    {"register", (PyCFunction)poller_register, METH_VARARGS, "register(fd, events)"},
    {"modify", (PyCFunction)poller_modify, METH_VARARGS, "modify(fd, events)"},
    {"unregister", (PyCFunction)poller_unregister, METH_VARARGS, "unregister(fd)"},
    {"relay", (PyCFunction)poller_relay, METH_VARARGS,
     "relay(source, sink, mode, left, data, body_at) -> flags, 0 while it is under way"},
    {"take", (PyCFunction)poller_take, METH_VARARGS, "take(source) -> (bytes, reads, first_ns, last_ns)"},
    {"poll", (PyCFunction)poller_poll, METH_VARARGS, "poll(timeout, most) -> [(fd, events)]"},
    {"close", (PyCFunction)poller_close, METH_NOARGS, "close()"},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject poller_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "inferometer.router._relay.Poller",
    .tp_basicsize = sizeof(Poller),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "An epoll that also relays.",
    .tp_new = poller_new,
    .tp_dealloc = (destructor)poller_dealloc,
    .tp_methods = poller_methods,
};

static struct PyModuleDef relay_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "inferometer.router._relay",
    .m_doc = "The compiled part of the router.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__relay(void) {
    if (PyType_Ready(&poller_type) < 0) return NULL;
    PyObject *module = PyModule_Create(&relay_module);
    if (module == NULL) return NULL;
    Py_INCREF(&poller_type);
    if (PyModule_AddObject(module, "Poller", (PyObject *)&poller_type) < 0 ||
        PyModule_AddIntConstant(module, "VERSION", VERSION) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
