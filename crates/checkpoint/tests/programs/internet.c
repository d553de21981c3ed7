// TCP and UDP sockets of IPv4 and IPv6, with something in their queues, and ends that are half closed.
#include "check.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

static socklen_t size;
static struct sockaddr_storage address(int family, int port) {
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    struct sockaddr_in *four = (void *)&address;
    struct sockaddr_in6 *six = (void *)&address;
    if (family == AF_INET) { four->sin_port = htons(port); four->sin_addr.s_addr = htonl(INADDR_LOOPBACK); size = sizeof *four; }
    else { six->sin6_port = htons(port); six->sin6_addr = in6addr_loopback; size = sizeof *six; }
    return address;
}
static int listening(int family, int port, int protocol) {
    struct sockaddr_storage at = address(family, port);
    int one = 1, made = socket(family, SOCK_STREAM, protocol);
    if (made < 0 && protocol) return -1;
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(made, (void *)&at, size) == 0 && listen(made, 7) == 0, "listen");
    return made;
}
static void pair(int family, int port, int listener, int ends[2]) {
    struct sockaddr_storage to = address(family, port);
    ends[0] = socket(family, SOCK_STREAM, 0);
    check(connect(ends[0], (void *)&to, size) == 0, "connect");
    ends[1] = accept(listener, 0, 0);
    check(ends[1] >= 0, "accept");
}
static int number(int made, int level, int name) {
    int value = -7;
    socklen_t bytes = sizeof value;
    check(getsockopt(made, level, name, &value, &bytes) == 0, "option");
    return value;
}
static int port_of(int made, int is_peer) {
    struct sockaddr_storage found;
    socklen_t bytes = sizeof found;
    check((is_peer ? getpeername : getsockname)(made, (void *)&found, &bytes) == 0, "name");
    return ntohs(((struct sockaddr_in *)&found)->sin_port);
}
// Some bytes that are not all the same.
static void fill(unsigned char *bytes, size_t count, unsigned seed) {
    for (size_t at = 0; at < count; at++) bytes[at] = (unsigned char)((at * 2654435761u + seed) >> 13);
}
// Wait until so many bytes have arrived, as they were sent by fill(), and take them.
static void take(int made, size_t count, unsigned seed, const char *what) {
    static unsigned char expected[4 << 20], found[4 << 20];
    size_t have = 0;
    fill(expected, count, seed);
    while (have < count) {
        struct pollfd polled = {made, POLLIN, 0};
        check(poll(&polled, 1, 10000) == 1, "something arrives");
        ssize_t more = recv(made, found + have, count - have, 0);
        check(more > 0, what);
        have += (size_t)more;
    }
    check(memcmp(expected, found, count) == 0, what);
    check(recv(made, found, 1, MSG_DONTWAIT | MSG_PEEK) <= 0, what);
}
// Send as much as there is room for, without waiting.
static size_t stuff(int made, unsigned seed) {
    static unsigned char bytes[4 << 20];
    fill(bytes, sizeof bytes, seed);
    size_t sent = 0;
    for (int tries = 0; tries < 20 && sent < sizeof bytes; tries++) {
        ssize_t more = send(made, bytes + sent, sizeof bytes - sent, MSG_DONTWAIT);
        if (more > 0) sent += (size_t)more;
        usleep(2000);
    }
    return sent;
}

