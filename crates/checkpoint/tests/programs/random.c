// A random tree of processes, of a seed that is in the file "seed": sessions, groups, the dead, files and pipes that some
// share, private and shared memory, masks and signals that wait.
#include "check.h"
#include <arpa/inet.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MOST 14
static unsigned state;
static struct { volatile int made, ready; volatile char memory[65536]; } *common;

static unsigned next(unsigned limit) {
    state = state * 1103515245u + 12345u;
    return (state >> 16) % limit;
}

static void nothing(int signal) { (void)signal; }

// A terminal, if there are any of our own, at numbers that nobody closes.
static int terminal(void) {
    struct stat stat;
    if (lstat("/dev/pts/ptmx", &stat) != 0 || (stat.st_mode & 0666) != 0666) return -1;
    int first = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY), master = fcntl(first, F_DUPFD, 20);
    close(first);
    check(master >= 20 && unlockpt(master) == 0, "ptmx");
    if (next(2)) return -1;
    first = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    int slave = fcntl(first, F_DUPFD, 20);
    close(first);
    check(slave >= 20 && write(slave, "output", next(7)) >= 0, "slave");
    check(write(master, "input\n", next(7)) >= 0, "master");
    return slave;
}

// An address of the loopback interface, of either family.
static struct sockaddr_storage address(int family, unsigned port, socklen_t *size) {
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    struct sockaddr_in *four = (void *)&address;
    struct sockaddr_in6 *six = (void *)&address;
    if (family == AF_INET) { four->sin_port = htons(port); four->sin_addr.s_addr = htonl(INADDR_LOOPBACK); *size = sizeof *four; }
    else { six->sin6_port = htons(port); six->sin6_addr = in6addr_loopback; *size = sizeof *six; }
    return address;
}

// A number that nobody closes, or uses by chance.
static int away(int low) {
    int high = fcntl(low, F_DUPFD, 20);
    check(high >= 20, "move");
    close(low);
    return high;
}

// A port that nobody else uses: the number says which process has taken it, and in which of its turns.
static unsigned port(void) {
    static unsigned turn;
    return 2000 + (unsigned)getpid() % 400 * 64 + turn++ % 64;
}

// TCP that listens, and perhaps connections there, with something in their queues, and halves that have ended.
static void connections(int family) {
    socklen_t size;
    struct sockaddr_storage at = address(family, port(), &size);
    int one = 1, listener = away(socket(family, SOCK_STREAM, 0));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(listener, (void *)&at, size) == 0 && listen(listener, 5) == 0, "TCP");
    for (unsigned count = next(3); count; count--) {
        int ends[2] = {away(socket(family, SOCK_STREAM, 0))};
        check(connect(ends[0], (void *)&at, size) == 0, "TCP is connected");
        ends[1] = away(accept(listener, 0, 0));
        for (unsigned times = next(3); times; times--)
            check(send(ends[next(2)], "some bytes", 1 + next(9), 0) > 0, "TCP is sent");
        for (unsigned times = next(3); times; times--) shutdown(ends[times - 1], SHUT_WR);
    }
    if (next(3) == 0) close(listener);
    else for (unsigned waiting = next(3); waiting; waiting--)
        check(connect(away(socket(family, SOCK_STREAM, 0)), (void *)&at, size) == 0, "TCP waits");
}

// Two UDP sockets with something in their queues, or one that has nobody to do with.
static void datagrams(int family) {
    socklen_t size;
    struct sockaddr_storage at = address(family, port(), &size);
    int one = away(socket(family, SOCK_DGRAM, 0));
    if (next(4) == 0) return;
    check(bind(one, (void *)&at, size) == 0, "UDP");
    int other = away(socket(family, SOCK_DGRAM, 0));
    if (next(2)) check(connect(other, (void *)&at, size) == 0, "UDP is connected");
    for (unsigned count = next(4); count; count--)
        check(sendto(other, "datagram", 1 + next(8), 0, (void *)&at, size) > 0, "UDP is sent");
}

