// TCP connections in the states that follow the end of one side, with more in their queues than the other side has room
// for: the end waits behind what was never sent. The states of both ends are those that the kernel says.
#include "check.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum { PLAIN, ENDED, BOTH, CROSSED, LAST, HALF, COUNT };
static const char *names[] = {"established", "the end waits", "both ends wait", "the ends cross", "the last end waits", "half closed"};
// What the first end has to be, and the second.
static const unsigned states[COUNT][2] = {
    {TCP_ESTABLISHED, TCP_ESTABLISHED}, {TCP_FIN_WAIT1, TCP_ESTABLISHED}, {TCP_FIN_WAIT1, TCP_FIN_WAIT1},
    {TCP_CLOSING, TCP_FIN_WAIT2}, {TCP_LAST_ACK, TCP_FIN_WAIT2}, {TCP_FIN_WAIT2, TCP_CLOSE_WAIT}};
static int ends[2][COUNT][2], listener[2];
static size_t sent[2][COUNT][2];
static unsigned char bytes[4 << 20];

static unsigned state(int made) {
    struct tcp_info info;
    socklen_t size = sizeof info;
    check(getsockopt(made, IPPROTO_TCP, TCP_INFO, &info, &size) == 0, "state");
    return info.tcpi_state;
}
static int is_in(int made, unsigned wanted) {
    for (int tries = 0; tries < 5000 && state(made) != wanted; tries++) usleep(1000);
    return state(made) == wanted;
}
// Send until nothing more goes.
static size_t stuff(int made, size_t least) {
    size_t done = 0;
    for (int idle = 0; idle < 20 && done < sizeof bytes; idle++) {
        ssize_t more = send(made, bytes + done, sizeof bytes - done, MSG_DONTWAIT);
        if (more > 0) { done += (size_t)more; idle = 0; }
        usleep(2000);
    }
    check(done > least, "enough");
    return done;
}
static void take(int made, size_t count, const char *what) {
    static unsigned char found[4 << 20];
    size_t have = 0;
    while (have < count) {
        struct pollfd polled = {made, POLLIN, 0};
        check(poll(&polled, 1, 20000) == 1, what);
        ssize_t more = recv(made, found + have, count - have, 0);
        check(more > 0, what);
        have += (size_t)more;
    }
    check(memcmp(bytes, found, count) == 0, what);
}
// Nothing comes any more.
static void is_over(int made, const char *what) {
    struct pollfd polled = {made, POLLIN, 0};
    char byte;
    check(poll(&polled, 1, 20000) == 1 && recv(made, &byte, 1, 0) == 0, what);
}

static void begin_one(int at, int kind) {
    int *pair = ends[at][kind];
    struct sockaddr_storage to;
    socklen_t size = sizeof to;
    check(getsockname(listener[at], (void *)&to, &size) == 0, "name");
    pair[0] = socket(to.ss_family, SOCK_STREAM, 0);
    check(connect(pair[0], (void *)&to, size) == 0, "connect");
    pair[1] = accept(listener[at], 0, 0);
    check(pair[1] >= 0, "accept");
    sent[at][kind][0] = sent[at][kind][1] = 0;
    if (kind == LAST) {
        shutdown(pair[1], SHUT_WR);
        check(is_in(pair[0], TCP_CLOSE_WAIT), "half closed");
    }
    if (kind != HALF) sent[at][kind][0] = stuff(pair[0], 100000);
    if (kind == PLAIN || kind == BOTH) sent[at][kind][1] = stuff(pair[1], 100000);
    if (kind != PLAIN) shutdown(pair[0], SHUT_WR);
    if (kind == BOTH || kind == CROSSED) shutdown(pair[1], SHUT_WR);
}
static void end_one(int at, int kind) {
    int *pair = ends[at][kind];
    for (int end = 0; end < 2; end++) {
        char text[64];
        snprintf(text, sizeof text, "%s: end %d is in state %u", names[kind], end, state(pair[end]));
        check(is_in(pair[end], states[kind][end]), text);
    }
    for (int end = 0; end < 2; end++) if (sent[at][kind][end]) take(pair[!end], sent[at][kind][end], names[kind]);
    if (kind != PLAIN) is_over(pair[1], names[kind]);
    if (kind == BOTH || kind == CROSSED || kind == LAST) is_over(pair[0], names[kind]);
    if (kind == HALF || kind == ENDED) {
        char byte = 0;
        check(send(pair[1], "y", 1, 0) == 1 && recv(pair[0], &byte, 1, 0) == 1 && byte == 'y', "the other half");
    }
    close(pair[0]); close(pair[1]);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (unsigned char)((at * 2654435761u + 3) >> 13);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    listener[0] = socket(AF_INET, SOCK_STREAM, 0);
    listener[1] = socket(AF_INET6, SOCK_STREAM, 0);
    check(bind(listener[0], (void *)&four, sizeof four) == 0 && bind(listener[1], (void *)&six, sizeof six) == 0, "bind");
    check(listen(listener[0], 5) == 0 && listen(listener[1], 5) == 0, "listen");
    for (int turn = 0;; turn++) {
        for (int at = 0; at < 2; at++) for (int kind = 0; kind < COUNT; kind++) begin_one(at, kind);
        for (int at = 0; at < 2; at++) for (int kind = 0; kind < COUNT; kind++)
            for (int end = 0; end < 2; end++) check(is_in(ends[at][kind][end], states[kind][end]), names[kind]);
        say(turn == 0 ? "ready\n" : "ok\n");
        wait_to_be_told();
        for (int at = 0; at < 2; at++) for (int kind = 0; kind < COUNT; kind++) end_one(at, kind);
    }
}
