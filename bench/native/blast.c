/* Raw request load, so that a measurement is of the broker and not of a client library.
 *
 *   blast send HOST PORT REQUEST_FILE COUNT IN_FLIGHT   sends the same framed request COUNT times, keeping IN_FLIGHT
 *                                                       unanswered, and prints one line of JSON
 *   blast echo PORT RESPONSE_BYTES                      answers every framed request with RESPONSE_BYTES: the floor
 *                                                       that any server on this machine can reach
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1 << 20)

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0) die("send");
        data += n;
        size -= n;
    }
}

/* A stream of frames read through one buffer; bodies are discarded, the first bytes of the last one are kept. */
struct reader {
    int fd;
    size_t start, end;
    uint64_t bytes;
    char buffer[BUFFER_BYTES];
};

static void fill(struct reader *r) {
    if (r->start == r->end) r->start = r->end = 0;
    if (r->end == BUFFER_BYTES) {
        memmove(r->buffer, r->buffer + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    ssize_t n = recv(r->fd, r->buffer + r->end, BUFFER_BYTES - r->end, 0);
    if (n == 0) exit(0);
    if (n < 0) die("recv");
    r->end += n;
    r->bytes += n;
}

static void skip_frame(struct reader *r) {
    while (r->end - r->start < 4) fill(r);
    uint32_t length;
    memcpy(&length, r->buffer + r->start, 4);
    size_t left = ntohl(length);
    r->start += 4;
    while (left) {
        if (r->start == r->end) fill(r);
        size_t have = r->end - r->start;
        size_t take = have < left ? have : left;
        r->start += take;
        left -= take;
    }
}

static void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int send_load(char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
    inet_pton(AF_INET, argv[2], &address.sin_addr);
    FILE *file = fopen(argv[4], "rb");
    if (!file) die(argv[4]);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    char *request = malloc(size);
    if (fread(request, 1, size, file) != size) die("read");
    long count = atol(argv[5]), in_flight = atol(argv[6]);
    double *sent = malloc(sizeof(double) * count), *took = malloc(sizeof(double) * count);

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    no_delay(fd);
    struct reader *r = calloc(1, sizeof *r);
    r->fd = fd;
    long requests = 0;
    double began = now_us();
    for (long answers = 0; answers < count; answers++) {
        while (requests < count && requests - answers < in_flight) {
            sent[requests++] = now_us();
            write_all(fd, request, size);
        }
        skip_frame(r);
        took[answers] = now_us() - sent[answers];
    }
    double seconds = (now_us() - began) / 1e6;
    qsort(took, count, sizeof(double), ascending);
    printf("{\"count\": %ld, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, "
           "\"bytes_received\": %llu}\n",
           count, seconds, took[count / 2], took[count - 1 - count / 100], took[count - 1],
           (unsigned long long)r->bytes);
    return 0;
}

static void echo(char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    size_t size = atol(argv[3]);
    char *answer = calloc(1, size + 4);
    uint32_t length = htonl(size);
    memcpy(answer, &length, 4);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4)) die("listen");
    puts("ready");
    fflush(stdout);
    struct reader *r = calloc(1, sizeof *r);
    r->fd = accept(listener, NULL, NULL);
    no_delay(r->fd);
    for (;;) {
        skip_frame(r);
        write_all(r->fd, answer, size + 4);
    }
}

int main(int argc, char **argv) {
    if (argc == 7 && !strcmp(argv[1], "send")) return send_load(argv);
    if (argc == 4 && !strcmp(argv[1], "echo")) echo(argv);
    fprintf(stderr, "usage: blast send HOST PORT REQUEST_FILE COUNT IN_FLIGHT | blast echo PORT RESPONSE_BYTES\n");
    return 2;
}
