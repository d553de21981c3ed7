// Threads that wait in calls, of which some end with EINTR when their thread is only stopped, and some have a time limit:
// each comes back when what it waits for has happened, and not before.
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <linux/futex.h>

enum { POLL, SELECT, PSELECT, EPOLL, READ, RECV, ACCEPT, SEMOP, TIMED_SEMOP, MSGRCV, SIGWAIT, SIGTIMEDWAIT, FUTEX, FUTEX_UNTIL, WAITPID, WAITID, FLOCK, WRITE, COUNT };
static const char *names[] = {"poll", "select", "pselect", "epoll_wait", "read", "recv", "accept", "semop", "semtimedop", "msgrcv",
    "sigwait", "sigtimedwait", "futex", "futex until", "waitpid", "waitid", "flock", "write"};
static int ends[COUNT][2], set, queue, listener, counter, lock_file;
static volatile unsigned word[COUNT];
static volatile int allowed[COUNT], came[COUNT], result[COUNT], problem[COUNT], waits[COUNT];
static pid_t tids[COUNT], child[COUNT];
static const struct timespec long_time = {1000, 0};
static sigset_t only[COUNT], blocked;

static long one(int number) {
    char byte = 0;
    int file = ends[number][0];
    struct pollfd polled = {file, POLLIN, 0};
    fd_set files;
    struct timespec until;
    struct epoll_event event;
    struct sembuf operation = {number == SEMOP ? 0 : 1, -1, 0};
    struct { long kind; char text[8]; } message;
    siginfo_t info;
    int status;
    FD_ZERO(&files); FD_SET(file, &files);
    // With a limit, the kernel writes what is left of it where it was, which changes with time.
    switch (number) {
    case POLL: return poll(&polled, 1, 1000000);
    case SELECT: return select(file + 1, &files, 0, 0, 0);
    case PSELECT: return pselect(file + 1, &files, 0, 0, 0, &blocked);
    case EPOLL: return epoll_wait(counter, &event, 1, -1);
    case READ: case RECV: return number == READ ? read(file, &byte, 1) : recv(file, &byte, 1, 0);
    case ACCEPT: { int made = accept(listener, 0, 0); if (made >= 0) close(made); return made >= 0 ? 1 : -1; }
    case SEMOP: return semop(set, &operation, 1) == 0 ? 1 : -1;
    case TIMED_SEMOP: return semtimedop(set, &operation, 1, &long_time) == 0 ? 1 : -1;
    case MSGRCV: return msgrcv(queue, &message, sizeof message.text, 0, 0);
    case SIGWAIT: return sigwaitinfo(&only[number], &info) > 0 ? 1 : -1;
    case SIGTIMEDWAIT: return sigtimedwait(&only[number], &info, &long_time) > 0 ? 1 : -1;
    case FUTEX: return syscall(SYS_futex, &word[number], FUTEX_WAIT_PRIVATE, 0, &long_time, 0, 0) == 0 ? 1 : -1;
    case FUTEX_UNTIL:
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += 1000;
        return syscall(SYS_futex, &word[number], FUTEX_WAIT_BITSET_PRIVATE, 0, &until, 0, ~0U) == 0 ? 1 : -1;
    case WAITPID: return waitpid(child[number], &status, 0) == child[number] ? 1 : -1;
    case WAITID: return waitid(P_PID, (id_t)child[number], &info, WEXITED) == 0 ? 1 : -1;
    case FLOCK: { int got = flock(file, LOCK_EX); if (got == 0) flock(file, LOCK_UN); return got == 0 ? 1 : -1; }
    case WRITE: return write(file, &byte, 1);
    }
    return -1;
}
static pid_t bear(void) {
    pid_t pid = fork();
    if (pid == 0) { signal(SIGTERM, SIG_DFL); signal(SIGUSR1, SIG_IGN); for (;;) pause(); }
    return pid;
}
static void *thread(void *argument) {
    int number = (int)(intptr_t)argument;
    tids[number] = (pid_t)syscall(SYS_gettid);
    for (int turn = 1;; turn++) {
        while (allowed[number] < turn) usleep(1000);
        waits[number] = turn;
        long got = one(number);
        result[number] = (int)got;
        problem[number] = got < 0 ? errno : 0;
        came[number] = turn;
    }
    return 0;
}
// What it waits for happens.
static void happen(int number) {
    struct sembuf operation = {number == SEMOP ? 0 : 1, 1, 0};
    struct { long kind; char text[8]; } message = {1, "x"};
    struct sockaddr_storage to;
    socklen_t bytes = sizeof to;
    uint64_t value = 1;
    char room[65536];
    switch (number) {
    case POLL: case SELECT: case PSELECT: case READ: case RECV: check(send(ends[number][1], "x", 1, 0) == 1, "send"); break;
    case EPOLL: check(write(ends[number][1], &value, 8) == 8, "event"); break;
    case ACCEPT: {
        int made = socket(AF_UNIX, SOCK_STREAM, 0);
        check(getsockname(listener, (void *)&to, &bytes) == 0 && connect(made, (void *)&to, bytes) == 0, "connect");
        close(made);
        break;
    }
    case SEMOP: case TIMED_SEMOP: check(semop(set, &operation, 1) == 0, "semop"); break;
    case MSGRCV: check(msgsnd(queue, &message, 1, 0) == 0, "msgsnd"); break;
    case SIGWAIT: case SIGTIMEDWAIT: check(syscall(SYS_tgkill, getpid(), tids[number], SIGRTMIN + number) == 0, "tgkill"); break;
    case FUTEX: case FUTEX_UNTIL: check(syscall(SYS_futex, &word[number], FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 1, "it waits there"); break;
    case WAITPID: case WAITID: check(kill(child[number], SIGTERM) == 0, "kill"); break;
    case FLOCK: check(flock(lock_file, LOCK_UN) == 0, "unlock"); break;
    case WRITE: check(read(ends[number][1], room, sizeof room) > 0, "make room"); break;
    }
}
// It waits once more.
static void again(int number) {
    char byte;
    uint64_t value;
    if (number <= PSELECT) check(recv(ends[number][0], &byte, 1, 0) == 1, "recv");
    if (number == EPOLL) check(read(ends[number][0], &value, 8) == 8, "event");
    if (number == WAITPID || number == WAITID) child[number] = bear();
    if (number == FLOCK) check(flock(lock_file, LOCK_EX) == 0, "lock");
    // Full in whole pages, as it will be when it is made again.
    if (number == WRITE) { char room[65536]; int left = 0; while (ioctl(ends[number][1], FIONREAD, &left) == 0 && left > 0) check(read(ends[number][1], room, sizeof room) > 0, "drain"); }
    if (number == WRITE) { int flags = fcntl(ends[number][0], F_GETFL); fcntl(ends[number][0], F_SETFL, flags | O_NONBLOCK); char full[4096] = {0}; while (write(ends[number][0], full, sizeof full) > 0); while (write(ends[number][0], full, 1) > 0); fcntl(ends[number][0], F_SETFL, flags); }
}
static void prepare(int number) {
    uint64_t value = 0;
    if (number == EPOLL) {
        ends[number][0] = ends[number][1] = eventfd((unsigned)value, EFD_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN};
        counter = epoll_create1(0);
        check(epoll_ctl(counter, EPOLL_CTL_ADD, ends[number][0], &event) == 0, "epoll");
    } else if (number == FLOCK) {
        lock_file = open("lock", O_RDWR | O_CREAT, 0600);
        ends[number][0] = open("lock", O_RDWR);
        check(lock_file >= 0 && ends[number][0] >= 0, "lock");
    } else if (number == WRITE) {
        int pair[2];
        check(pipe(pair) == 0, "pipe");
        ends[number][0] = pair[1]; ends[number][1] = pair[0];
    } else check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[number]) == 0, "pair");
    sigemptyset(&only[number]);
    sigaddset(&only[number], SIGRTMIN + number);
    if (number == WAITPID || number == WAITID) child[number] = bear();
    else if (number > PSELECT && number != EPOLL) again(number);
}
static int is_asleep(int number) {
    char path[64], text[256] = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tids[number]);
    int file = open(path, O_RDONLY);
    check(file >= 0 && read(file, text, 255) > 0, "stat");
    close(file);
    char *state = strrchr(text, ')');
    return state && state[2] == 'S';
}
// Each waits, as far as anybody can tell.
static void settle(int turn) {
    for (int number = 0; number < COUNT; number++) while (waits[number] < turn || !is_asleep(number)) usleep(1000);
    usleep(20000);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    for (int number = 0; number < COUNT; number++) sigaddset(&mask, SIGRTMIN + number);
    sigprocmask(SIG_BLOCK, &mask, 0);
    blocked = mask;
    set = semget(IPC_PRIVATE, 2, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sa_family_t unnamed = AF_UNIX;
    check(set >= 0 && queue >= 0 && bind(listener, (void *)&unnamed, sizeof unnamed) == 0 && listen(listener, 5) == 0, "begin");
    pthread_t id;
    for (int number = 0; number < COUNT; number++) { prepare(number); allowed[number] = 1; }
    for (intptr_t number = 0; number < COUNT; number++) pthread_create(&id, 0, thread, (void *)number);
    settle(1);
    say("ready\n");
    for (int turn = 1;; turn++) {
        wait_to_be_told();
        settle(turn);
        for (int number = 0; number < COUNT; number++) check(came[number] == turn - 1, names[number]);
        for (int number = 0; number < COUNT; number++) {
            happen(number);
            for (int tries = 0; tries < 10000 && came[number] < turn; tries++) usleep(1000);
            check(came[number] == turn, names[number]);
            errno = problem[number];
            check(result[number] == 1, names[number]);
        }
        // All of them are held until everything is as it was.
        for (int number = 0; number < COUNT; number++) { again(number); allowed[number] = turn + 1; }
        settle(turn + 1);
        say("ok\n");
    }
}
