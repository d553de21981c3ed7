// A process that waits for events of several kinds by epoll.
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static void add(int set, int file, unsigned events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    check(epoll_ctl(set, EPOLL_CTL_ADD, file, &event) == 0, "add");
}

int main(int argc, char **argv) {
    begin(argc, argv);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, 0);
    int ends[2], set = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(0);
    check(pipe(ends) == 0, "pipe");
    int counter = eventfd(0, EFD_NONBLOCK);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), late = timerfd_create(CLOCK_REALTIME, 0);
    int signals = signalfd(-1, &mask, SFD_NONBLOCK);
    struct itimerspec soon = {{3600, 5}, {0, 1}}, then = {{0, 0}, {5000, 0}};
    timerfd_settime(timer, 0, &soon, 0);
    timerfd_settime(late, 0, &then, 0);
    add(set, ends[0], EPOLLIN | EPOLLET, 1);
    add(set, counter, EPOLLIN, 0x123456789abcdef0);
    add(set, timer, EPOLLIN | EPOLLONESHOT, 3);
    add(set, late, EPOLLIN, 4);
    add(set, signals, EPOLLIN, 5);
    add(outer, set, EPOLLIN, 6);
    // Signals about input, with information and without.
    int told[2], plain[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, told) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, plain) == 0, "pairs");
    sigset_t input;
    sigemptyset(&input); sigaddset(&input, SIGRTMIN + 3); sigaddset(&input, SIGIO);
    sigprocmask(SIG_BLOCK, &input, 0);
    struct f_owner_ex owner = {F_OWNER_PGRP, getpid()};
    setpgid(0, 0);
    fcntl(told[0], F_SETSIG, SIGRTMIN + 3); fcntl(told[0], F_SETOWN, getpid()); fcntl(told[0], F_SETFL, O_ASYNC | O_NONBLOCK);
    fcntl(plain[0], F_SETOWN_EX, &owner); fcntl(plain[0], F_SETFL, O_ASYNC);
    usleep(1000);
    // The timer that has expired is told once, and its ticks stay.
    struct epoll_event events[8];
    check(epoll_wait(set, events, 8, 0) == 1 && events[0].data.u64 == 3, "timer");
    say("ready\n");
    for (;;) {
        check(epoll_wait(outer, events, 8, -1) == 1 && events[0].data.u64 == 6, "outer set");
        check(epoll_wait(set, events, 8, -1) == 1 && events[0].data.u64 == 5, "signal");
        struct signalfd_siginfo info;
        check(read(signals, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1, "signalfd");
        check(read(signals, &info, sizeof info) == -1 && errno == EAGAIN, "signalfd is empty");
        uint64_t value;
        check(read(counter, &value, 8) == -1 && errno == EAGAIN, "counter is empty");
        value = 3;
        check(write(counter, &value, 8) == 8, "counter");
        check(epoll_wait(set, events, 8, 0) == 1 && events[0].data.u64 == 0x123456789abcdef0, "counter is told");
        check(read(counter, &value, 8) == 8 && value == 3, "counter's value");
        check(write(ends[1], "x", 1) == 1, "pipe");
        check(epoll_wait(set, events, 8, 0) == 1 && events[0].data.u64 == 1, "pipe is told");
        check(epoll_wait(set, events, 8, 0) == 0, "once only");
        char byte;
        check(read(ends[0], &byte, 1) == 1, "read");
        struct itimerspec left;
        check(timerfd_gettime(late, &left) == 0 && left.it_value.tv_sec > 4500 && left.it_value.tv_sec < 5000, "late timer");
        check(timerfd_gettime(timer, &left) == 0 && left.it_interval.tv_sec == 3600 && left.it_value.tv_sec > 3000, "timer");
        check(read(timer, &value, 8) == 8 && value == 1, "ticks");
        struct timespec moment = {5, 0};
        siginfo_t about;
        check(write(told[1], "x", 1) == 1 && sigtimedwait(&input, &about, &moment) == SIGRTMIN + 3, "told");
        check(about.si_fd == told[0] && read(told[0], &byte, 1) == 1, "told of what");
        check(write(plain[1], "x", 1) == 1 && sigtimedwait(&input, &about, &moment) == SIGIO, "told plainly");
        check(read(plain[0], &byte, 1) == 1 && fcntl(told[0], F_GETFL) == (O_RDWR | O_ASYNC | O_NONBLOCK), "flags");
        // Expire once more, unheard.
        timerfd_settime(timer, 0, &soon, 0);
        usleep(1000);
        say("ok\n");
    }
}
