#define _GNU_SOURCE /* memmem */
/* Load on a connection that is already open and greeted, for protocols that differ only in what an answer looks like.
 *
 *   answers FD KIND REQUEST_FILE COUNT IN_FLIGHT
 *
 * sends the request COUNT times on the inherited socket, IN_FLIGHT unanswered, and prints one line of JSON. KIND:
 *   frame  4 bytes of length, then as many bytes (Kafka)
 *   lines  a line that begins with '$' or 'M', and the line after it (Redis' bulk strings, NATS' messages)
 *   stomp  a frame up to its NUL; anything but a RECEIPT is a failure
 *   amqp   AMQP 0-9-1 frames; an Ack may answer several at once
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#define BUFFER_BYTES (1 << 18)
#define WAIT_MS 60000

static char buffer[BUFFER_BYTES];
static size_t start, end;
static long failed;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void fill(int fd) {
    memmove(buffer, buffer + start, end - start);
    end -= start;
    start = 0;
    if (end == BUFFER_BYTES) errno = EMSGSIZE, die("answer");
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    if (poll(&waiting, 1, WAIT_MS) == 0) errno = ETIMEDOUT, die("answers");
    ssize_t n = recv(fd, buffer + end, BUFFER_BYTES - end, 0);
    if (n <= 0) die("recv");
    end += n;
}

/* Each of these takes what is complete out of the buffer and returns how many requests it answers in all so far. */
static long frames(long answered) {
    uint32_t length;
    while (end - start >= 4) {
        memcpy(&length, buffer + start, 4);
        if (end - start < 4 + (size_t)ntohl(length)) break;
        start += 4 + ntohl(length);
        answered++;
    }
    return answered;
}

static long lines(long answered) {
    static int within;
    for (char *stop; (stop = memchr(buffer + start, '\n', end - start)); start = stop - buffer + 1) {
        char *line = buffer + start;
        if (within) {
            if (memmem(line, stop - line, "\"error\"", 7)) failed++;
            within = 0, answered++;
        } else if (*line == '$' || *line == 'M') {
            within = 1;
        } else if (*line == '-') {
            failed++, answered++;
        }
    }
    return answered;
}

static long stomp(long answered) {
    for (char *stop; (stop = memchr(buffer + start, 0, end - start)); start = stop - buffer + 1) {
        while (buffer[start] == '\n') start++;
        if (strncmp(buffer + start, "RECEIPT", 7)) failed++;
        answered++;
    }
    return answered;
}

static long amqp(long answered) {
    uint32_t length, method;
    while (end - start >= 8) {
        memcpy(&length, buffer + start + 3, 4);
        size_t size = 8 + (size_t)ntohl(length);
        if (end - start < size) break;
        if (buffer[start] == 1) {
            uint64_t tag;
            memcpy(&method, buffer + start + 7, 4);
            method = ntohl(method);
            if (method != (60 << 16 | 80)) { /* anything but Basic.Ack */
                fprintf(stderr, "method %u.%u\n", method >> 16, method & 0xffff);
                exit(1);
            }
            memcpy(&tag, buffer + start + 11, 8);
            if (buffer[start + 19] & 1)
                answered = (long)be64toh(tag) > answered ? (long)be64toh(tag) : answered;
            else
                answered++;
        }
        start += size;
    }
    return answered;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: answers FD KIND REQUEST_FILE COUNT IN_FLIGHT\n");
        return 2;
    }
    int fd = atoi(argv[1]);
    long (*take)(long) = !strcmp(argv[2], "frame")   ? frames
                         : !strcmp(argv[2], "lines") ? lines
                         : !strcmp(argv[2], "stomp") ? stomp
                                                     : amqp;
    FILE *file = fopen(argv[3], "rb");
    if (!file) die(argv[3]);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    char *request = malloc(size);
    if (fread(request, 1, size, file) != size) die("read");
    long count = atol(argv[4]), in_flight = atol(argv[5]), requests = 0, answered = 0;
    double *sent = malloc(sizeof(double) * count), *took = malloc(sizeof(double) * count), began = now_us();
    while (answered < count) {
        while (requests < count && requests - answered < in_flight) {
            sent[requests++] = now_us();
            for (size_t at = 0; at < size;) {
                ssize_t n = send(fd, request + at, size - at, MSG_NOSIGNAL);
                if (n <= 0) die("send");
                at += n;
            }
        }
        fill(fd);
        long now_answered = take(answered);
        double now = now_us();
        for (; answered < now_answered && answered < count; answered++) took[answered] = now - sent[answered];
    }
    double seconds = (now_us() - began) / 1e6;
    qsort(took, count, sizeof(double), ascending);
    printf("{\"count\": %ld, \"seconds\": %.6f, \"failed\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", count, seconds,
           failed, took[count / 2], took[count - 1 - count / 100]);
    return failed != 0;
}
