// Load for proxies of Kafka's protocol. It knows frames (size, key, version, correlation id) and nothing else of Kafka:
// what it sends and answers is read from files, which run.py makes with kproxy's own encoder.
//
//   load mock  PORT ANSWERS                       a broker stand-in: answers each request by key and version
//   load run   PORT FRAME SECONDS IN_FLIGHT CONNS the frame over and over, IN_FLIGHT of them on each of CONNS connections
//   load conns PORT FRAME SECONDS THREADS         connect, one exchange, close, as fast as possible
//   load idle  PORT FRAME COUNT                   COUNT connections, one exchange each, then silence until stdin ends
//   load storm PORT FRAME COUNT                   COUNT connections begun at once, one exchange each; then all are closed
//   load open  PORT FRAME SECONDS RATE CONNS      RATE frames a second in all, sent when they are due, answered or not
//
// ANSWERS: int16 key, int16 version, int32 length, then a whole response with its size field; again and again.
// FRAME: a whole request with its size field. Correlation ids are set when sending and checked when receiving.
// Each mode prints one line of JSON: {"n": exchanges, "bad": failures, "seconds": ..., "p50": us, "p99": us, "p999": us}
// Latencies of `open` count from when a frame was due, not from when it could be sent: a stall is paid by all that were
// due meanwhile (no coordinated omission). Its first tenth is not counted.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 12, BUFFER = 1 << 18, MOST_ANSWERS = 512, MOST_SAMPLES = 1 << 20, MOST_THREADS = 256 };

// ---- bytes

