/* A byte to another process and back. */
#define _GNU_SOURCE
#include "bench.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time n round trips: ours are in[0] and out[1], the other process's in[1] and out[0]. */
static double round_trips(long n, const int in[2], const int out[2]) {
    char byte = 0;
    pid_t child = fork();
    must(child >= 0, "fork");
    if (!child) {
        for (long i = 0; i <= n; i++)
            if (read(out[0], &byte, 1) != 1 || write(in[1], &byte, 1) != 1) _exit(1);
        _exit(0);
    }
    double start = 0;
    for (long i = 0; i <= n; i++) {
        /* The first only waits for the other process to be there. */
        if (i == 1) start = now();
        must(write(out[1], &byte, 1) == 1 && read(in[0], &byte, 1) == 1, "round trip");
    }
    double took = now() - start;
    waitpid(child, NULL, 0);
    return took;
}

double pipe_round_trip(long n) {
    int in[2], out[2];
    must(!pipe(in) && !pipe(out), "pipe");
    double took = round_trips(n, in, out);
    for (int i = 0; i < 2; i++) close(in[i]), close(out[i]);
    return took;
}

static double over_sockets(long n, int ours, int theirs) {
    int in[2] = {ours, theirs}, out[2] = {theirs, ours};
    double took = round_trips(n, in, out);
    close(ours), close(theirs);
    return took;
}

double unix_round_trip(long n) {
    int pair[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
    return over_sockets(n, pair[0], pair[1]);
}

double tcp_round_trip(long n) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int on = 1, door = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0);
    must(door >= 0 && ours >= 0, "socket");
    must(!bind(door, (struct sockaddr *)&address, sizeof address), "bind");
    must(!listen(door, 1), "listen");
    must(!getsockname(door, (struct sockaddr *)&address, &length), "getsockname");
    must(!connect(ours, (struct sockaddr *)&address, sizeof address), "connect to 127.0.0.1");
    int theirs = accept(door, NULL, NULL);
    must(theirs >= 0, "accept");
    setsockopt(ours, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(theirs, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(door);
    return over_sockets(n, ours, theirs);
}
