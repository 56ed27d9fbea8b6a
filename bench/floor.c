/* The floor: what reading the same streams costs in C. Opens the streams, keeps one request in flight on each, and
   for every readable socket does one recv and one clock reading. No parsing, no records.

   floor PORT STREAMS REQUESTS TOKENS [SPREAD_MS]  ->  one JSON line; the first requests are spread over that time */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 1024
#define READ_SIZE 65536

static char request[1024];
static int request_size;
static volatile long last_read_at; /* a real reader keeps its stamp */

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void write_request(int tokens) {
    char body[512];
    int size = snprintf(body, sizeof body,
                        "{\"model\":\"metronome\",\"prompt\":\"go\",\"stream\":true,\"ignore_eos\":true,\"max_tokens\":%d,"
                        "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}",
                        tokens);
    request_size = snprintf(request, sizeof request,
                            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
                            "content-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
                            size, body);
}

static int open_stream(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void ask(int fd) {
    if (send(fd, request, request_size, 0) != request_size) die("send");
}

static int ends_answer(const char *data, long size) {
    if (size == 5) return !memcmp(data, "0\r\n\r\n", 5);
    return size >= 7 && !memcmp(data + size - 7, "\r\n0\r\n\r\n", 7);
}

int main(int argc, char **argv) {
    static char data[READ_SIZE];
    struct epoll_event ready[BATCH];
    struct rusage used;
    if (argc != 5 && argc != 6) return 2;
    int port = atoi(argv[1]), streams = atoi(argv[2]), tokens = atoi(argv[4]);
    long asked = 0, done = 0, requests = atol(argv[3]), reads = 0;
    long spread_ns = argc == 6 ? atol(argv[5]) * 1000000L : 0;
    int poller = epoll_create1(0);
    int *fds = calloc(streams, sizeof *fds);
    write_request(tokens);
    for (int i = 0; i < streams; i++) {
        fds[i] = open_stream(port);
        struct epoll_event watch = {.events = EPOLLIN, .data.fd = fds[i]};
        epoll_ctl(poller, EPOLL_CTL_ADD, fds[i], &watch);
    }
    long started_at = now_ns();
    int opened = 0;
    while (done < requests) {
        while (opened < streams && asked < requests && now_ns() - started_at >= spread_ns / streams * opened)
            ask(fds[opened++]), asked++;
        int n = epoll_wait(poller, ready, BATCH, opened < streams ? 1 : -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            long size = recv(fd, data, sizeof data, MSG_DONTWAIT);
            if (size <= 0) die("recv");
            if (size > 12 && !memcmp(data, "HTTP/1.1 ", 9) && memcmp(data + 9, "200", 3)) {
                fprintf(stderr, "floor: the server answered %.*s\n", (int)size, data);
                return 1;
            }
            last_read_at = now_ns();
            reads++;
            if (ends_answer(data, size)) {
                done++;
                if (asked < requests) ask(fd), asked++;
            }
        }
    }
    double wall_s = (now_ns() - started_at) / 1e9;
    getrusage(RUSAGE_SELF, &used);
    double cpu_s = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
                   (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"streams\":%d,\"reads\":%ld,\"wall_s\":%.6f,\"cpu_s\":%.6f}\n", streams, reads, wall_s, cpu_s);
    return 0;
}
