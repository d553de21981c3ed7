// Terminals that were hung up, as those have whose window was closed: open to read and write, to write only, and by a
// child too; beside one that goes on.
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

static int both, writes, master, slave;

static int multiplexer(void) {
    int file = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    check(file >= 0 && unlockpt(file) == 0, "ptmx");
    return file;
}
static int open_slave(int of, int flags) {
    int made = ioctl(of, TIOCGPTPEER, flags | O_NOCTTY);
    check(made >= 0, "slave");
    return made;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    int gone = multiplexer();
    master = multiplexer();
    both = open_slave(gone, O_RDWR | O_NONBLOCK);
    writes = open_slave(gone, O_WRONLY);
    slave = open_slave(master, O_RDWR);
    check(write(gone, "typed\n", 6) == 6 && write(both, "shown", 5) == 5, "what is lost");
    pid_t child = fork();
    if (child == 0) { signal(SIGUSR1, SIG_IGN); close(gone); for (;;) pause(); }
    // The child may have the master for a moment more.
    close(gone);
    for (int tries = 0; tries < 5000 && !(write(writes, "x", 1) == -1 && errno == EIO); tries++) usleep(1000);
    say("ready\n");
    for (;;) {
        wait_to_be_told();
        char text[16];
        struct termios settings;
        struct pollfd polled = {both, POLLIN | POLLOUT, 0};
        check(read(both, text, sizeof text) == 0, "nothing is typed");
        check(write(both, "x", 1) == -1 && errno == EIO && write(writes, "x", 1) == -1 && errno == EIO, "nothing is shown");
        check(read(writes, text, 1) == -1 && errno == EBADF, "it is open to write only");
        check(tcgetattr(both, &settings) == -1 && errno == EIO, "it has no settings");
        check(poll(&polled, 1, 0) == 1 && polled.revents & POLLHUP, "it is hung up");
        check(fcntl(both, F_GETFL) == (O_RDWR | O_NONBLOCK) && (fcntl(writes, F_GETFL) & O_ACCMODE) == O_WRONLY, "flags");
        check(syscall(SYS_kcmp, getpid(), child, 0, both, both) == 0, "it is the child's, too");
        int number = -1;
        check(ioctl(master, TIOCGPTN, &number) == 0 && number == 1, "the other's number");
        check(write(slave, "out", 3) == 3 && read(master, text, sizeof text) == 3 && !memcmp(text, "out", 3), "the other goes on");
        say("ok\n");
    }
}
