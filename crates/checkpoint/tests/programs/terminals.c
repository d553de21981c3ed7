// Terminals: one that controls a session with two jobs, with lines that were typed and output that was not read; one
// that nobody has opened; one that nobody has open any more; one that is raw, speaks in packets and holds output back.
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { SHELL, FORE, BACK };
static int master, tty, untouched, left, raw, raw_slave, orders[2], answers[2];
static pid_t leader;
static struct { volatile int interrupts[3]; volatile pid_t pids[3]; } *shared;
static int me;

static int multiplexer(void) {
    int file = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    check(file >= 0 && unlockpt(file) == 0, "ptmx");
    return file;
}

static int slave_of(int file, int flags) {
    int slave = ioctl(file, TIOCGPTPEER, flags | O_NOCTTY);
    check(slave >= 0, "slave");
    return slave;
}

static int number(int file, unsigned long call) {
    int value = -1;
    check(ioctl(file, call, &value) == 0, "number of a terminal");
    return value;
}

static int pending(int file) {
    struct pollfd polled = {.fd = file, .events = POLLIN};
    poll(&polled, 1, 0);
    return number(file, FIONREAD);
}

static int hung_up(int file) {
    struct pollfd polled = {.fd = file};
    return poll(&polled, 1, 0) == 1 && polled.revents & POLLHUP;
}

static void expect(int file, const char *text) {
    char found[256] = {0};
    long length = (long)strlen(text), done = 0;
    while (done < length) {
        long got = read(file, found + done, (size_t)(length - done));
        check(got > 0, "read");
        done += got;
    }
    check(!memcmp(found, text, (size_t)length), text);
}

static void type(int file, const char *text) { check(write(file, text, strlen(text)) == (long)strlen(text), "type"); }
static void on_interrupt(int signal) { (void)signal; shared->interrupts[me]++; }

static void order(char what) {
    char answer;
    check(write(orders[1], &what, 1) == 1 && read(answers[0], &answer, 1) == 1 && answer == what, "answer");
}

// The job in the foreground.
static void serve(void) {
    char what;
    while (read(orders[0], &what, 1) == 1) {
        char found[64] = {0};
        switch (what) {
        case 'l': check(read(tty, found, 63) == 7 && !memcmp(found, "line 0\n", 7), "a whole line"); break;
        case 'p': check(read(tty, found, 63) == 8 && !memcmp(found, "partial\n", 8), "the rest of a line"); break;
        case 'e': check(read(tty, found, 63) == 3 && !memcmp(found, "eof", 3), "a line that ends with the file"); break;
        case 'w': type(tty, "out\n"); break;
        case 'g':
            check(tcgetpgrp(tty) == getpid() && getpgrp() == getpid(), "it is in the foreground");
            check(tcgetsid(tty) == getsid(0) && getsid(0) == shared->pids[SHELL], "the session");
            { int again = open("/dev/tty", O_RDWR); check(again > tty, "/dev/tty"); close(again); break; }
        }
        check(write(answers[1], &what, 1) == 1, "answer");
    }
    _exit(0);
}

static void session(void) {
    signal(SIGUSR1, SIG_DFL);
    check(setsid() > 0, "setsid");
    int slave = slave_of(master, O_RDWR);
    check(ioctl(slave, TIOCSCTTY, 0) == 0, "TIOCSCTTY");
    close(master); close(untouched); close(left); close(raw); close(raw_slave);
    dup2(slave, 0); dup2(slave, 1); dup2(slave, 2);
    if (slave > 2) close(slave);
    tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    check(tty > 2, "/dev/tty");
    struct termios settings;
    tcgetattr(0, &settings);
    settings.c_lflag &= ~(tcflag_t)ECHO;
    settings.c_cc[VINTR] = 7;
    tcsetattr(0, TCSANOW, &settings);
    signal(SIGTTOU, SIG_IGN);
    signal(SIGINT, on_interrupt);
    shared->pids[SHELL] = getpid();
    for (int job = FORE; job <= BACK; job++) {
        pid_t pid = fork();
        if (pid == 0) { me = job; setpgid(0, 0); if (job == BACK) { raise(SIGSTOP); _exit(0); } serve(); }
        setpgid(pid, pid);
        if (job == FORE) check(tcsetpgrp(0, pid) == 0, "tcsetpgrp");
        shared->pids[job] = pid;
    }
    for (;;) pause();
}

static void fill(void) {
    type(master, "line 0\neof\4par");
    order('w');
    while (pending(master) != 5) usleep(1000);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(pipe(orders) == 0 && pipe(answers) == 0, "pipe");
    int gap = multiplexer();
    master = multiplexer(); untouched = multiplexer(); left = multiplexer(); raw = multiplexer();
    close(gap);
    close(slave_of(left, O_RDWR));
    raw_slave = slave_of(raw, O_RDWR);
    struct termios settings;
    tcgetattr(raw_slave, &settings);
    cfmakeraw(&settings);
    tcsetattr(raw_slave, TCSANOW, &settings);
    int one = 1;
    check(ioctl(raw, TIOCPKT, &one) == 0 && ioctl(raw_slave, TIOCEXCL) == 0, "packets");
    type(raw, "raw\3\n\4input");
    type(raw_slave, "raw output\n");
    tcflow(raw_slave, TCOOFF);
    while (pending(raw_slave) != 11 || pending(raw) != 11) usleep(1000);
    struct winsize size = {33, 101, 5, 6};
    check(ioctl(master, TIOCSWINSZ, &size) == 0, "TIOCSWINSZ");
    leader = fork();
    if (leader == 0) session();
    while (!shared->pids[BACK]) usleep(1000);
    usleep(10000);
    fill();
    for (int round = 0;; round++) {
        if (round == 0) say("ready\n");
        else say("ok\n");
        wait_to_be_told();
        check(number(master, TIOCGPTN) == 1 && number(untouched, TIOCGPTN) == 2, "numbers");
        check(number(left, TIOCGPTN) == 3 && number(raw, TIOCGPTN) == 4, "numbers");
        check(tcgetpgrp(master) == shared->pids[FORE] && number(master, TIOCGSID) == leader, "session and group");
        struct winsize found;
        check(ioctl(master, TIOCGWINSZ, &found) == 0 && !memcmp(&found, &size, sizeof size), "size");
        order('g');
        expect(master, "out\r\n");
        order('l');
        order('e');
        type(master, "tial\n");
        order('p');
        int before[3] = {shared->interrupts[0], shared->interrupts[1], shared->interrupts[2]};
        type(master, "\7");
        for (int tries = 0; tries < 5000 && shared->interrupts[FORE] == before[FORE]; tries++) usleep(1000);
        check(shared->interrupts[FORE] == before[FORE] + 1 && shared->interrupts[SHELL] == before[SHELL], "interrupt");
        fill();
        check(!hung_up(untouched) && hung_up(left), "terminals that nobody has open");
        check(number(raw, TIOCGPKT) == 1 && number(raw_slave, TIOCGEXCL) == 1, "packets and exclusive");
        struct pollfd polled = {.fd = raw_slave, .events = POLLOUT};
        check(poll(&polled, 1, 0) == 0, "output is held back");
        check(pending(raw_slave) == 11 && pending(raw) == 11, "raw input and output");
        expect(raw_slave, "raw\3\n\4input");
        type(raw, "raw\3\n\4input");
        while (pending(raw_slave) != 11) usleep(1000);
    }
}
