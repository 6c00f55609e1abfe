/* Load on a router: keep-alive connections that post one body again and again, for a while.
 *
 *   load PORT BODY_FILE CONNECTIONS SECONDS RATE MODELS
 *
 * RATE 0: each connection posts again as soon as it has its answer. Else so many requests a second
 * fall due, and latency counts from when a request was due. Within the body the first "<NUMBER>" is
 * replaced by a number of the same width that no other request has, the first "<MODEL>" by one below
 * MODELS, drawn by chance. One thread, one epoll, loopback only. Prints one JSON object:
 *
 *   done, bad (not 200, or a lost connection), late (due while no connection was free), events
 *   (of server-sent events), seconds, and p50 and p99 of the time to the first and the last byte
 *   of a body, in ms.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, READ_AT_ONCE = 1 << 17, HEAD_MAX = 1 << 15, SAMPLES_MAX = 4 << 20 };
enum where { IDLE, HEAD, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER };
static const char DATA[] = "data:";
static const double GRACE_S = 60.0; /* for what is under way at the end */

struct conn {
  int fd, ok;
  enum where at;
  size_t head_used, left, unsent, line_used, matched;
  uint64_t due_ns, first_ns;
  char head[HEAD_MAX], line[24];
  char *out;
};

static int port, poller;
static size_t out_size;
static char *body, *number, *model;
static size_t body_size, number_width, model_width;
static unsigned models;
static uint64_t last_number, seed = 0x9e3779b97f4a7c15u;
static long sent, done, bad, late, events, samples;
static float *first_ms, *last_ms;
static struct conn *conns;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void dial(struct conn *c) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct epoll_event what = {.events = EPOLLIN, .data.ptr = c};
  int yes = 1;
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&at, sizeof at)) die("connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &what);
  c->at = IDLE;
}

static void fill(char *text, size_t width, uint64_t value) {
  for (size_t i = width; i--; value /= 10) text[i] = (char)('0' + value % 10);
}

