/* Ways into the kernel and back: system calls, signals, faults. */
#define _GNU_SOURCE
#include "bench.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

double null_syscall(long n) {
    double start = now();
    for (long i = 0; i < n; i++) syscall(SYS_getppid);
    return now() - start;
}

double read_byte(long n) {
    int file = open("/dev/zero", O_RDONLY);
    char byte;
    must(file >= 0, "open /dev/zero");
    double start = now();
    for (long i = 0; i < n; i++) must(read(file, &byte, 1) == 1, "read");
    double took = now() - start;
    close(file);
    return took;
}

static void create_scratch(void) {
    int file = open(SCRATCH, O_RDWR | O_CREAT, 0600);
    must(file >= 0, "create " SCRATCH);
    close(file);
}

double stat_file(long n) {
    struct stat found;
    create_scratch();
    double start = now();
    for (long i = 0; i < n; i++) must(!stat(SCRATCH, &found), "stat");
    return now() - start;
}

double open_close(long n) {
    create_scratch();
    double start = now();
    for (long i = 0; i < n; i++) {
        int file = open(SCRATCH, O_RDONLY);
        must(file >= 0, "open");
        close(file);
    }
    return now() - start;
}

static volatile long handled;
static void count(int signal) {
    (void)signal;
    handled++;
}
double signal_delivery(long n) {
    struct sigaction action = {.sa_handler = count};
    pid_t own = getpid();
    sigaction(SIGUSR1, &action, NULL);
    handled = 0;
    double start = now();
    for (long i = 0; i < n; i++) kill(own, SIGUSR1);
    double took = now() - start;
    must(handled == n, "every signal has to arrive");
    return took;
}

/* The instruction behind the one that faults. */
static void *volatile after;
static void skip(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (long)after;
    handled++;
}
double protection_fault(long n) {
    struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(page != MAP_FAILED, "mmap");
    sink = *page;
    sigaction(SIGSEGV, &action, NULL);
    handled = 0;
    double start = now();
    for (long i = 0; i < n; i++)
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n movb $1, (%1)\n 1:"
                     : "=m"(after)
                     : "r"(page)
                     : "rax", "memory");
    double took = now() - start;
    must(handled == n, "every store has to fault");
    signal(SIGSEGV, SIG_DFL);
    munmap(page, 4096);
    return took;
}
