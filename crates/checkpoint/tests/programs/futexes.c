// Futexes that the kernel knows of: robust ones whose owner ends after a restart, also in another process; ones with
// inherited priority, with an owner and who waits; and restartable sequences.
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/rseq.h>

struct shared { pthread_mutex_t robust, between, inherited; volatile int turn, waits, got, ends, child; };
static struct shared *shared;

static void make(pthread_mutex_t *mutex, int robust, int protocol) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (robust) pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    check(pthread_mutexattr_setprotocol(&attributes, protocol) == 0 && pthread_mutex_init(mutex, &attributes) == 0, "mutex");
}
// Has a robust mutex, and ends with it when it is told to.
static void *owner(void *nothing) {
    check(pthread_mutex_lock(&shared->robust) == 0, "robust");
    put_word(&shared->waits, 1);
    wait_while(&shared->ends, 0);
    return nothing;
}
static void in_child(void) {
    signal(SIGUSR1, SIG_IGN);
    check(pthread_mutex_lock(&shared->between) == 0, "robust between processes");
    put_word(&shared->child, 1);
    wait_while(&shared->ends, 0);
    _exit(0);
}
// Waits for a mutex that the main thread has.
static void *waiter(void *nothing) {
    for (int turn = 1;; turn++) {
        check(pthread_mutex_lock(&shared->inherited) == 0, "inherited");
        shared->got = turn;
        check(pthread_mutex_unlock(&shared->inherited) == 0, "unlock");
        wait_while(&shared->turn, turn - 1);
    }
    return nothing;
}
static void recover(pthread_mutex_t *mutex, const char *what) {
    check(pthread_mutex_lock(mutex) == EOWNERDEAD, what);
    check(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0, what);
}
static volatile struct rseq *sequences(void) { return (void *)((char *)__builtin_thread_pointer() + __rseq_offset); }

int main(int argc, char **argv) {
    begin(argc, argv);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, 0);
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make(&shared->robust, 1, PTHREAD_PRIO_NONE);
    make(&shared->between, 1, PTHREAD_PRIO_NONE);
    make(&shared->inherited, 0, PTHREAD_PRIO_INHERIT);
    pthread_t waits, owns;
    check(pthread_mutex_lock(&shared->inherited) == 0, "inherited");
    pthread_create(&waits, 0, waiter, 0);
    for (int turn = 1;; turn++) {
        shared->ends = shared->waits = shared->child = 0;
        pid_t child = fork();
        if (child == 0) in_child();
        pthread_create(&owns, 0, owner, 0);
        wait_while(&shared->waits, 0);
        wait_while(&shared->child, 0);
        usleep(20000);
        say(turn == 1 ? "ready\n" : "ok\n");
        wait_to_be_told();
        // Somebody has them, and ends.
        check(pthread_mutex_trylock(&shared->robust) == EBUSY && pthread_mutex_trylock(&shared->between) == EBUSY, "they are had");
        check(shared->got == turn - 1, "it waits");
        put_word(&shared->ends, 1);
        int status;
        check(pthread_join(owns, 0) == 0 && waitpid(child, &status, 0) == child && status == 0, "they end");
        recover(&shared->robust, "robust");
        recover(&shared->between, "robust between processes");
        check(pthread_mutex_unlock(&shared->inherited) == 0, "unlock");
        for (int tries = 0; tries < 10000 && shared->got != turn; tries++) usleep(1000);
        check(shared->got == turn, "inherited");
        check(pthread_mutex_lock(&shared->inherited) == 0, "lock again");
        put_word(&shared->turn, turn);
        // The kernel goes on to say on which processor it is, where it did.
        if (__rseq_size > 0) {
            cpu_set_t may;
            check(sched_getaffinity(0, sizeof may, &may) == 0, "processors");
            check((int)sequences()->cpu_id >= 0 && CPU_ISSET(sequences()->cpu_id, &may), "restartable sequences");
        }
    }
}
