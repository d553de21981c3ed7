// Descriptors of processes and threads, shared and watched; names that are open as such; and owners of files.
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define THREAD O_EXCL // PIDFD_THREAD
#define CHILD 40
#define PARENT 41
#define SHARED 42
#define DEAD 43
#define MEMBER 44
struct owner { int type, pid; };

static pid_t child, dead, member;
static int set, link_fd, directory, file, device, urgent[2], told_thread, has_thread;
static pid_t pid_of(int number) {
    char path[64], text[512] = {0};
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", number);
    int info = open(path, O_RDONLY);
    check(info >= 0 && read(info, text, sizeof text - 1) > 0, "fdinfo");
    close(info);
    char *line = strstr(text, "\nPid:");
    return line ? (pid_t)atoi(line + 5) : 0;
}
static int opened(pid_t pid, unsigned flags, int number) {
    int low = (int)syscall(SYS_pidfd_open, pid, flags);
    if (low < 0) return 0;
    check(dup2(low, number) == number, "dup");
    return close(low) == 0;
}
static void owns(int number, int type, pid_t pid, int signal) {
    struct owner owner = {-1, -1};
    check(fcntl(number, 16 /* F_GETOWN_EX */, &owner) == 0, "owner");
    check(owner.type == type && owner.pid == pid, "who owns it");
    check(fcntl(number, 11 /* F_GETSIG */) == signal, "the owner's signal");
}
static volatile int ready;
static void *thread(void *nothing) {
    member = (pid_t)syscall(SYS_gettid);
    ready = 1;
    for (;;) pause();
    return nothing;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1); sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, 0);
    check(opened(getpid(), O_NONBLOCK, PARENT), "pidfd_open");
    check(fcntl(PARENT, F_SETFD, FD_CLOEXEC) == 0, "close on exec");
    dead = fork();
    if (dead == 0) _exit(7);
    child = fork();
    if (child == 0) { for (;;) pause(); }
    check(opened(child, 0, CHILD) && opened(dead, 0, DEAD), "pidfd_open");
    check(dup2(CHILD, SHARED) == SHARED, "dup");
    struct pollfd polled = {DEAD, POLLIN, 0};
    check(poll(&polled, 1, 10000) == 1, "it has ended");
    pthread_t one;
    pthread_create(&one, 0, thread, 0);
    while (!ready) usleep(1000);
    has_thread = opened(member, THREAD, MEMBER);
    set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 77}};
    check(epoll_ctl(set, EPOLL_CTL_ADD, CHILD, &event) == 0, "epoll");
    // Names.
    check(mkdir("directory", 0700) == 0 && symlink("nowhere", "link") == 0, "names");
    close(open("file", O_CREAT | O_RDWR, 0000));
    link_fd = open("link", O_PATH | O_NOFOLLOW);
    directory = open("directory", O_PATH | O_DIRECTORY | O_CLOEXEC);
    file = open("file", O_PATH);
    device = open("/dev/tty", O_PATH);
    check(link_fd >= 0 && directory >= 0 && file >= 0, "names are open");
    // Owners, of whom only the last asks for more than to be told of urgent data.
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, urgent) == 0, "pair");
    check(fcntl(urgent[0], F_SETOWN, child) == 0 && fcntl(urgent[0], 10 /* F_SETSIG */, SIGRTMIN) == 0, "own");
    struct owner group = {2, getpgrp()}, itself = {0, member};
    int is_leader = getpgrp() == getpid();
    if (is_leader) check(fcntl(urgent[1], 15 /* F_SETOWN_EX */, &group) == 0, "group");
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    told_thread = ends[0];
    check(fcntl(told_thread, 15, &itself) == 0 && fcntl(told_thread, F_SETFL, O_ASYNC | O_NONBLOCK) == 0, "thread");
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        check(pid_of(CHILD) == child && pid_of(PARENT) == getpid() && pid_of(SHARED) == child && pid_of(DEAD) == dead, "processes");
        check(fcntl(PARENT, F_GETFL) & O_NONBLOCK && fcntl(PARENT, F_GETFD) == FD_CLOEXEC, "flags");
        check(!(fcntl(CHILD, F_GETFL) & O_NONBLOCK) && fcntl(CHILD, F_GETFD) == 0, "no flags");
        check(syscall(SYS_kcmp, getpid(), getpid(), 0, CHILD, SHARED) == 0, "they are one");
        check(syscall(SYS_kcmp, getpid(), child, 0, PARENT, PARENT) == 0, "they are one in two processes");
        if (has_thread) check(pid_of(MEMBER) == member && syscall(SYS_pidfd_send_signal, MEMBER, 0, 0, 0) == 0, "thread");
        check(poll(&polled, 1, 0) == 1, "it still has ended");
        check(syscall(SYS_pidfd_send_signal, CHILD, 0, 0, 0) == 0, "signal");
        struct epoll_event found;
        check(epoll_wait(set, &found, 1, 0) == 0, "nobody else has ended");
        char text[16] = {0};
        check(readlinkat(link_fd, "", text, sizeof text) == 7 && strcmp(text, "nowhere") == 0, "link");
        check(read(file, text, 1) == -1 && errno == EBADF, "it cannot be read");
        close(openat(directory, "more", O_CREAT | O_RDWR, 0600));
        struct stat stat;
        check(fstatat(file, "", &stat, AT_EMPTY_PATH) == 0 && S_ISREG(stat.st_mode), "file");
        check(access("directory/more", F_OK) == 0 && fcntl(directory, F_GETFD) == FD_CLOEXEC, "directory");
        owns(urgent[0], 1, child, SIGRTMIN);
        check(!(fcntl(urgent[0], F_GETFL) & O_ASYNC), "it does not ask");
        if (is_leader) owns(urgent[1], 2, getpgrp(), 0);
        owns(told_thread, 0, member, 0);
        check(fcntl(told_thread, F_GETFL) & O_ASYNC, "it asks");
        say("ok\n");
    }
}
