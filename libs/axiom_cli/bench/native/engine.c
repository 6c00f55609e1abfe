/* A stand-in for engines: answers OpenAI requests at once, from fixed text, on many ports.
 *
 *   engine FIRST_PORT PORTS CHUNKS GAP_US
 *
 * One thread, one epoll. A request whose body has "stream": true gets CHUNKS server-sent events, one
 * each GAP_US, each written by itself; any other POST gets one JSON answer, a GET says it is well.
 * Only bodies with a Content-Length are understood; whatever else comes, its connection is closed.
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
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, READ_AT_ONCE = 1 << 16, REQUEST_MAX = 8 << 20 };

struct conn {
  int fd, is_listener, left;
  char *in;
  size_t used, room;
  uint64_t due_ns;
  struct conn *before, *after; /* among those that stream, by due_ns */
};

static const char ANSWER[] =
    "{\"id\":\"chatcmpl-0\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"bench\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello to you too.\"},"
    "\"logprobs\":null,\"finish_reason\":\"stop\"}],"
    "\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":6,\"total_tokens\":18}}";
static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":1700000000,"
    "\"owned_by\":\"vllm\",\"root\":\"bench\",\"parent\":null,\"max_model_len\":131072}]}";
static const char STREAM_HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n";
static const char EVENT[] = "data: {\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                            "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"
                            "\"logprobs\":null,\"finish_reason\":null}]}\n\n";
static const char LAST[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

static int poller, timer, chunks;
static uint64_t gap_ns;
static struct conn streams; /* head of the ring of those that stream */
static char event[512];
static size_t event_size, word_at;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int put(struct conn *c, const char *text, size_t size) {
  return send(c->fd, text, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -1;
}

static void leave_ring(struct conn *c) {
  if (c->before) {
    c->before->after = c->after;
    c->after->before = c->before;
    c->before = c->after = NULL;
  }
}

static void join_ring(struct conn *c, uint64_t due_ns) { /* each one waits as long: the last is due last */
  c->due_ns = due_ns;
  c->before = streams.before;
  c->after = &streams;
  streams.before->after = c;
  streams.before = c;
}

static void drop(struct conn *c) {
  leave_ring(c);
  close(c->fd);
  free(c->in);
  free(c);
}

static int answer(struct conn *c, const char *body, size_t size) {
  char out[1024];
  int head = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", size);
  memcpy(out + head, body, size);
  return put(c, out, (size_t)head + size);
}

static int says_stream(const char *body, size_t size) {
  const char *at = memmem(body, size, "\"stream\"", 8);
  if (!at) return 0;
  for (at += 8; at < body + size && (*at == ' ' || *at == ':'); at++) {}
  return at < body + size && *at == 't';
}

/* Serve what is whole in the buffer. -1: the connection is of no use any more. */
static int serve(struct conn *c) {
  while (c->used && !c->left) {
    char *end = memmem(c->in, c->used, "\r\n\r\n", 4);
    if (!end) return c->used > READ_AT_ONCE ? -1 : 0;
    *end = 0; /* the head is a string up to here */
    char *told = strcasestr(c->in, "\ncontent-length:");
    size_t head = (size_t)(end - c->in) + 4, body = told ? strtoul(told + 16, NULL, 10) : 0;
    int is_get = !strncmp(c->in, "GET ", 4);
    if (strcasestr(c->in, "\ntransfer-encoding:") || body > REQUEST_MAX) return -1;
    *end = '\r';
    if (c->used < head + body) return 0;
    int sent;
    if (is_get)
      sent = memmem(c->in, head, "/models", 7) ? answer(c, MODELS, sizeof MODELS - 1) : answer(c, "{}", 2);
    else if (says_stream(c->in + head, body)) {
      sent = put(c, STREAM_HEAD, sizeof STREAM_HEAD - 1);
      c->left = chunks;
      join_ring(c, now_ns() + gap_ns);
    } else
      sent = answer(c, ANSWER, sizeof ANSWER - 1);
    if (sent) return -1;
    c->used -= head + body;
    memmove(c->in, c->in + head + body, c->used);
  }
  return 0;
}

static void receive(struct conn *c) {
  if (c->room - c->used < READ_AT_ONCE) {
    c->room = c->room * 2 + READ_AT_ONCE;
    c->in = realloc(c->in, c->room);
  }
  ssize_t got = recv(c->fd, c->in + c->used, c->room - c->used, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return;
  c->used += got > 0 ? (size_t)got : 0;
  if (got <= 0 || c->used > REQUEST_MAX + READ_AT_ONCE || serve(c)) drop(c);
}

static void send_due(void) {
  uint64_t now = now_ns();
  while (streams.after != &streams && streams.after->due_ns <= now) {
    struct conn *c = streams.after;
    leave_ring(c);
    event[word_at] = (char)('a' + c->left % 26); /* a router may cut a stream that repeats itself */
    int sent = put(c, event, event_size);
    if (--c->left)
      join_ring(c, c->due_ns + gap_ns);
    else if (!sent)
      sent = put(c, LAST, sizeof LAST - 1);
    if (sent || serve(c)) drop(c);
  }
}

static void set_timer(void) {
  struct itimerspec at = {0};
  if (streams.after != &streams) {
    at.it_value.tv_sec = (time_t)(streams.after->due_ns / 1000000000u);
    at.it_value.tv_nsec = (long)(streams.after->due_ns % 1000000000u);
  }
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void watch(struct conn *c) {
  struct epoll_event what = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &what);
}

static void listen_on(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct conn *c = calloc(1, sizeof *c);
  int yes = 1;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  c->is_listener = 1;
  setsockopt(c->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(c->fd, (struct sockaddr *)&at, sizeof at) || listen(c->fd, 1024)) {
    perror("listen");
    exit(1);
  }
  watch(c);
}

static void take(int listener) {
  int fd, yes = 1;
  while ((fd = accept4(listener, NULL, NULL, 0)) >= 0) {
    struct conn *c = calloc(1, sizeof *c);
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    watch(c);
  }
}

int main(int count, char **args) {
  if (count != 5) return 2;
  signal(SIGPIPE, SIG_IGN);
  poller = epoll_create1(0);
  timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  chunks = atoi(args[3]);
  gap_ns = strtoull(args[4], NULL, 10) * 1000u;
  streams.before = streams.after = &streams;
  event_size = (size_t)snprintf(event, sizeof event, "%zx\r\n%s\r\n", sizeof EVENT - 1, EVENT);
  word_at = (size_t)(strstr(event, " word") - event) + 1;
  struct epoll_event found[EVENTS], on_time = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(poller, EPOLL_CTL_ADD, timer, &on_time);
  for (int i = 0; i < atoi(args[2]); i++) listen_on(atoi(args[1]) + i);
  for (;;) {
    int ready = epoll_wait(poller, found, EVENTS, -1), is_time = 0;
    for (int i = 0; i < ready; i++) {
      struct conn *c = found[i].data.ptr;
      if (!c)
        is_time = 1; /* last: what it drops may still be in `found` */
      else if (c->is_listener)
        take(c->fd);
      else
        receive(c);
    }
    if (is_time) {
      uint64_t ticks;
      if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) return 1;
    }
    send_due();
    set_timer();
  }
}
