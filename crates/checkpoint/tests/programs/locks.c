// Named pipes in all their states, and locks of processes and of descriptions, for one of which a child waits.
#include "check.h"
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>

static int file, both[2], waiting, ended, left, whole;
static volatile int *got;

static int events(int end) {
    struct pollfd polled = {.fd = end, .events = POLLIN | POLLOUT};
    check(poll(&polled, 1, 0) >= 0, "poll");
    return polled.revents;
}

static int pending(int end) {
    int count = -1;
    check(ioctl(end, FIONREAD, &count) == 0, "FIONREAD");
    return count;
}

static int named(const char *name, int flags) {
    mkfifo(name, 0600);
    int end = open(name, flags);
    check(end >= 0, name);
    return end;
}

// Who has the first lock on some bytes that somebody else could not have.
static void expect(int file, short kind, long start, long bytes, pid_t pid, const char *what) {
    struct flock lock = {.l_type = F_WRLCK, .l_start = start, .l_len = bytes};
    check(fcntl(file, F_GETLK, &lock) == 0, "F_GETLK");
    check(lock.l_type == kind && (kind == F_UNLCK || lock.l_pid == pid), what);
    check(kind == F_UNLCK || (lock.l_start == start && lock.l_len == bytes), what);
}

// What a process sees that has no lock itself.
static void look(pid_t owner) {
    int other = open("file", O_RDWR);
    expect(other, F_WRLCK, 5, 10, owner, "a lock to write");
    expect(other, F_UNLCK, 15, 35, 0, "bytes between locks");
    expect(other, F_RDLCK, 100, 0, owner, "a lock to read");
    expect(other, F_WRLCK, 50, 2, -1, "a lock of a description");
    close(other);
    other = open("whole", O_RDONLY);
    check(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK, "flock is held");
    check(flock(other, LOCK_SH | LOCK_NB) == 0, "flock is shared");
    close(other);
    _exit(0);
}

static int lock(int file, int command, short kind, long start, long bytes) {
    struct flock lock = {.l_type = kind, .l_start = start, .l_len = bytes};
    return fcntl(file, command, &lock);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    got = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    both[0] = named("both", O_RDONLY | O_NONBLOCK);
    both[1] = named("both", O_WRONLY);
    check(fcntl(both[0], F_SETFL, 0) == 0 && write(both[1], "abcde", 5) == 5, "write");
    waiting = named("waiting", O_RDONLY | O_NONBLOCK);
    ended = named("ended", O_RDONLY | O_NONBLOCK);
    close(named("ended", O_WRONLY));
    int holder = named("left", O_RDWR);
    left = named("left", O_WRONLY);
    check(write(left, "rest", 4) == 4, "write");
    close(holder);
    file = open("file", O_RDWR | O_CREAT, 0600);
    int description = open("file", O_RDWR);
    check(lock(description, F_OFD_SETLK, F_WRLCK, 50, 2) == 0, "F_OFD_SETLK");
    check(lock(file, F_SETLK, F_WRLCK, 5, 10) == 0, "F_SETLK");
    check(lock(file, F_SETLK, F_RDLCK, 100, 0) == 0, "F_SETLK");
    whole = open("whole", O_RDONLY | O_CREAT, 0600);
    check(flock(whole, LOCK_SH) == 0, "flock");
    pid_t child = fork();
    if (child == 0) {
        signal(SIGUSR1, SIG_DFL);
        check(lock(file, F_SETLK, F_WRLCK, 200 + (1 << 30), 1) == -1, "a lock that the parent has");
        // All the time that the parent lives.
        lock(file, F_SETLKW, F_WRLCK, 5, 1);
        *got = 1;
        for (;;) pause();
    }
    usleep(10000);
    char next = 'f';
    for (int round = 0;; round++) {
        if (round == 0) say("ready\n");
        else say("ok\n");
        wait_to_be_told();
        check(pending(both[0]) == 5, "content of a named pipe");
        char byte;
        check(read(both[0], &byte, 1) == 1 && byte == (char)(next - 5), "order of a named pipe");
        check(write(both[1], &next, 1) == 1, "write");
        next++;
        check(events(waiting) == 0, "a named pipe that nobody has written to yet");
        check(events(ended) == POLLHUP, "a named pipe that nobody writes to any more");
        check(events(left) & POLLERR, "a named pipe that nobody reads");
        int reader = open("left", O_RDONLY | O_NONBLOCK);
        check(reader >= 0 && pending(reader) == 4, "what was left in a named pipe");
        close(reader);
        check((fcntl(both[0], F_GETFL) & O_NONBLOCK) == 0 && fcntl(waiting, F_GETFL) & O_NONBLOCK, "flags");
        pid_t parent = getpid(), checker = fork();
        if (checker == 0) look(parent);
        int status;
        check(waitpid(checker, &status, 0) == checker && status == 0, "locks");
        check(*got == 0 && kill(child, 0) == 0, "the child waits");
    }
}
