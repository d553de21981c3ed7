// A service that a shell's command in the file "command" starts, and a client of it that keeps one connection: what is
// in the file "request" is sent, and what comes begins with what is in the file "reply", and is as long each time.
#include "check.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

static char request[1024], reply[1024];

static void load(const char *name, char *text) {
    int file = open(name, O_RDONLY);
    check(file >= 0 && read(file, text, 1023) > 0, name);
    close(file);
}
static ssize_t ask(int connection) {
    char found[65536];
    check(send(connection, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request), "ask");
    ssize_t have = 0;
    // The answer ends where no more comes for a while.
    for (struct pollfd polled = {connection, POLLIN, 0}; poll(&polled, 1, have ? 200 : 10000) == 1;) {
        ssize_t more = recv(connection, found + have, sizeof found - (size_t)have, 0);
        check(more > 0, "the connection is there");
        have += more;
    }
    check(have >= (ssize_t)strlen(reply) && memcmp(found, reply, strlen(reply)) == 0, "reply");
    return have;
}

int main(int argc, char **argv) {
    static char command[1024];
    begin(argc, argv);
    load("command", command); load("request", request); load("reply", reply);
    if (fork() == 0) { signal(SIGUSR1, SIG_DFL); execl("/bin/sh", "sh", "-c", command, (char *)0); _exit(1); }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8080), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int connection = -1;
    for (int tries = 0; tries < 1000 && connection < 0; tries++) {
        connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, (void *)&to, sizeof to)) { close(connection); connection = -1; usleep(10000); }
    }
    check(connection >= 0, "connect");
    ssize_t length = ask(connection);
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        check(ask(connection) == length, "as long as before");
        say("ok\n");
    }
}