// Connections that nobody has accepted, one that nobody answers, one that both ends have closed, and datagrams that
// nobody has received.
static int waiting[2], clients[2][2], late[2], left[2], over[2][2], box[2], sender[2], open_box[2];
static void begin_waiting(int at, int family, int port) {
    waiting[at] = listening(family, port, 0);
    check(listen(waiting[at], 1) == 0, "listen again");
    struct sockaddr_storage to = address(family, port), here;
    for (int one = 0; one < 2; one++) {
        clients[at][one] = socket(family, SOCK_STREAM, 0);
        check(connect(clients[at][one], (void *)&to, size) == 0, "connect, and wait");
    }
    // There is no room for more: this one goes on asking.
    late[at] = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    check(connect(late[at], (void *)&to, size) == -1 && errno == EINPROGRESS, "be late");
    int listener = listening(family, port + 1, 0), gone[2];
    pair(family, port + 1, listener, over[at]);
    check(send(over[at][0], "last words", 10, 0) == 10, "send");
    shutdown(over[at][0], SHUT_WR);
    shutdown(over[at][1], SHUT_WR);
    // The other end is closed, and nobody has it any more.
    pair(family, port + 1, listener, gone);
    check(send(gone[1], "farewell", 8, 0) == 8, "send");
    close(gone[1]);
    left[at] = gone[0];
    close(listener);
    here = address(family, port + 2);
    box[at] = socket(family, SOCK_DGRAM, 0);
    sender[at] = socket(family, SOCK_DGRAM, 0);
    check(bind(box[at], (void *)&here, size) == 0, "UDP");
    struct sockaddr_storage from = address(family, port + 3);
    check(bind(sender[at], (void *)&from, size) == 0, "UDP");
    static char large[40000];
    check(sendto(sender[at], "first", 5, 0, (void *)&here, size) == 5, "UDP is sent");
    check(sendto(sender[at], large, sizeof large, 0, (void *)&here, size) == sizeof large, "UDP is sent");
    check(sendto(sender[at], "third", 5, 0, (void *)&here, size) == 5, "UDP is sent");
    // What came before it was connected with somebody else stays.
    struct sockaddr_storage other = address(family, 9);
    check(connect(box[at], (void *)&other, size) == 0, "connect UDP");
    here = address(family, port + 4);
    struct sockaddr_storage all = here;
    if (family == AF_INET) ((struct sockaddr_in *)&all)->sin_addr.s_addr = 0; else ((struct sockaddr_in6 *)&all)->sin6_addr = in6addr_any;
    open_box[at] = socket(family, SOCK_DGRAM, 0);
    check(bind(open_box[at], (void *)&all, size) == 0 && sendto(sender[at], "to all", 6, 0, (void *)&here, size) == 6, "UDP for all");
}
static void arrives(int made, const char *text, size_t bytes, int port) {
    static char found[65536];
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    ssize_t got = recvfrom(made, found, sizeof found, MSG_DONTWAIT, (void *)&from, &length);
    check(got == (ssize_t)bytes && (!text || memcmp(found, text, bytes) == 0), "a datagram that waited");
    check(ntohs(((struct sockaddr_in *)&from)->sin_port) == port, "who has sent a datagram");
}
static void end_waiting(int at, int family, int port) {
    char text[32];
    struct sockaddr_storage here = address(family, port + 2);
    int accepted[3];
    for (int one = 0; one < 2; one++) {
        struct pollfd polled = {waiting[at], POLLIN, 0};
        check(poll(&polled, 1, 0) == 1, "they wait");
        accepted[one] = accept(waiting[at], 0, 0);
        int client = port_of(accepted[one], 1) == port_of(clients[at][0], 0) ? 0 : 1;
        check(port_of(accepted[one], 1) == port_of(clients[at][client], 0), "whoever has waited");
        check(send(clients[at][client], "here", 4, 0) == 4 && recv(accepted[one], text, 32, 0) == 4, "those that waited");
    }
    accepted[2] = accept(waiting[at], 0, 0);
    struct pollfd polled = {late[at], POLLOUT, 0};
    check(poll(&polled, 1, 20000) == 1 && send(late[at], "late", 4, 0) == 4, "the late one");
    check(recv(accepted[2], text, 32, 0) == 4 && memcmp(text, "late", 4) == 0, "who was late");
    for (int one = 0; one < 3; one++) { close(accepted[one]); if (one < 2) close(clients[at][one]); }
    close(late[at]);
    check(recv(over[at][1], text, 32, 0) == 10 && memcmp(text, "last words", 10) == 0, "last words");
    check(recv(over[at][1], text, 32, 0) == 0 && recv(over[at][0], text, 32, 0) == 0, "both ends");
    check(send(over[at][1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "it is over");
    check(port_of(over[at][1], 0) == port + 1, "the name of what is over");
    check(recv(left[at], text, 32, 0) == 8 && memcmp(text, "farewell", 8) == 0 && recv(left[at], text, 32, 0) == 0, "farewell");
    close(over[at][0]); close(over[at][1]); close(left[at]); close(waiting[at]);
    arrives(box[at], "first", 5, port + 3);
    arrives(box[at], 0, 40000, port + 3);
    arrives(box[at], "third", 5, port + 3);
    check(sendto(sender[at], "x", 1, 0, (void *)&here, size) == 1 && recv(box[at], text, 32, MSG_DONTWAIT) == -1, "nobody else is heard");
    arrives(open_box[at], "to all", 6, port + 3);
    close(box[at]); close(sender[at]); close(open_box[at]);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    int families[] = {AF_INET, AF_INET6}, ports[] = {80, 8086}, listeners[2], quiet[2][2], half[2][2], full[2][2], boxes[2][2];
    size_t sent[2] = {0};
    int one = 1, idle[2], client_port[2], multipath[2], plain[2][2];
    for (int at = 0; at < 2; at++) {
        int family = families[at], port = ports[at];
        listeners[at] = listening(family, port, 0);
        // Multipath TCP, where the kernel has it, with a client that has not.
        multipath[at] = listening(family, port + 1, IPPROTO_MPTCP);
        if (multipath[at] >= 0) pair(family, port + 1, multipath[at], plain[at]);
        pair(family, port, listeners[at], quiet[at]);
        setsockopt(quiet[at][0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(quiet[at][1], SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        check(send(quiet[at][0], "a question", 10, 0) == 10 && send(quiet[at][1], "an answer", 9, 0) == 9, "send");
        client_port[at] = port_of(quiet[at][0], 0);
        pair(family, port, listeners[at], half[at]);
        check(send(half[at][0], "the last", 8, 0) == 8, "send");
        shutdown(half[at][0], SHUT_WR);
        // More than the receiver has room for, some of which was never sent.
        pair(family, port, listeners[at], full[at]);
        sent[at] = stuff(full[at][0], 5);
        boxes[at][0] = socket(family, SOCK_DGRAM, 0);
        boxes[at][1] = socket(family, SOCK_DGRAM, 0);
        struct sockaddr_storage to = address(family, 5300);
        check(bind(boxes[at][0], (void *)&to, size) == 0 && connect(boxes[at][1], (void *)&to, size) == 0, "UDP");
        idle[at] = socket(family, SOCK_STREAM, 0);
        begin_waiting(at, family, port + 100);
    }
    usleep(100000);
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        for (int at = 0; at < 2; at++) {
            int family = families[at], port = ports[at], *ends = quiet[at];
            char text[32];
            check(port_of(ends[0], 0) == client_port[at] && port_of(ends[1], 1) == client_port[at], "the client's port");
            check(port_of(ends[0], 1) == port && port_of(ends[1], 0) == port, "the server's port");
            check(recv(ends[1], text, 32, MSG_DONTWAIT) == 10 && memcmp(text, "a question", 10) == 0, "question");
            check(recv(ends[0], text, 32, MSG_DONTWAIT) == 9 && memcmp(text, "an answer", 9) == 0, "answer");
            check(send(ends[0], "a question", 10, 0) == 10 && send(ends[1], "an answer", 9, 0) == 9, "send again");
            check(number(ends[0], IPPROTO_TCP, TCP_NODELAY) && !number(ends[1], IPPROTO_TCP, TCP_NODELAY), "no delay");
            check(number(ends[1], SOL_SOCKET, SO_KEEPALIVE) && !number(ends[0], SOL_SOCKET, SO_KEEPALIVE), "keep alive");
            check(number(listeners[at], SOL_SOCKET, SO_REUSEADDR) == 1, "reuse");
            // Half of a connection goes on.
            check(recv(half[at][1], text, 32, MSG_PEEK) == 8 && memcmp(text, "the last", 8) == 0, "the last");
            struct pollfd polled = {half[at][1], POLLRDHUP, 0};
            check(poll(&polled, 1, 1000) == 1, "the end is told");
            check(send(half[at][0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "the end is the end");
            check(send(half[at][1], "y", 1, 0) == 1 && recv(half[at][0], text, 32, 0) == 1 && text[0] == 'y', "the other half");
            take(full[at][1], sent[at], 5, "what was too much");
            sent[at] = stuff(full[at][0], 5);
            check(sent[at] > 100000, "enough");
            // New connections, datagrams.
            int more[2];
            if (multipath[at] >= 0) {
                check(number(multipath[at], SOL_SOCKET, SO_PROTOCOL) == IPPROTO_MPTCP, "multipath");
                check(send(plain[at][0], "z", 1, 0) == 1 && recv(plain[at][1], text, 32, 0) == 1, "plain");
                pair(family, port + 1, multipath[at], more);
                close(more[0]); close(more[1]);
            }
            pair(family, port, listeners[at], more);
            close(more[0]);
            check(recv(more[1], text, 1, 0) == 0, "end");
            close(more[1]);
            check(send(boxes[at][1], "letter", 6, 0) == 6, "UDP is sent");
            struct sockaddr_storage from;
            socklen_t bytes = sizeof from;
            check(recvfrom(boxes[at][0], text, 32, 0, (void *)&from, &bytes) == 6, "UDP arrives");
            check(sendto(boxes[at][0], "reply", 5, 0, (void *)&from, bytes) == 5 && recv(boxes[at][1], text, 32, 0) == 5, "UDP back");
            check(recv(idle[at], text, 1, MSG_DONTWAIT) == -1 && errno == ENOTCONN, "idle");
            end_waiting(at, family, port + 100);
            begin_waiting(at, family, port + 100);
        }
        usleep(100000);
        say("ok\n");
    }
}