static void act(void) {
    char name[32];
    int ends[2];
    switch (next(24)) {
    case 0: snprintf(name, sizeof name, "file%u", next(4)); open(name, O_RDWR | O_CREAT, 0600); break;
    case 1: snprintf(name, sizeof name, "file%u", next(4));
            check(write(open(name, O_RDWR | O_CREAT | (next(2) ? O_APPEND : 0), 0600), name, next(20)) >= 0, "write"); break;
    case 2: dup(3 + (int)next(4)); break;
    case 3: check(pipe2(ends, next(2) ? O_CLOEXEC : 0) == 0 && write(ends[1], "some bytes", next(11)) >= 0, "pipe"); break;
    case 4: { char *memory = mmap(0, 4096 * (1 + next(64)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              memset(memory, (int)next(256), 4096); break; }
    case 5: { char *memory = mmap(0, 32768, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
              memory[next(32768)] = 1; break; }
    case 6: { sigset_t mask; sigemptyset(&mask); sigaddset(&mask, SIGRTMIN + (int)next(8)); sigaddset(&mask, SIGWINCH);
              sigprocmask(SIG_BLOCK, &mask, 0); raise(SIGWINCH); break; }
    case 7: signal(SIGRTMIN + (int)next(8), next(2) ? nothing : SIG_IGN); break;
    case 8: umask((mode_t)next(0100)); break;
    case 9: { int memory = syscall(SYS_memfd_create, "some memory", next(2) ? 2 : 0);
              check(ftruncate(memory, 100000) == 0 && pwrite(memory, "x", 1, next(90000)) == 1, "memfd"); break; }
    case 10: { int file = open("gone", O_RDWR | O_CREAT | O_EXCL, 0600);
               if (file >= 0) { check(write(file, "content", 7) == 7, "write"); unlink("gone"); } break; }
    case 18: { int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}, kind = kinds[next(3)];
               check(socketpair(AF_UNIX, kind | (next(2) ? SOCK_CLOEXEC : 0), 0, ends) == 0, "pair");
               // Packets that are lost with one end are an error at the other, which is refused.
               for (unsigned count = kind == SOCK_SEQPACKET ? 0 : next(4); count; count--) check(send(ends[next(2)], "some bytes", 1 + next(9), 0) > 0, "send");
               if (next(3) == 0) shutdown(ends[next(2)], (int)next(3));
               break; }
    case 19: { struct sockaddr_un to = {.sun_family = AF_UNIX};
               snprintf(to.sun_path, sizeof to.sun_path, "socket%d.%u", getpid(), next(4));
               int kind = next(2) ? SOCK_STREAM : SOCK_SEQPACKET, one = socket(AF_UNIX, kind, 0);
               unlink(to.sun_path);
               check(bind(one, (void *)&to, sizeof to) == 0 && listen(one, 3) == 0, "listen");
               unsigned clients = next(3);
               for (unsigned count = clients; count; count--)
                   check(connect(socket(AF_UNIX, kind, 0), (void *)&to, sizeof to) == 0, "connect");
               if (clients && next(2)) accept4(one, 0, 0, SOCK_NONBLOCK);
               if (next(2)) unlink(to.sun_path);
               break; }
    case 20: { struct sockaddr_un to = {.sun_family = AF_UNIX};
               snprintf(to.sun_path, sizeof to.sun_path, "box%d.%u", getpid(), next(4));
               int one = socket(AF_UNIX, SOCK_DGRAM, 0), other = socket(AF_UNIX, SOCK_DGRAM, 0);
               unlink(to.sun_path);
               check(bind(one, (void *)&to, sizeof to) == 0, "bind");
               if (next(2)) check(connect(other, (void *)&to, sizeof to) == 0, "connect");
               check(sendto(other, "letter", next(7), 0, (void *)&to, sizeof to) >= 0, "send to"); break; }
    case 11: close(4 + (int)next(4)); break;
    case 12: snprintf(name, sizeof name, "fifo%u", next(2)); mkfifo(name, 0600);
             check(write(open(name, O_RDWR | O_NONBLOCK), "some bytes", next(11)) >= 0, "named pipe"); break;
    case 13: snprintf(name, sizeof name, "fifo%u", next(2)); mkfifo(name, 0600);
             open(name, (next(2) ? O_RDONLY : O_WRONLY) | O_NONBLOCK); break;
    case 14: snprintf(name, sizeof name, "file%u", next(4)); flock(open(name, O_RDWR | O_CREAT, 0600), LOCK_SH); break;
    case 15: { struct flock lock = {.l_type = next(2) ? F_RDLCK : F_WRLCK, .l_start = next(90), .l_len = next(20)};
               snprintf(name, sizeof name, "file%u", next(4));
               fcntl(open(name, O_RDWR | O_CREAT, 0600), next(2) ? F_SETLK : F_OFD_SETLK, &lock); break; }
    case 21: snprintf(name, sizeof name, "file%u", next(4));
             inotify_add_watch(inotify_init1(next(2) ? IN_CLOEXEC : IN_NONBLOCK), next(2) ? name : "..", IN_MOVE_SELF); break;
    case 22: connections(next(2) ? AF_INET : AF_INET6); break;
    case 23: datagrams(next(2) ? AF_INET : AF_INET6); break;
    case 16: terminal(); break;
    case 17: { int slave = terminal(); if (slave >= 0 && getsid(0) == getpid()) ioctl(slave, TIOCSCTTY, 0); break; }
    }
}

static void build(int depth) {
    if (depth && next(4) == 0) setsid();
    else if (depth && next(3) == 0) setpgid(0, 0);
    for (unsigned acts = next(8); acts; acts--) act();
    char *stack = alloca(1 + next(20000));
    stack[0] = (char)next(256);
    common->memory[next(65536)] = (char)next(256);
    for (unsigned children = depth < 4 ? next(4) : 0; children; children--) {
        if (__sync_add_and_fetch(&common->made, 1) > MOST) { __sync_fetch_and_sub(&common->made, 1); break; }
        unsigned seed = next(1 << 30), dies = next(6) == 0;
        if (fork() == 0) {
            state = seed;
            if (dies) { __sync_fetch_and_add(&common->ready, 1); _exit((int)next(256)); }
            build(depth + 1);
            __sync_fetch_and_add(&common->ready, 1);
            for (;;) pause();
        }
        act();
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    char text[32] = {0};
    int file = open("seed", O_RDONLY);
    check(read(file, text, 31) > 0, "seed");
    state = (unsigned)atoi(text);
    close(file);
    signal(SIGUSR1, SIG_DFL);
    common = mmap(0, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    build(0);
    // Another process may have died a moment after it said that it is ready.
    while (common->ready < common->made) usleep(1000);
    usleep(20000);
    say("ready\n");
    for (;;) pause();
}