static uint64_t chance(void) { /* xorshift64 */
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

static void push(struct conn *c) {
  while (c->unsent) {
    ssize_t put = send(c->fd, c->out + out_size - c->unsent, c->unsent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) break;
    c->unsent -= (size_t)put;
  }
  struct epoll_event what = {.events = EPOLLIN | (c->unsent ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &what);
}

static void post(struct conn *c, uint64_t due_ns) {
  size_t head = out_size - body_size;
  if (number) fill(c->out + head + (number - body), number_width, ++last_number);
  if (model) fill(c->out + head + (model - body), model_width, chance() % models);
  c->at = HEAD;
  c->head_used = c->line_used = c->matched = 0;
  c->first_ns = 0;
  c->due_ns = due_ns;
  c->unsent = out_size;
  sent++;
  ssize_t put = send(c->fd, c->out, out_size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (put > 0) c->unsent -= (size_t)put;
  if (c->unsent) push(c);
}

static void count_events(struct conn *c, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (!c->matched) {
      const char *next = memchr(text + i, DATA[0], size - i);
      if (!next) return;
      i = (size_t)(next - text);
      c->matched = 1;
    } else if (text[i] == DATA[c->matched]) {
      if (!DATA[++c->matched]) {
        events++;
        c->matched = 0;
      }
    } else
      c->matched = text[i] == DATA[0];
  }
}

/* Where the body begins in `text`, once the head is whole; else 0. */
static size_t read_head(struct conn *c, const char *text, size_t size) {
  size_t before = c->head_used, taken = size < HEAD_MAX - 1 - before ? size : HEAD_MAX - 1 - before;
  memcpy(c->head + before, text, taken);
  c->head_used += taken;
  c->head[c->head_used] = 0;
  char *end = strstr(c->head, "\r\n\r\n");
  if (!end) return 0;
  end[2] = 0;
  char *told = strcasestr(c->head, "\ncontent-length:");
  c->ok = !strncmp(c->head + 8, " 200", 4);
  if (!c->ok && !bad) fprintf(stderr, "%.120s\n", c->head);
  c->left = told ? strtoul(told + 16, NULL, 10) : 0;
  c->at = told ? SIZED : CHUNK_SIZE;
  return (size_t)(end - c->head) + 4 - before;
}

/* Whether the answer is whole. */
static int read_answer(struct conn *c, const char *text, size_t size) {
  size_t i = 0;
  if (c->at == HEAD) {
    i = read_head(c, text, size);
    if (!i) return 0;
  }
  if (!c->first_ns && i < size) c->first_ns = now_ns();
  if (c->at == SIZED) {
    size_t got = size - i < c->left ? size - i : c->left;
    c->left -= got;
    return !c->left;
  }
  while (i < size) {
    if (c->at == CHUNK) {
      size_t got = size - i < c->left ? size - i : c->left;
      count_events(c, text + i, got);
      i += got;
      c->left -= got;
      if (!c->left) c->at = CHUNK_END;
      continue;
    }
    char one = text[i++];
    if (one != '\n') {
      if (one != '\r' && c->line_used < sizeof c->line - 1) c->line[c->line_used++] = one;
      continue;
    }
    c->line[c->line_used] = 0;
    size_t length = c->line_used;
    c->line_used = 0;
    if (c->at == CHUNK_END)
      c->at = CHUNK_SIZE;
    else if (c->at == TRAILER) {
      if (!length) return 1;
    } else {
      c->left = strtoul(c->line, NULL, 16);
      c->at = c->left ? CHUNK : TRAILER;
    }
  }
  return 0;
}

static void note(struct conn *c) {
  uint64_t now = now_ns();
  done++;
  if (!c->ok) bad++;
  if (samples < SAMPLES_MAX) {
    first_ms[samples] = (float)((double)((c->first_ns ? c->first_ns : now) - c->due_ns) / 1e6);
    last_ms[samples++] = (float)((double)(now - c->due_ns) / 1e6);
  }
  c->at = IDLE;
}

static void receive(struct conn *c) {
  static char text[READ_AT_ONCE];
  for (;;) {
    ssize_t got = recv(c->fd, text, sizeof text, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      int was_asked = c->at != IDLE;
      close(c->fd);
      dial(c);
      if (was_asked) {
        c->ok = 0;
        note(c);
      }
      return;
    }
    if (c->at != IDLE && read_answer(c, text, (size_t)got)) note(c);
    if ((size_t)got < sizeof text) return;
  }
}

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static double at_share(float *values, double share) {
  if (!samples) return 0;
  qsort(values, (size_t)samples, sizeof *values, by_value);
  return values[(long)(share * (double)(samples - 1) + 0.5)];
}

static char *mark(const char *what, size_t *width) {
  char *found = memmem(body, body_size, what, strlen(what));
  *width = strlen(what);
  return found;
}

static void read_body(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) die(path);
  body = malloc(8 << 20);
  body_size = fread(body, 1, 8 << 20, file);
  fclose(file);
  number = mark("<NUMBER>", &number_width);
  model = mark("<MODEL>", &model_width);
}

static void make_requests(int count) {
  char head[256];
  int size = snprintf(head, sizeof head,
                      "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                      "Accept: */*\r\nContent-Length: %zu\r\n\r\n",
                      port, body_size);
  out_size = (size_t)size + body_size;
  conns = calloc((size_t)count, sizeof *conns);
  for (int i = 0; i < count; i++) {
    conns[i].out = malloc(out_size);
    memcpy(conns[i].out, head, (size_t)size);
    memcpy(conns[i].out + size, body, body_size);
    dial(&conns[i]);
  }
}

int main(int count, char **args) {
  if (count != 7) return 2;
  signal(SIGPIPE, SIG_IGN);
  port = atoi(args[1]);
  int connections = atoi(args[3]);
  double seconds = atof(args[4]), rate = atof(args[5]);
  models = (unsigned)atoi(args[6]);
  if (models < 1) models = 1;
  poller = epoll_create1(0);
  first_ms = malloc(SAMPLES_MAX * sizeof *first_ms);
  last_ms = malloc(SAMPLES_MAX * sizeof *last_ms);
  last_number = (uint64_t)getpid() % 1000 * 100000;
  read_body(args[2]);
  make_requests(connections);
  uint64_t begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9), give_up = end + (uint64_t)(GRACE_S * 1e9);
  uint64_t gap = rate > 0 ? (uint64_t)(1e9 / rate) : 0, due = begin;
  int turn = 0;
  for (;;) {
    uint64_t now = now_ns();
    if (now >= give_up || (now >= end && done == sent)) break;
    int wait = 100;
    if (!gap) {
      for (int i = 0; i < connections && now < end; i++)
        if (conns[i].at == IDLE) post(&conns[i], now);
    } else {
      for (; due <= now && due < end; due += gap) {
        int tried = 0;
        while (tried < connections && conns[turn].at != IDLE) {
          turn = (turn + 1) % connections;
          tried++;
        }
        if (tried == connections) {
          late++;
          continue;
        }
        post(&conns[turn], due);
        turn = (turn + 1) % connections;
      }
      wait = due < end ? (int)((due - now) / 1000000u) : wait;
    }
    struct epoll_event found[EVENTS];
    int ready = epoll_wait(poller, found, EVENTS, wait);
    for (int i = 0; i < ready; i++) {
      struct conn *c = found[i].data.ptr;
      if (found[i].events & EPOLLOUT) push(c);
      if (found[i].events & ~(uint32_t)EPOLLOUT) receive(c);
    }
  }
  double took = (double)(now_ns() - begin) / 1e9;
  bad += sent - done; /* what never came to its end */
  printf("{\"done\":%ld,\"bad\":%ld,\"late\":%ld,\"events\":%ld,\"seconds\":%.3f,", done, bad, late, events, took);
  printf("\"first_byte_ms_p50\":%.4f,\"first_byte_ms_p99\":%.4f,", at_share(first_ms, 0.5), at_share(first_ms, 0.99));
  printf("\"p50_ms\":%.4f,\"p99_ms\":%.4f}\n", at_share(last_ms, 0.5), at_share(last_ms, 0.99));
}
