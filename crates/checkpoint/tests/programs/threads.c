// A process with threads that wait in several ways.
#include "check.h"
#include <pthread.h>

#define THREADS 6
static __thread int own;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, robust;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static int round_, answers, ready;
static pid_t tids[THREADS];
static pthread_barrier_t barrier;

static void *thread(void *argument) {
    int number = (int)(intptr_t)argument;
    own = number * 1000;
    tids[number] = syscall(SYS_gettid);
    char name[16], found[16];
    snprintf(name, 16, "thread %d", number);
    prctl(PR_SET_NAME, name);
    sigset_t mask, now;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1); sigaddset(&mask, SIGRTMIN + number);
    pthread_sigmask(SIG_BLOCK, &mask, 0);
    pthread_kill(pthread_self(), SIGRTMIN + number);
    if (number == 0) check(pthread_mutex_lock(&robust) == 0, "robust");
    pthread_mutex_lock(&mutex);
    ready++;
    pthread_cond_broadcast(&answered);
    for (int seen = 0;; ) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1000;
        while (round_ == seen) {
            if (number % 2) pthread_cond_wait(&asked, &mutex);
            else pthread_cond_timedwait(&asked, &mutex, &until);
        }
        seen = round_;
        check(own == number * 1000 + seen - 1, "thread-local value");
        own++;
        check(syscall(SYS_gettid) == tids[number], "tid");
        prctl(PR_GET_NAME, found);
        check(!strcmp(found, name), "name");
        pthread_sigmask(0, 0, &now);
        for (int other = 0; other < THREADS; other++)
            check(sigismember(&now, SIGRTMIN + other) == (other == number), "mask");
        sigset_t pending;
        sigpending(&pending);
        check(sigismember(&pending, SIGRTMIN + number), "signal for a thread");
        if (number == 1) check(pthread_mutex_trylock(&robust) == EBUSY, "robust mutex");
        answers++;
        pthread_cond_broadcast(&answered);
    }
    return 0;
}

static void *sleeper(void *argument) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 1000;
    pthread_barrier_wait(&barrier);
    check(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0) == 0, "sleep was cut short");
    check(0, "slept for too short");
    return argument;
}

static void *relative_sleeper(void *argument) {
    pthread_barrier_wait(&barrier);
    struct timespec span = {1000, 0};
    check(nanosleep(&span, 0) == 0, "nanosleep was cut short");
    check(0, "slept for too short");
    return argument;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mask, 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_barrier_init(&barrier, 0, 3);
    pthread_t id;
    pthread_create(&id, 0, sleeper, 0);
    pthread_create(&id, 0, relative_sleeper, 0);
    pthread_barrier_wait(&barrier);
    for (intptr_t number = 0; number < THREADS; number++) pthread_create(&id, 0, thread, (void *)number);
    pthread_mutex_lock(&mutex);
    while (ready < THREADS) pthread_cond_wait(&answered, &mutex);
    pthread_mutex_unlock(&mutex);
    pid_t pid = getpid();
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        pthread_mutex_lock(&mutex);
        answers = 0;
        round_++;
        pthread_cond_broadcast(&asked);
        while (answers < THREADS) pthread_cond_wait(&answered, &mutex);
        pthread_mutex_unlock(&mutex);
        check(getpid() == pid && syscall(SYS_gettid) == pid, "pid");
        // A thread that is made now gets a number and a stack as ever.
        pthread_t one;
        check(pthread_create(&one, 0, (void *(*)(void *))(void *)getpid, 0) == 0, "new thread");
        pthread_join(one, 0);
        say("ok\n");
    }
}
