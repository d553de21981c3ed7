// A shell with job control in a terminal, and who types there: a command that is stopped, and goes on in the foreground.
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>

static int master;
static char seen[65536];
static size_t length;

// Read until some text comes, in a few seconds.
static void await(const char *text) {
    for (int tries = 0; tries < 200 && !strstr(seen, text); tries++) {
        struct pollfd polled = {.fd = master, .events = POLLIN};
        if (poll(&polled, 1, 50) < 1) continue;
        long got = read(master, seen + length, sizeof seen - 1 - length);
        check(got > 0, "the shell is there");
        length += (size_t)got;
    }
    if (!strstr(seen, text)) { say(seen); say("|"); }
    check(strstr(seen, text) != 0, text);
    length = 0;
    memset(seen, 0, sizeof seen);
}

static void type(const char *text) { check(write(master, text, strlen(text)) == (long)strlen(text), "type"); }

int main(int argc, char **argv) {
    begin(argc, argv);
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    check(master >= 0 && unlockpt(master) == 0, "ptmx");
    if (fork() == 0) {
        setsid();
        int slave = open(ptsname(master), O_RDWR);
        dup2(slave, 0); dup2(slave, 1); dup2(slave, 2);
        close(slave); close(out);
        setenv("PS1", "<prompt>", 1); setenv("TERM", "dumb", 1);
        execlp("bash", "bash", "--norc", "--noprofile", "-i", (char *)0);
        _exit(127);
    }
    await("<prompt>");
    type("sleep 1234\n");
    await("sleep 1234");
    usleep(200000);
    type("\32");
    await("Stopped");
    type("export VALUE=$((6 * 7)); cat\n");
    await("cat");
    usleep(200000);
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        // The command in the foreground reads what is typed; it is stopped, and the shell has two jobs.
        type("some words\n");
        await("some words\r\nsome words\r\n");
        type("\32");
        await("Stopped");
        type("jobs; echo value is $VALUE\n");
        await("sleep 1234");
        type("echo value is $VALUE\n");
        await("value is 42");
        type("fg %2\n");
        await("cat");
        usleep(200000);
        say("ok\n");
    }
}
