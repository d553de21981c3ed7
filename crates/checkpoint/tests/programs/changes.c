// A process that was told of a change of its directory, and does not read it.
#include "check.h"
#include <sys/inotify.h>

int main(void) {
    out = 1;
    int changes = inotify_init1(0);
    check(inotify_add_watch(changes, ".", IN_CREATE) == 1, "watch");
    check(creat("made", 0600) >= 0, "creat");
    say("done\n");
    for (;;) pause();
}