static uint32_t get32(const char *p) {
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

static int get16(const char *p) { return (uint8_t)p[0] << 8 | (uint8_t)p[1]; }

static void put32(char *p, uint32_t v) {
    p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static char *read_file(const char *name, size_t *length) {
    FILE *file = fopen(name, "rb");
    if (!file) { perror(name); exit(1); }
    fseek(file, 0, SEEK_END);
    *length = ftell(file);
    rewind(file);
    char *data = malloc(*length + 1);
    if (fread(data, 1, *length, file) != *length) { perror(name); exit(1); }
    fclose(file);
    return data;
}

// ---- sockets

typedef struct { int fd; size_t pos, end; char data[BUFFER]; } Reader;

static int send_all(int fd, const char *data, size_t length) {
    while (length) {
        ssize_t done = send(fd, data, length, MSG_NOSIGNAL);
        if (done <= 0) return -1;
        data += done, length -= done;
    }
    return 0;
}

// Takes `length` bytes, into `to` if that is not NULL. -1 at the end of the stream.
static int take(Reader *r, char *to, size_t length) {
    while (length) {
        if (r->pos == r->end) {
            ssize_t got = recv(r->fd, r->data, BUFFER, 0);
            if (got <= 0) return -1;
            r->pos = 0, r->end = got;
        }
        size_t some = r->end - r->pos < length ? r->end - r->pos : length;
        if (to) { memcpy(to, r->data + r->pos, some); to += some; }
        r->pos += some, length -= some;
    }
    return 0;
}

static struct sockaddr_in local(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = local(port);
    if (connect(fd, (void *)&address, sizeof address)) { close(fd); return -1; }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

// One response, whose correlation id must be `wanted`. 0 if so.
static int answered(Reader *r, uint32_t wanted) {
    char head[8];
    if (take(r, head, 8) || get32(head + 4) != wanted) return -1;
    return take(r, NULL, get32(head) - 4);
}

// ---- mock: a thread per connection

static struct { int key, version; uint32_t length; char *data; } answers[MOST_ANSWERS];
static int answer_count;

static void *serve(void *argument) {
    Reader *r = calloc(1, sizeof *r);
    r->fd = (int)(intptr_t)argument;
    int one = 1;
    setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char head[HEAD], correlated[BUFFER];
    while (!take(r, head, HEAD) && !take(r, NULL, get32(head) - 8)) {
        int i = 0;
        while (i < answer_count && (answers[i].key != get16(head + 4) || answers[i].version != get16(head + 6))) i++;
        if (i == answer_count) { fprintf(stderr, "no answer for key %d version %d\n", get16(head + 4), get16(head + 6)); break; }
        uint32_t first = answers[i].length < BUFFER ? answers[i].length : BUFFER;
        memcpy(correlated, answers[i].data, first);
        memcpy(correlated + 4, head + 8, 4);
        if (send_all(r->fd, correlated, first)) break;
        if (send_all(r->fd, answers[i].data + first, answers[i].length - first)) break;
    }
    close(r->fd);
    free(r);
    return NULL;
}

static int mock(int port, const char *file) {
    size_t length, pos = 0;
    char *data = read_file(file, &length);
    for (; pos < length && answer_count < MOST_ANSWERS; answer_count++) {
        uint32_t size = get32(data + pos + 4);
        answers[answer_count].key = get16(data + pos), answers[answer_count].version = get16(data + pos + 2);
        answers[answer_count].length = size, answers[answer_count].data = data + pos + 8;
        pos += 8 + size;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = local(port);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) { perror("mock"); return 1; }
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 2 * BUFFER);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        if (fd >= 0 && pthread_create(&thread, &detached, serve, (void *)(intptr_t)fd)) close(fd);
    }
}

// ---- clients: a thread per connection

typedef struct {
    int port, in_flight;
    double start, end, every;  // `every`: seconds between two frames of this client, in the mode open
    char *frame;
    size_t length;
    uint32_t good, bad, samples;
    float *latency;
} Client;

static void *stream(void *argument) {
    Client *c = argument;
    Reader *r = calloc(1, sizeof *r);
    double *started = calloc(c->in_flight, sizeof *started), t = now();
    char *frame = malloc(c->length);
    memcpy(frame, c->frame, c->length);
    uint32_t sent = 0, got = 0;
    r->fd = dial(c->port);
    while (r->fd >= 0) {
        for (; t < c->end && sent - got < (uint32_t)c->in_flight; sent++) {
            put32(frame + 8, sent);
            started[sent % c->in_flight] = now();
            if (send_all(r->fd, frame, c->length)) { c->bad++; break; }
        }
        if (sent == got) break;
        if (answered(r, got)) { c->bad++; break; }
        t = now();
        if (c->samples < MOST_SAMPLES) c->latency[c->samples++] = (t - started[got % c->in_flight]) * 1e6;
        got++;
    }
    if (r->fd < 0) c->bad++; else close(r->fd);
    c->good = got;
    free(r);
    return NULL;
}

static void *reconnect(void *argument) {
    Client *c = argument;
    Reader *r = calloc(1, sizeof *r);
    while (now() < c->end) {
        r->fd = dial(c->port), r->pos = r->end = 0;
        if (r->fd < 0) { c->bad++; usleep(1000); continue; }
        if (send_all(r->fd, c->frame, c->length) || answered(r, get32(c->frame + 8))) c->bad++; else c->good++;
        close(r->fd);
    }
    free(r);
    return NULL;
}

// Frames when they are due; answers are taken while waiting for the next one.
static void *due(void *argument) {
    Client *c = argument;
    Reader *r = calloc(1, sizeof *r);
    char *frame = malloc(c->length);
    memcpy(frame, c->frame, c->length);
    uint32_t sent = 0, got = 0, total = (c->end - c->start) / c->every;
    prctl(PR_SET_TIMERSLACK, 1000);  // ns
    r->fd = dial(c->port);
    while (r->fd >= 0 && got < total) {
        double next = c->start + sent * c->every, wait = next - now();
        if (sent < total && wait <= 0) {
            put32(frame + 8, sent++);
            if (send_all(r->fd, frame, c->length)) { c->bad++; break; }
            continue;
        }
        if (sent == total) wait = 10;
        struct timespec nap = {(time_t)wait, (long)((wait - (time_t)wait) * 1e9)};
        struct pollfd one = {r->fd, POLLIN, 0};
        int ready = ppoll(&one, 1, &nap, NULL);
        if (ready < 0 && errno != EINTR) break;
        if (ready == 0 && sent == total) { c->bad += total - got; break; }
        if (ready <= 0) continue;
        do {
            if (answered(r, got)) { c->bad++; goto end; }
            if (got >= total / 10 && c->samples < MOST_SAMPLES)
                c->latency[c->samples++] = (now() - (c->start + got * c->every)) * 1e6;
            got++;
        } while (r->pos < r->end);
    }
end:
    if (r->fd < 0) c->bad++; else close(r->fd);
    c->good = got;
    free(r);
    return NULL;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The line of JSON; `us` are latencies, in any order.
static int print(uint64_t good, uint64_t bad, double seconds, float *us, size_t n) {
    qsort(us, n, sizeof *us, ascending);
    printf("{\"n\": %lu, \"bad\": %lu, \"seconds\": %.4f, \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}\n", good, bad, seconds,
           n ? us[n / 2] : 0, n ? us[(size_t)(n * .99)] : 0, n ? us[(size_t)(n * .999)] : 0);
    return 0;
}

static int load(void *(*kind)(void *), int port, const char *file, double seconds, int in_flight, double rate, int threads) {
    static Client clients[MOST_THREADS];
    static pthread_t ids[MOST_THREADS];
    size_t length;
    char *frame = read_file(file, &length);
    if (threads > MOST_THREADS) return 64;
    double start = now();
    for (int i = 0; i < threads; i++) {
        clients[i] = (Client){.port = port, .in_flight = in_flight, .end = start + seconds, .frame = frame, .length = length};
        clients[i].start = start + (rate > 0 ? i / rate : 0), clients[i].every = rate > 0 ? threads / rate : 0;
        clients[i].latency = malloc(MOST_SAMPLES * sizeof(float));
        pthread_create(ids + i, NULL, kind, clients + i);
    }
    uint64_t good = 0, bad = 0;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL), good += clients[i].good, bad += clients[i].bad;
    double taken = now() - start;
    size_t n = 0;
    for (int i = 0; i < threads; i++) n += clients[i].samples;
    float *latency = malloc((n + 1) * sizeof *latency), *to = latency;
    for (int i = 0; i < threads; to += clients[i++].samples)
        memcpy(to, clients[i].latency, clients[i].samples * sizeof *latency);
    return print(good, bad, taken, latency, n);
}

static int idle(int port, const char *file, int count) {
    size_t length;
    char *frame = read_file(file, &length);
    Reader *r = calloc(1, sizeof *r);
    double start = now();
    int bad = 0;
    for (int i = 0; i < count; i++) {
        r->fd = dial(port), r->pos = r->end = 0;
        if (r->fd < 0 || send_all(r->fd, frame, length) || answered(r, get32(frame + 8))) bad++;
    }
    printf("{\"n\": %d, \"bad\": %d, \"seconds\": %.4f}\n", count - bad, bad, now() - start);
    fflush(stdout);
    while (read(0, r->data, BUFFER) > 0) {}
    return 0;
}

// Why a connection of the storm has failed.
static void failed(int number, const char *what, int error) {
    fprintf(stderr, "connection %d: %s: %s\n", number, what, error ? strerror(error) : "the stream has ended");
}

static int error_of(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

static int storm(int port, const char *file, int count) {
    size_t length;
    char *frame = read_file(file, &length);
    char *data = malloc(BUFFER);
    float *us = calloc(count, sizeof *us);
    double start = now();
    int *fds = calloc(count, sizeof *fds), epoll = epoll_create1(0), good = 0, bad = 0;
    size_t *have = calloc(count, sizeof *have), *wanted = calloc(count, sizeof *wanted);
    uint32_t *sizes = calloc(count, sizeof *sizes);
    struct sockaddr_in address = local(port);
    for (int i = 0; i < count; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct epoll_event event = {.events = EPOLLOUT, .data.u32 = i};
        if (fds[i] < 0 || (connect(fds[i], (void *)&address, sizeof address) && errno != EINPROGRESS)) {
            failed(i, "connect", errno), bad++;
            continue;
        }
        epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
    }
    while (good + bad < count) {
        struct epoll_event events[256];
        int n = epoll_wait(epoll, events, 256, 30000);
        if (n <= 0) { failed(-1, "30 s without a word", errno), bad = count - good; break; }
        for (int e = 0; e < n; e++) {
            int i = events[e].data.u32, fd = fds[i];
            ssize_t got = -1;
            if (!wanted[i]) {  // not connected until now
                struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
                errno = error_of(fd);
                if (!errno && send(fd, frame, length, MSG_NOSIGNAL) == (ssize_t)length) {
                    wanted[i] = 4;  // bytes of the answer's size, then all of it
                    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
                    continue;
                }
                failed(i, "connecting", errno);
            } else {
                if (have[i] < 4) got = recv(fd, data, 4 - have[i], 0);
                else got = recv(fd, data + 4, wanted[i] - have[i] < BUFFER - 4 ? wanted[i] - have[i] : BUFFER - 4, 0);
                if (got > 0 && have[i] < 4) {
                    for (ssize_t k = 0; k < got; k++) sizes[i] = sizes[i] << 8 | (uint8_t)data[k];
                }
                if (got > 0) have[i] += got;
                if (got > 0 && have[i] == 4) wanted[i] = 4 + sizes[i];
                if (got > 0 && have[i] < wanted[i]) continue;
                if (got > 0) us[good++] = (now() - start) * 1e6;
                else failed(i, have[i] ? "in the middle of the answer" : "waiting for the answer", got ? errno : 0);
            }
            bad += got <= 0;
            epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
        }
    }
    return print(good, bad, now() - start, us, good);
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    if (count == 4 && !strcmp(words[1], "mock")) return mock(atoi(words[2]), words[3]);
    if (count == 7 && !strcmp(words[1], "run"))
        return load(stream, atoi(words[2]), words[3], atof(words[4]), atoi(words[5]), 0, atoi(words[6]));
    if (count == 6 && !strcmp(words[1], "conns"))
        return load(reconnect, atoi(words[2]), words[3], atof(words[4]), 1, 0, atoi(words[5]));
    if (count == 7 && !strcmp(words[1], "open"))
        return load(due, atoi(words[2]), words[3], atof(words[4]), 1, atof(words[5]), atoi(words[6]));
    if (count == 5 && !strcmp(words[1], "idle")) return idle(atoi(words[2]), words[3], atoi(words[4]));
    if (count == 5 && !strcmp(words[1], "storm")) return storm(atoi(words[2]), words[3], atoi(words[4]));
    fprintf(stderr, "see the top of load.c\n");
    return 64;
}
