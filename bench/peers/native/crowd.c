/* Many connections at once, from one thread, so that the client costs little and the same for every broker.
 *
 *   crowd spread HOST PORT REQUEST_FILE CONNECTIONS COUNT IN_FLIGHT PATCH_AT PATCH_COUNT
 *       sends the framed request COUNT times, each on the connection that has rested longest, IN_FLIGHT unanswered
 *       in all. PATCH_COUNT > 0: the 32-bit number at PATCH_AT goes 0, 1, ... PATCH_COUNT - 1, 0, ...
 *   crowd fanout HOST PORT PRODUCE_FILE FETCH_FILE OFFSET_AT HEAD CONSUMERS COUNT RATE
 *       CONSUMERS connections wait at the end of an empty partition, each with a Fetch whose 64-bit offset is at
 *       OFFSET_AT; one more sends a record RATE times a second. HEAD bytes of a Fetch answer come before its batches.
 *
 * Each prints one line of JSON.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1 << 16)
#define EVENTS 256

struct connection {
    int fd;
    size_t have;
    long request; /* the one it waits for */
    int64_t offset;
    char *buffer;
};

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static char *read_file(const char *name, size_t *size) {
    FILE *file = fopen(name, "rb");
    if (!file) die(name);
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    char *data = malloc(*size);
    if (fread(data, 1, *size, file) != *size) die("read");
    fclose(file);
    return data;
}

static void write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0) die("send");
        data += n;
        size -= n;
    }
}

static struct connection *open_all(const char *host, const char *port, long count, int poller) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    inet_pton(AF_INET, host, &address.sin_addr);
    struct connection *all = calloc(count, sizeof *all);
    for (long i = 0; i < count; i++) {
        int one = 1;
        all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (all[i].fd < 0 || connect(all[i].fd, (struct sockaddr *)&address, sizeof address)) die("connect");
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        all[i].buffer = malloc(BUFFER_BYTES);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &event)) die("epoll_ctl");
    }
    return all;
}

/* The length of a whole answer at the start of the buffer, with its length field; 0 while it is not complete. */
static size_t answer(struct connection *c) {
    if (c->have < 4) return 0;
    uint32_t length;
    memcpy(&length, c->buffer, 4);
    size_t size = (size_t)ntohl(length) + 4;
    if (size > BUFFER_BYTES) {
        fprintf(stderr, "an answer of %zu bytes\n", size);
        exit(1);
    }
    return c->have >= size ? size : 0;
}

static void receive(struct connection *c) {
    ssize_t n = recv(c->fd, c->buffer + c->have, BUFFER_BYTES - c->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) die("recv");
    c->have += n;
}

static void drop(struct connection *c, size_t size) {
    memmove(c->buffer, c->buffer + size, c->have - size);
    c->have -= size;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(double *took, long count, double seconds) {
    qsort(took, count, sizeof(double), ascending);
    printf("{\"count\": %ld, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n", count, seconds,
           took[count / 2], took[count - 1 - count / 100], took[count - 1]);
}

static int spread(char **argv) {
    size_t size;
    char *request = read_file(argv[4], &size);
    long connections = atol(argv[5]), count = atol(argv[6]), in_flight = atol(argv[7]);
    long patch_at = atol(argv[8]), patch_count = atol(argv[9]);
    int poller = epoll_create1(0);
    struct connection *all = open_all(argv[2], argv[3], connections, poller);
    struct connection **resting = malloc(sizeof *resting * connections); /* a ring */
    for (long i = 0; i < connections; i++) resting[i] = &all[i];
    double *sent = malloc(sizeof(double) * count), *took = malloc(sizeof(double) * count);
    if (in_flight > connections) in_flight = connections;
    long requests = 0, answers = 0, first = 0, last = 0;
    double began = now_us();
    while (answers < count) {
        while (requests < count && requests - answers < in_flight) {
            struct connection *c = resting[first++ % connections];
            if (patch_count) {
                uint32_t number = htonl(requests % patch_count);
                memcpy(request + patch_at, &number, 4);
            }
            c->request = requests;
            sent[requests++] = now_us();
            write_all(c->fd, request, size);
        }
        struct epoll_event events[EVENTS];
        int n = epoll_wait(poller, events, EVENTS, 30000);
        if (n == 0) errno = ETIMEDOUT, die("answers");
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            receive(c);
            size_t whole = answer(c);
            if (!whole) continue;
            drop(c, whole);
            took[answers++] = now_us() - sent[c->request];
            resting[last++ % connections] = c;
        }
    }
    print(took, count, (now_us() - began) / 1e6);
    return 0;
}

/* Notes when each record of a Fetch answer arrived; returns the offset to ask for next. */
static int64_t take(struct connection *c, size_t size, size_t head, const double *sent, double *took, long *got) {
    double now = now_us();
    for (size_t at = head; at + 61 <= size;) {
        int64_t base;
        uint32_t length, delta;
        memcpy(&base, c->buffer + at, 8);
        memcpy(&length, c->buffer + at + 8, 4);
        memcpy(&delta, c->buffer + at + 23, 4);
        at += 12 + ntohl(length);
        if (at > size) break;
        base = be64toh(base);
        for (int64_t offset = base; offset <= base + (int64_t)ntohl(delta); offset++)
            if (offset >= c->offset) took[(*got)++] = now - sent[offset];
        c->offset = base + ntohl(delta) + 1;
    }
    return c->offset;
}

static void ask(struct connection *c, char *fetch, size_t size, size_t offset_at) {
    int64_t offset = htobe64(c->offset);
    memcpy(fetch + offset_at, &offset, 8);
    write_all(c->fd, fetch, size);
}

static int fanout(char **argv) {
    size_t produce_size, fetch_size;
    char *produce = read_file(argv[4], &produce_size), *fetch = read_file(argv[5], &fetch_size);
    size_t offset_at = atol(argv[6]), head = atol(argv[7]);
    long consumers = atol(argv[8]), count = atol(argv[9]);
    double pause_us = 1e6 / atof(argv[10]);
    int poller = epoll_create1(0);
    struct connection *all = open_all(argv[2], argv[3], consumers, poller);
    struct connection *producer = open_all(argv[2], argv[3], 1, poller);
    double *sent = malloc(sizeof(double) * count), *took = malloc(sizeof(double) * count * consumers);
    for (long i = 0; i < consumers; i++) ask(&all[i], fetch, fetch_size, offset_at);
    long produced = 0, got = 0;
    double began = now_us() + 5e5, next = began, deadline = began + count * pause_us + 60e6;
    while (got < count * consumers) {
        double now = now_us();
        if (now > deadline) errno = ETIMEDOUT, die("deliveries");
        if (produced < count && now >= next) {
            sent[produced++] = now;
            write_all(producer->fd, produce, produce_size);
            next += pause_us;
        }
        double left = produced < count ? (next - now_us()) / 1e3 : 1000;
        struct epoll_event events[EVENTS];
        int n = epoll_wait(poller, events, EVENTS, left < 0 ? 0 : (int)left);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            receive(c);
            for (size_t whole; (whole = answer(c)); drop(c, whole))
                if (c != producer) {
                    take(c, whole, head, sent, took, &got);
                    ask(c, fetch, fetch_size, offset_at);
                }
        }
    }
    print(took, got, (now_us() - began) / 1e6);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 10 && !strcmp(argv[1], "spread")) return spread(argv);
    if (argc == 11 && !strcmp(argv[1], "fanout")) return fanout(argv);
    fprintf(stderr, "usage: crowd spread|fanout ...\n");
    return 2;
}
