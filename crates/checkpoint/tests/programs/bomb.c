// Processes that make processes, up to a limit, as fast as they can; some end at once.
#include "check.h"

#define LIMIT 1500

int main(int argc, char **argv) {
    begin(argc, argv);
    volatile int *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    signal(SIGCHLD, SIG_IGN);
    say("ready\n");
    wait_to_be_told();
    for (;;) {
        int number = __sync_fetch_and_add(made, 1);
        if (number >= LIMIT) break;
        if (fork() == 0 && number % 3 == 0) _exit(0);
    }
    for (;;) pause();
}
