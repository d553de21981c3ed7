// A connection with somebody who stays where he is: "here" listens and never moves, "there" is moved.
#include "check.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

static void take(int made, const char *expected) {
    char text[64] = {0};
    size_t have = 0, length = strlen(expected);
    while (have < length) {
        struct pollfd polled = {made, POLLIN, 0};
        check(poll(&polled, 1, 10000) == 1, "something arrives");
        ssize_t more = recv(made, text + have, length - have, 0);
        check(more > 0, "it goes on");
        have += (size_t)more;
    }
    check(memcmp(text, expected, length) == 0, "what was sent arrives");
}
static void give(int made, const char *text) { check(send(made, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text), "send"); }
static int is_at_end(int made) {
    struct pollfd polled = {made, POLLRDHUP, 0};
    return poll(&polled, 1, 10000) == 1;
}

int main(int argc, char **argv) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(8080), .sin6_addr = in6addr_loopback};
    int is_here = argc == 3 && strcmp(argv[2] + strlen(argv[2]) - 4, "here") == 0, ends[3], one = 1;
    begin(argc, argv);
    if (is_here) {
        int listener = socket(AF_INET6, SOCK_STREAM, 0);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        check(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 3) == 0, "listen");
        say("listens\n");
        for (int end = 0; end < 3; end++) ends[end] = accept(listener, 0, 0);
        // One goes on, one is closed, and of one this half is.
        take(ends[0], "hello from there");
        give(ends[0], "hello from here");
        give(ends[1], "farewell");
        close(ends[1]);
        shutdown(ends[2], SHUT_WR);
        say("ready\n");
        for (;;) {
            wait_to_be_told();
            take(ends[0], "I have moved");
            give(ends[0], "so I hear");
            take(ends[2], "the other half");
            say("ok\n");
        }
    }
    for (int end = 0; end < 3; end++) {
        ends[end] = socket(AF_INET6, SOCK_STREAM, 0);
        check(connect(ends[end], (void *)&at, sizeof at) == 0, "connect");
    }
    give(ends[0], "hello from there");
    check(is_at_end(ends[1]) && is_at_end(ends[2]), "two are at an end");
    struct pollfd polled = {ends[0], POLLIN, 0};
    check(poll(&polled, 1, 10000) == 1, "something has arrived");
    usleep(100000);
    say("ready\n");
    for (int turn = 0;; turn++) {
        wait_to_be_told();
        if (turn == 0) { take(ends[0], "hello from here"); take(ends[1], "farewell"); } else take(ends[0], "so I hear");
        check(is_at_end(ends[1]) && recv(ends[1], &one, 1, 0) == 0, "the end stays");
        give(ends[0], "I have moved");
        check(is_at_end(ends[2]) && recv(ends[2], &one, 1, 0) == 0, "the half stays");
        give(ends[2], "the other half");
        say("ok\n");
    }
}
