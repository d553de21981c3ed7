// Unix sockets of all kinds and in all states, with something in their queues.
#include "check.h"
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static char secret[100];
static socklen_t size;

// An address: of a path, or with '@' of an abstract name that nobody else has.
static struct sockaddr_un address(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (name[0] == '@') {
        int bytes = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s%s", name, secret);
        size = offsetof(struct sockaddr_un, sun_path) + 1 + bytes;
    } else {
        strcpy(address.sun_path, name);
        size = sizeof address;
    }
    return address;
}
static int bound(int kind, const char *name) {
    struct sockaddr_un to = address(name);
    int socket_ = socket(AF_UNIX, kind, 0);
    check(bind(socket_, (void *)&to, size) == 0, name);
    return socket_;
}
static int listening(int kind, const char *name) {
    int socket_ = bound(kind, name);
    check(listen(socket_, 5) == 0, "listen");
    return socket_;
}
static int connected(int kind, const char *name) {
    struct sockaddr_un to = address(name);
    int socket_ = socket(AF_UNIX, kind, 0);
    check(connect(socket_, (void *)&to, size) == 0, name);
    return socket_;
}
static void has_name(int socket_, const char *name, int is_peer, const char *what) {
    struct sockaddr_un expected = address(name), found = {0};
    socklen_t bytes = sizeof found;
    check((is_peer ? getpeername : getsockname)(socket_, (void *)&found, &bytes) == 0, what);
    socklen_t wanted = name[0] == '@' ? size : offsetof(struct sockaddr_un, sun_path) + (name[0] ? strlen(name) + 1 : 0);
    check(bytes == wanted && memcmp(&expected, &found, wanted) == 0, what);
}
// The next message is that text. What was received is sent again, over `from`, if that is no -1.
static void has(int socket_, int from, const char *text, const char *what) {
    char found[65536] = {0};
    ssize_t bytes = recv(socket_, found, sizeof found, MSG_DONTWAIT | (from < 0 ? MSG_PEEK : 0));
    check(bytes == (ssize_t)strlen(text) && memcmp(found, text, bytes) == 0, what);
    if (from >= 0) check(send(from, text, strlen(text), 0) == bytes, what);
}
static void is_empty(int socket_, const char *what) {
    char byte;
    check(recv(socket_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == -1 && errno == EAGAIN, what);
}
static int option(int socket_, int name) {
    int value = -7;
    socklen_t bytes = sizeof value;
    check(getsockopt(socket_, SOL_SOCKET, name, &value, &bytes) == 0, "option");
    return value;
}
static void set(int socket_, int name, int value) {
    check(setsockopt(socket_, SOL_SOCKET, name, &value, sizeof value) == 0, "set an option");
}
static struct ucred peer(int socket_) {
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    check(getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0, "peer");
    return peer;
}
static void send_files(int socket_, int one, int other) {
    char space[CMSG_SPACE(2 * sizeof(int))] = {0}, text[] = "files";
    struct iovec piece = {text, 5};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(control), (int[]){one, other}, 2 * sizeof(int));
    check(sendmsg(socket_, &message, 0) == 5, "send files");
}
static void receive_files(int socket_, int files[2], struct ucred *by) {
    char space[256] = {0}, text[64];
    struct iovec piece = {text, sizeof text};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    check(recvmsg(socket_, &message, MSG_DONTWAIT) == 5 && memcmp(text, "files", 5) == 0, "receive files");
    check((message.msg_flags & MSG_CTRUNC) == 0, "receive all files");
    for (struct cmsghdr *control = CMSG_FIRSTHDR(&message); control; control = CMSG_NXTHDR(&message, control)) {
        if (control->cmsg_type == SCM_RIGHTS) memcpy(files, CMSG_DATA(control), 2 * sizeof(int));
        if (control->cmsg_type == SCM_CREDENTIALS) memcpy(by, CMSG_DATA(control), sizeof *by);
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    snprintf(secret, sizeof secret, "%.60s", argv[2]);
    int stream[2], half[2], packets[2], datagrams[2], left[2], ended[2], told[2], flight[2], self[2], pipes[2];
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) == 0, "stream");
    fcntl(stream[1], F_SETFL, O_NONBLOCK);
    send(stream[0], "to the other", 12, 0);
    send(stream[1], "and ", 4, 0);
    send(stream[1], "back", 4, 0);
    set(stream[0], SO_SNDBUF, 5000);
    set(stream[1], SO_RCVLOWAT, 3);
    struct timeval soon = {3, 500000};
    setsockopt(stream[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0, "half");
    send(half[0], "the last", 8, 0);
    shutdown(half[0], SHUT_WR);
    check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0, "packets");
    send(packets[0], "one", 3, 0); send(packets[0], "two and three", 13, 0); send(packets[1], "four", 4, 0);
    check(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0, "datagrams");
    send(datagrams[0], "first", 5, 0); send(datagrams[0], "second", 6, 0);
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, left) == 0, "left");
    send(left[1], "farewell", 8, 0);
    close(left[1]);
    check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ended) == 0, "ended");
    close(ended[1]);
    // By path: one that listens, a connection, one that waits; the same with an abstract name.
    int files = listening(SOCK_STREAM, "listens"), abstract = listening(SOCK_SEQPACKET, "@listens");
    chmod("listens", 0640);
    int client = connected(SOCK_STREAM, "listens"), server = accept(files, 0, 0);
    send(client, "a request", 9, 0);
    int waits = connected(SOCK_STREAM, "listens");
    int packet_client = connected(SOCK_SEQPACKET, "@listens"), packet_server = accept(abstract, 0, 0);
    int second_client = connected(SOCK_SEQPACKET, "@listens"), second_server = accept(abstract, 0, 0);
    close(second_client);
    int packet_waits = connected(SOCK_SEQPACKET, "@listens");
    // A name that is gone, and one that leads to another by now.
    int gone = listening(SOCK_STREAM, "gone");
    unlink("gone");
    int older = bound(SOCK_STREAM, "twice");
    unlink("twice");
    int newer = bound(SOCK_DGRAM, "twice");
    // Datagrams from one with a name and from one without, to one with a name.
    int mailbox = bound(SOCK_DGRAM, "@mailbox"), sender = bound(SOCK_DGRAM, "sender");
    int nameless = connected(SOCK_DGRAM, "@mailbox");
    struct sockaddr_un to = address("@mailbox");
    sendto(sender, "from a name", 11, 0, (void *)&to, size);
    send(nameless, "from nowhere", 12, 0);
    // Who has sent it, and files that are only there; a socket that is in its own queue.
    check(socketpair(AF_UNIX, SOCK_DGRAM, 0, told) == 0, "told");
    set(told[1], SO_PASSCRED, 1);
    check(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, flight) == 0, "flight");
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, self) == 0, "self");
    int memory = syscall(SYS_memfd_create, "in flight", 0), lent[2] = {-1, -1};
    check(write(memory, "memory", 6) == 6 && write(pipes[1], "pipe", 4) == 4, "write");
    send_files(flight[0], pipes[0], memory);
    close(pipes[0]); close(memory);
    send(self[0], "before", 6, 0);
    send_files(self[0], self[0], self[1]);
    // Another process has sent it, and connected; it is no more.
    pid_t child = fork();
    if (child == 0) {
        send_files(told[0], stream[0], files);
        connected(SOCK_STREAM, "listens");
        _exit(0);
    }
    waitpid(child, 0, 0);
    // The first that waits is the older one.
    int first = accept(files, 0, 0), of_child = accept(files, 0, 0);
    close(first); close(waits);
    waits = connected(SOCK_STREAM, "listens");
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        has(stream[1], stream[0], "to the other", "stream");
        has(stream[0], stream[1], "and back", "stream, back");
        check(fcntl(stream[1], F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(stream[0], F_GETFL) == O_RDWR, "flags");
        check(fcntl(stream[0], F_GETFD) == FD_CLOEXEC, "close on exec");
        check(option(stream[0], SO_SNDBUF) == 10000 && option(stream[1], SO_RCVLOWAT) == 3, "options");
        struct timeval found = {0};
        socklen_t bytes = sizeof found;
        getsockopt(stream[1], SOL_SOCKET, SO_RCVTIMEO, &found, &bytes);
        check(found.tv_sec == 3 && found.tv_usec == 500000, "time to wait");
        char byte;
        has(half[1], -1, "the last", "half");
        check(send(half[0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "half is closed");
        check(send(half[1], "x", 1, 0) == 1, "half is open");
        check(recv(half[0], &byte, 1, 0) == 1 && byte == 'x', "half goes on");
        has(packets[1], packets[0], "one", "packet 1"); has(packets[1], packets[0], "two and three", "packet 2");
        has(packets[0], packets[1], "four", "packet back");
        has(datagrams[1], datagrams[0], "first", "datagram 1"); has(datagrams[1], datagrams[0], "second", "datagram 2");
        is_empty(datagrams[0], "no datagram back");
        has(left[0], -1, "farewell", "left");
        struct pollfd polled = {left[0], POLLIN | POLLRDHUP, 0};
        check(poll(&polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLRDHUP | POLLHUP), "left is told");
        check(recv(ended[0], &byte, 1, 0) == 0, "ended");
        // Names.
        has_name(client, "", 0, "client"); has_name(client, "listens", 1, "peer of the client");
        has_name(server, "listens", 0, "server");
        has_name(packet_server, "@listens", 0, "packet server"); has_name(second_server, "@listens", 0, "second server");
        has_name(packet_client, "@listens", 1, "peer of the packet client");
        has_name(gone, "gone", 0, "gone"); has_name(older, "twice", 0, "older"); has_name(newer, "twice", 0, "newer");
        has_name(nameless, "@mailbox", 1, "peer of the nameless"); has_name(sender, "sender", 0, "sender");
        struct stat status;
        check(stat("listens", &status) == 0 && (status.st_mode & 0777) == 0640, "permissions");
        check(access("gone", F_OK) == -1 && access("gone.in-the-way", F_OK) == -1, "gone is gone");
        // Connections.
        has(server, client, "a request", "request");
        check(send(server, "answer", 6, 0) == 6, "answer");
        has(client, -1, "answer", "answer"); recv(client, (char[8]){0}, 8, 0);
        check(send(packet_client, "p", 1, 0) == 1 && recv(packet_server, &byte, 1, 0) == 1, "packet");
        check(recv(second_server, &byte, 1, 0) == 0, "second client is gone");
        send(waits, "now", 3, 0);
        int accepted = accept4(files, 0, 0, SOCK_NONBLOCK);
        check(accepted >= 0, "accept");
        has(accepted, -1, "now", "one that waited");
        check(peer(accepted).pid == getpid() && peer(waits).pid == getpid(), "peers of one that waited");
        close(accepted); close(waits);
        waits = connected(SOCK_STREAM, "listens");
        accepted = accept4(abstract, 0, 0, SOCK_NONBLOCK);
        check(accepted >= 0, "accept packets");
        close(accepted); close(packet_waits);
        packet_waits = connected(SOCK_SEQPACKET, "@listens");
        check(option(files, SO_ACCEPTCONN) == 1 && option(gone, SO_ACCEPTCONN) == 1, "listen");
        // Datagrams.
        struct sockaddr_un from = {0}, expected = address("sender");
        char text[32] = {0};
        bytes = sizeof from;
        check(recvfrom(mailbox, text, 32, MSG_DONTWAIT, (void *)&from, &bytes) == 11, "from a name");
        check(memcmp(from.sun_path, expected.sun_path, 7) == 0, "its name");
        bytes = sizeof from;
        check(recvfrom(mailbox, text, 32, MSG_DONTWAIT, (void *)&from, &bytes) == 12 && bytes == 0, "from nowhere");
        to = address("@mailbox");
        sendto(sender, "from a name", 11, 0, (void *)&to, size); send(nameless, "from nowhere", 12, 0);
        // Files on their way.
        int received[2] = {-1, -1};
        struct ucred by = {0};
        receive_files(told[1], received, &by);
        check(by.pid == child && by.uid == getuid() && by.gid == getgid(), "who has sent it");
        check(peer(of_child).pid == child && peer(stream[0]).pid == getpid(), "peers");
        check(option(received[1], SO_ACCEPTCONN) == 1, "a listener that was sent");
        close(received[0]); close(received[1]);
        if (fork() == 0) { _exit(0); }
        wait(0);
        receive_files(flight[1], lent, 0);
        char content[8] = {0};
        check(read(lent[0], content, 8) == 4 && memcmp(content, "pipe", 4) == 0, "a pipe that was sent");
        check(pread(lent[1], content, 8, 0) == 6 && memcmp(content, "memory", 6) == 0, "memory that was sent");
        check(write(pipes[1], "pipe", 4) == 4, "write again");
        send_files(flight[0], lent[0], lent[1]);
        close(lent[0]); close(lent[1]);
        check(recv(self[1], text, 6, 0) == 6 && memcmp(text, "before", 6) == 0, "before itself");
        receive_files(self[1], received, 0);
        check(send(received[1], "yes", 3, 0) == 3, "it is itself");
        has(self[0], -1, "yes", "itself"); recv(self[0], text, 3, 0);
        close(received[0]); close(received[1]);
        send(self[0], "before", 6, 0);
        send_files(self[0], self[0], self[1]);
        // The same child again, which the kernel may number as it likes.
        if ((child = fork()) == 0) { send_files(told[0], stream[0], files); connected(SOCK_STREAM, "listens"); _exit(0); }
        waitpid(child, 0, 0);
        close(of_child);
        accepted = accept(files, 0, 0); of_child = accept(files, 0, 0);
        close(accepted); close(waits);
        waits = connected(SOCK_STREAM, "listens");
        say("ok\n");
    }
}
