// Changes of files are told: of a directory, of a file in one that is not open, and of one elsewhere, by their numbers,
// to a descriptor that a child has too.
#include "check.h"
#include <sys/inotify.h>
#include <sys/ioctl.h>

static int changes, numbers[3];

static int expect(int number, unsigned events, const char *name) {
    union { struct inotify_event event; char bytes[512]; } found;
    long length = read(changes, &found, sizeof found);
    check(length >= (long)sizeof found.event, "a change is told");
    check(found.event.wd == number && found.event.mask == events, "what has changed");
    check(name == 0 || !strcmp(found.event.name, name), "its name");
    check(length == (long)(sizeof found.event + found.event.len), "nothing else has changed");
    return 1;
}

static void touch(const char *path) {
    int file = open(path, O_WRONLY);
    check(file >= 0 && write(file, "x", 1) == 1, path);
    close(file);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    mkdir("one", 0700); mkdir("one/two", 0700); mkdir("elsewhere", 0700);
    close(creat("one/two/file", 0600)); close(creat("elsewhere/other", 0600));
    changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    // Numbers with a gap.
    check(inotify_add_watch(changes, "one", IN_ALL_EVENTS) == 1, "watch");
    check(inotify_rm_watch(changes, 1) == 0 && expect(1, IN_IGNORED, 0), "ignored");
    numbers[0] = inotify_add_watch(changes, "one", IN_CREATE | IN_DELETE | IN_ONLYDIR);
    numbers[1] = inotify_add_watch(changes, "one/two/file", IN_MODIFY);
    numbers[2] = inotify_add_watch(changes, "elsewhere/other", IN_CLOSE_WRITE | IN_OPEN);
    check(numbers[0] == 2 && numbers[1] == 3 && numbers[2] == 4, "numbers");
    if (fork() == 0) { signal(SIGUSR1, SIG_DFL); for (;;) pause(); }
    for (int round = 0;; round++) {
        if (round == 0) say("ready\n");
        else say("ok\n");
        wait_to_be_told();
        int waiting = -1;
        check(ioctl(changes, FIONREAD, &waiting) == 0 && waiting == 0, "nothing is told of the restart");
        close(creat("one/new", 0600));
        expect(2, IN_CREATE, "new");
        check(unlink("one/new") == 0, "unlink");
        expect(2, IN_DELETE, "new");
        touch("one/two/file");
        expect(3, IN_MODIFY, 0);
        int file = open("elsewhere/other", O_WRONLY);
        expect(4, IN_OPEN, 0);
        close(file);
        expect(4, IN_CLOSE_WRITE, 0);
        check(inotify_add_watch(changes, "one", IN_CREATE | IN_DELETE) == 2, "it is watched already");
    }
}
