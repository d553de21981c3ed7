// A process that waits for a child in vfork(2), again and again, and says how often at each SIGUSR1.
#include "check.h"

int main(int argc, char **argv) {
    begin(argc, argv);
    say("ready\n");
    for (;;) {
        pid_t child = vfork();
        if (child == 0) {
            usleep(100);
            _exit(3);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        check(WIFEXITED(status) && WEXITSTATUS(status) == 3, "child");
        if (told) {
            told = 0;
            say("ok\n");
        }
    }
}
