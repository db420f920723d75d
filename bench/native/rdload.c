/* Load through librdkafka from C, the client that most languages use underneath.
 *
 *   rdload produce BOOTSTRAP TOPIC PARTITIONS COUNT BYTES [name=value ...]
 *   rdload consume BOOTSTRAP TOPIC PARTITIONS COUNT [name=value ...]   PARTITIONS: how many, or the one of "=number"
 *   rdload e2e     BOOTSTRAP TOPIC COUNT RATE_PER_S BYTES [name=value ...]
 *
 * Each prints one line of JSON. Only prototypes are declared, so the library inside the confluent-kafka wheel is
 * enough and no headers need to be installed.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka rd_kafka_t;
typedef struct rd_kafka_topic rd_kafka_topic_t;
typedef struct rd_kafka_conf rd_kafka_conf_t;
typedef struct rd_kafka_topic_conf rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue rd_kafka_queue_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;
enum { PRODUCER = 0, CONSUMER = 1, COPY = 2, BLOCK = 4, OFFSET_BEGINNING = -2 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_err2str(int);

static long delivered, failed;
static const char *first_error = "";

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) {
        if (!failed++) first_error = rd_kafka_err2str(message->err);
    } else {
        delivered++;
    }
}

static rd_kafka_t *client(int type, const char *bootstrap, char **settings, int count) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error);
    if (type == PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    for (int i = 0; i < count; i++) {
        char *value = strchr(settings[i], '=');
        *value = 0;
        /* A producer's setting is no consumer's: names that one side does not know are its own affair. */
        if (rd_kafka_conf_set(conf, settings[i], value + 1, error, sizeof error)) fprintf(stderr, "%s\n", error);
        *value = '=';
    }
    rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!rk) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
    return rk;
}

static int produce(int argc, char **argv) {
    int partitions = atoi(argv[4]);
    long count = atol(argv[5]);
    size_t size = atol(argv[6]);
    rd_kafka_t *rk = client(PRODUCER, argv[2], argv + 7, argc - 7);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argv[3], NULL);
    char *payload = malloc(size);
    for (size_t i = 0; i < size; i++) payload[i] = 'a' + (i * 7 + i / 26) % 26;
    rd_kafka_produce(topic, 0, COPY, payload, size, NULL, 0, NULL); /* connects and learns the metadata */
    rd_kafka_flush(rk, 30000);
    delivered = 0;
    double began = now_us();
    for (long i = 0; i < count; i++) {
        while (rd_kafka_produce(topic, i % partitions, 0, payload, size, NULL, 0, NULL)) rd_kafka_poll(rk, 5);
        if (i % 4096 == 0) rd_kafka_poll(rk, 0);
    }
    rd_kafka_flush(rk, 120000);
    double seconds = (now_us() - began) / 1e6;
    printf("{\"count\": %ld, \"seconds\": %.6f, \"failed\": %ld, \"error\": \"%s\"}\n", delivered, seconds, failed,
           first_error);
    return failed != 0 || delivered != count;
}

static rd_kafka_queue_t *start_consumer(rd_kafka_t *rk, const char *name, const char *partitions, int64_t offset) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    int first = *partitions == '=' ? atoi(partitions + 1) : 0;
    int end = *partitions == '=' ? first + 1 : atoi(partitions);
    for (int p = first; p < end; p++) rd_kafka_consume_start_queue(topic, p, offset, queue);
    return queue;
}

static int consume(int argc, char **argv) {
    long count = atol(argv[5]), got = 0;
    unsigned long long bytes = 0;
    rd_kafka_t *rk = client(CONSUMER, argv[2], argv + 6, argc - 6);
    rd_kafka_queue_t *queue = start_consumer(rk, argv[3], argv[4], OFFSET_BEGINNING);
    static rd_kafka_message_t *messages[10000];
    double began = 0, last = now_us();
    while (got < count && now_us() - last < 30e6) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 100, messages, 10000);
        if (n > 0) last = now_us();
        if (n > 0 && !began) began = last;
        for (ssize_t i = 0; i < n; i++) {
            if (!messages[i]->err) got++, bytes += messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    printf("{\"count\": %ld, \"seconds\": %.6f, \"bytes\": %llu}\n", got, (now_us() - began) / 1e6, bytes);
    fflush(stdout);
    _Exit(got < count); /* closing a consumer waits for its last fetch, which is no part of this */
}

struct reading {
    rd_kafka_queue_t *queue;
    long count, got;
    double *took;
};

static void *read_all(void *argument) {
    struct reading *reading = argument;
    static rd_kafka_message_t *messages[100];
    double deadline = now_us() + 120e6;
    while (reading->got < reading->count && now_us() < deadline) {
        ssize_t n = rd_kafka_consume_batch_queue(reading->queue, 1000, messages, 1);
        for (ssize_t i = 0; i < n; i++) {
            double sent;
            if (!messages[i]->err && messages[i]->len >= sizeof sent) {
                memcpy(&sent, messages[i]->payload, sizeof sent);
                reading->took[reading->got++] = now_us() - sent;
            }
            rd_kafka_message_destroy(messages[i]);
        }
    }
    return NULL;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int end_to_end(int argc, char **argv) {
    long count = atol(argv[4]);
    double pause_us = 1e6 / atof(argv[5]);
    size_t size = atol(argv[6]);
    rd_kafka_t *producer = client(PRODUCER, argv[2], argv + 7, argc - 7);
    char *reading_settings[] = {strdup("fetch.wait.max.ms=500"), strdup("fetch.error.backoff.ms=5")};
    rd_kafka_t *consumer = client(CONSUMER, argv[2], reading_settings, 2);
    struct reading reading = {start_consumer(consumer, argv[3], "1", OFFSET_BEGINNING), count, 0,
                              malloc(sizeof(double) * count)};
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, argv[3], NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, read_all, &reading);
    char *payload = calloc(1, size);
    double next = now_us() + 1e6; /* both sides have met the broker by then */
    for (long i = 0; i < count; i++) {
        double wait = next - now_us();
        if (wait > 0) nanosleep(&(struct timespec){(long)(wait / 1e6), (long)wait % 1000000 * 1000}, NULL);
        double sent = now_us();
        memcpy(payload, &sent, sizeof sent);
        rd_kafka_produce(topic, 0, COPY, payload, size, NULL, 0, NULL);
        rd_kafka_poll(producer, 0);
        next += pause_us;
    }
    pthread_join(thread, NULL);
    qsort(reading.took, reading.got, sizeof(double), ascending);
    if (reading.got)
        printf("{\"count\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}\n", reading.got,
               reading.took[reading.got / 2], reading.took[reading.got - 1 - reading.got / 100],
               reading.took[reading.got - 1 - reading.got / 1000]);
    fflush(stdout);
    _Exit(reading.got < count);
}

int main(int argc, char **argv) {
    if (argc >= 7 && !strcmp(argv[1], "produce")) return produce(argc, argv);
    if (argc >= 6 && !strcmp(argv[1], "consume")) return consume(argc, argv);
    if (argc >= 7 && !strcmp(argv[1], "e2e")) return end_to_end(argc, argv);
    fprintf(stderr, "usage: rdload produce|consume|e2e ...\n");
    return 2;
}
