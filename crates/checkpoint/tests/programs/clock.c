// Threads that ask for the time all the time, and see that it never goes back.
#include "check.h"
#include <pthread.h>

static volatile long turns[2];
static void *look(void *which) {
    struct timespec last = {0}, now;
    for (;;) {
        check(clock_gettime(CLOCK_MONOTONIC, &now) == 0, "clock");
        check(now.tv_sec > last.tv_sec || (now.tv_sec == last.tv_sec && now.tv_nsec >= last.tv_nsec), "it goes on");
        last = now;
        turns[(long)which]++;
    }
    return which;
}
int main(int argc, char **argv) {
    begin(argc, argv);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, 0);
    pthread_t thread;
    for (long which = 0; which < 2; which++) pthread_create(&thread, 0, look, (void *)which);
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        for (int which = 0; which < 2; which++) {
            long before = turns[which];
            for (int waits = 0; turns[which] < before + 1000; waits++) { check(waits < 20000, "they turn"); usleep(1000); }
        }
        say("ok\n");
    }
}
