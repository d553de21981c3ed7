/* Processes and threads that come and go. */
#define _GNU_SOURCE
#include "bench.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(pid_t child) {
    int status;
    must(child > 0 && waitpid(child, &status, 0) == child && !status, "a child");
}

double fork_exit(long n) {
    double start = now();
    for (long i = 0; i < n; i++) {
        pid_t child = fork();
        if (!child) _exit(0);
        reap(child);
    }
    return now() - start;
}

double fork_exec(long n) {
    double start = now();
    for (long i = 0; i < n; i++) {
        pid_t child = fork();
        if (!child) {
            execl(self, self, "nothing", NULL);
            _exit(1);
        }
        reap(child);
    }
    return now() - start;
}

double shell(long n) {
    if (access("/bin/sh", X_OK)) return UNSUPPORTED;
    double start = now();
    for (long i = 0; i < n; i++) {
        pid_t child = fork();
        if (!child) {
            execl("/bin/sh", "sh", "-c", "true", NULL);
            _exit(1);
        }
        reap(child);
    }
    return now() - start;
}

static void *nothing(void *argument) { return argument; }
double thread(long n) {
    pthread_t id;
    double start = now();
    for (long i = 0; i < n; i++) {
        must(!pthread_create(&id, NULL, nothing, NULL), "pthread_create");
        pthread_join(id, NULL);
    }
    return now() - start;
}
