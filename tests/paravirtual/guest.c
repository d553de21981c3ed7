/* What a program may do with ports: nothing, but what its kernel has opened to it. */

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/io.h>

static sigjmp_buf before;

static void refused(int signal) {
    (void)signal;
    siglongjmp(before, 1);
}

/* Read so many bytes of ports; what is there, or -1. */
static long read_port(unsigned short port, int size) {
    if (sigsetjmp(before, 1))
        return -1;
    switch (size) {
    case 1:
        return inb(port);
    case 2:
        return inw(port);
    default:
        return inl(port);
    }
}

static void say(const char *what, unsigned short port, int size) {
    printf("%s %x %d %lx\n", what, port, size, read_port(port, size));
}

static void open_ports(unsigned short port, int count, int is_open) {
    if (ioperm(port, count, is_open))
        perror("ioperm");
}

int main(void) {
    signal(SIGSEGV, refused);
    say("closed", 0x80, 1);
    open_ports(0x80, 3, 1);
    say("three", 0x80, 1);
    say("three", 0x82, 1);
    say("three", 0x81, 2);
    say("three", 0x82, 2);
    say("three", 0x80, 4);
    say("three", 0x7f, 1);
    open_ports(0x87, 2, 1);
    say("over a byte", 0x87, 2);
    say("over a byte", 0x86, 2);
    say("over a byte", 0x87, 4);
    open_ports(0xffff, 1, 1);
    say("the last", 0xffff, 1);
    say("the last", 0xfffe, 2);
    open_ports(0x80, 3, 0);
    say("closed again", 0x80, 1);
    if (iopl(3))
        perror("iopl");
    say("all", 0x1234, 4);
    iopl(0);
    say("none", 0x1234, 4);
    return 0;
}
