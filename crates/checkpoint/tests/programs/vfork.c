// A process that waits for its child in vfork(2), until there is a file "go".
#include "check.h"

int main(int argc, char **argv) {
    begin(argc, argv);
    say("ready\n");
    pid_t child = vfork();
    if (child == 0) {
        while (access("go", F_OK)) usleep(1000);
        _exit(0);
    }
    check(waitpid(child, 0, 0) == child, "child");
    say("ok\n");
    for (;;) pause();
}
