// System V semaphores that children hold, and that are given back when they end (SEM_UNDO).
#include "check.h"
#include <sys/ipc.h>
#include <sys/sem.h>

static int set;
static pid_t child[2];

static void operate(int semaphore, int change) {
    struct sembuf operation = {(unsigned short)semaphore, (short)change, SEM_UNDO};
    int result;
    while ((result = semop(set, &operation, 1)) == -1 && errno == EINTR);
    check(result == 0, "semop");
}

static int value(int semaphore) { return semctl(set, semaphore, GETVAL); }

static void wait_for(int semaphore, int wanted) {
    for (int tries = 0; value(semaphore) != wanted; tries++) { check(tries < 5000, "a value"); usleep(1000); }
}

static void begin_children(void) {
    for (int which = 0; which < 2; which++) {
        if ((child[which] = fork())) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGUSR1, SIG_IGN);
        // One holds; one gives, and holds and gives back another, of which nothing is to be undone.
        if (which == 0) operate(0, -3);
        else { operate(1, 2); operate(2, -1); operate(2, 1); }
        for (;;) pause();
    }
    wait_for(0, 2); wait_for(1, 32767);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    set = semget(IPC_PRIVATE, 3, 0600);
    check(set >= 0 && semctl(set, 0, SETVAL, 5) == 0, "semaphores");
    check(semctl(set, 1, SETVAL, 32765) == 0 && semctl(set, 2, SETVAL, 1) == 0, "values");
    begin_children();
    for (int round = 0;; round++) {
        say(round ? "ok\n" : "ready\n");
        wait_to_be_told();
        check(value(0) == 2 && value(1) == 32767 && value(2) == 1, "they are held");
        for (int which = 0; which < 2; which++) {
            check(kill(child[which], SIGKILL) == 0 && waitpid(child[which], 0, 0) == child[which], "the end of a child");
        }
        check(value(0) == 5 && value(1) == 32765 && value(2) == 1, "they are given back");
        begin_children();
    }
}
