// One process with everything that a single-threaded process can have. It says "ready", waits for SIGUSR1 with
// patterns in its vector registers, and says "ok" or what is wrong.
#define _GNU_SOURCE
#include <fcntl.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t flag;
static int out;

static void say(const char *text) { if (write(out, text, strlen(text)) < 0) _exit(9); }
static void check(int holds, const char *what) {
    if (holds) return;
    say("wrong: "); say(what); say("\n"); _exit(1);
}
static void on_signal(int signal) { (void)signal; flag = 1; }
static void on_value(int signal) { (void)signal; }

static void wait_in_registers(void) {
    static uint8_t pattern[512] __attribute__((aligned(64))), found[512] __attribute__((aligned(64)));
    for (int i = 0; i < 512; i++) pattern[i] = (uint8_t)(i * 7 + 3);
    if (__builtin_cpu_supports("avx512f")) {
        __asm__ volatile(
            "vmovdqu64 (%0), %%zmm0\n vmovdqu64 64(%0), %%zmm7\n vmovdqu64 128(%0), %%zmm15\n vmovdqu64 192(%0), %%zmm31\n"
            "kmovw %%eax, %%k3\n"
            "1: pause\n cmpq $0, (%2)\n je 1b\n"
            "vmovdqu64 %%zmm0, (%1)\n vmovdqu64 %%zmm7, 64(%1)\n vmovdqu64 %%zmm15, 128(%1)\n vmovdqu64 %%zmm31, 192(%1)\n"
            : : "r"(pattern), "r"(found), "r"(&flag) : "memory", "xmm0", "xmm7", "xmm15", "rax");
        check(!memcmp(pattern, found, 256), "AVX-512 registers");
    } else {
        __asm__ volatile(
            "movdqu (%0), %%xmm0\n movdqu 64(%0), %%xmm7\n"
            "1: pause\n cmpq $0, (%2)\n je 1b\n"
            "movdqu %%xmm0, (%1)\n movdqu %%xmm7, 64(%1)\n"
            : : "r"(pattern), "r"(found), "r"(&flag) : "memory", "xmm0", "xmm7");
        check(!memcmp(pattern, found, 16) && !memcmp(pattern + 64, found + 64, 16), "SSE registers");
    }
}

int main(int argc, char **argv) {
    syscall(SYS_close_range, 3, ~0U, 0);
    check(argc == 3, "arguments");
    out = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
    mkdir(argv[2], 0700);
    check(chdir(argv[2]) == 0, "chdir");
    int rounds = 0;
    pid_t pid = getpid();
    char *heap = malloc(3 << 20);
    for (int i = 0; i < 3 << 20; i++) heap[i] = (char)(i * 31);
    void *brk = sbrk(0);
    char *none = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(none + 4096, "behind a wall");
    mprotect(none, 16384, PROT_NONE);
    char *self = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 0);
    strcpy(self + 100, "changed");
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(write(file, "0123456789", 10) == 10, "write");
    lseek(file, 4, SEEK_SET);
    int twin = dup(file), other = open("file", O_RDONLY);
    char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int ends[2];
    check(pipe2(ends, O_NONBLOCK) == 0, "pipe");
    fcntl(ends[1], F_SETPIPE_SZ, 16384);
    check(write(ends[1], "in the pipe", 11) == 11, "write");
    int counter = eventfd(0, EFD_SEMAPHORE);
    uint64_t value = 5000000000;
    check(write(counter, &value, 8) == 8, "eventfd");
    fcntl(twin, F_SETFD, FD_CLOEXEC);
    dup2(twin, 200);
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaddset(&action.sa_mask, SIGHUP);
    sigaction(SIGUSR1, &action, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTRAP, SIG_IGN);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR2); sigaddset(&mask, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &mask, 0);
    struct sigaction valued = {.sa_handler = on_value};
    sigaction(SIGRTMIN + 1, &valued, 0);
    sigqueue(pid, SIGRTMIN + 1, (union sigval){.sival_int = 77});
    sigqueue(pid, SIGRTMIN + 1, (union sigval){.sival_int = 78});
    raise(SIGUSR2);
    setitimer(ITIMER_REAL, &(struct itimerval){{5, 1}, {5000, 0}}, 0);
    timer_t first, second;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2, .sigev_value.sival_int = 9};
    timer_create(CLOCK_MONOTONIC, &event, &first);
    timer_create(CLOCK_MONOTONIC, &event, &second);
    timer_delete(first);
    timer_settime(second, 0, &(struct itimerspec){{7, 8}, {4000, 0}}, 0);
    umask(027);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 12345});
    prctl(PR_SET_NAME, "a) b (c");
    int niceness = nice(3);
    say("ready\n");
    for (;;) {
        wait_in_registers();
        flag = 0;
        rounds++;
        check(getpid() == pid && syscall(SYS_gettid) == pid, "pid");
        for (int i = 0; i < 3 << 20; i++) check(heap[i] == (char)(i * 31), "heap");
        check(sbrk(0) == brk && sbrk(4096) == brk && sbrk(-4096) != (void *)-1, "brk");
        check(mprotect(none, 16384, PROT_READ) == 0 && !strcmp(none + 4096, "behind a wall") && !none[0], "PROT_NONE");
        mprotect(none, 16384, PROT_NONE);
        check(!strcmp(self + 100, "changed") && !memcmp(self, "\177ELF", 4), "private file mapping");
        char bytes[32] = {0};
        check(lseek(file, 0, SEEK_CUR) == 4 && lseek(200, 0, SEEK_CUR) == 4, "offset");
        lseek(twin, 7, SEEK_SET);
        check(lseek(file, 0, SEEK_CUR) == 7 && lseek(other, 0, SEEK_CUR) == 0, "shared offset");
        lseek(file, 4, SEEK_SET);
        check(fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(200, F_GETFD) == 0, "close-on-exec");
        check(fcntl(out, F_GETFL) & O_APPEND, "append");
        shared[5] = 'x';
        check(pread(other, bytes, 10, 0) == 10 && !memcmp(bytes, "01234x6789", 10), "shared file mapping");
        check(read(ends[0], bytes, 32) == 11 && !memcmp(bytes, "in the pipe", 11), "pipe");
        check(read(ends[0], bytes, 32) == -1 && errno == EAGAIN, "empty pipe");
        check(write(ends[1], "in the pipe", 11) == 11, "pipe to write to");
        check(fcntl(ends[1], F_GETPIPE_SZ) == 16384, "size of the pipe");
        check(read(counter, &value, 8) == 8 && value == 1, "eventfd");
        value = 1;
        check(write(counter, &value, 8) == 8, "eventfd");
        stack_t now;
        sigaltstack(0, &now);
        check(now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size && now.ss_flags == 0, "signal stack");
        struct sigaction found;
        sigaction(SIGUSR1, 0, &found);
        check(found.sa_handler == on_signal && found.sa_flags & SA_ONSTACK && sigismember(&found.sa_mask, SIGHUP), "action");
        sigaction(SIGPIPE, 0, &found);
        check(found.sa_handler == SIG_IGN, "ignored");
        sigaction(SIGTRAP, 0, &found);
        check(found.sa_handler == SIG_IGN, "SIGTRAP ignored");
        sigset_t pending;
        sigpending(&pending);
        check(sigismember(&pending, SIGUSR2) && sigismember(&pending, SIGRTMIN + 1), "pending");
        siginfo_t info;
        for (int number = 77; number <= 78; number++) {
            check(sigtimedwait(&mask, &info, &(struct timespec){0}) > 0, "waiting");
            if (info.si_signo == SIGUSR2) check(sigtimedwait(&mask, &info, &(struct timespec){0}) > 0, "waiting");
            check(info.si_value.sival_int == number && info.si_code == SI_QUEUE && info.si_pid == pid, "value");
        }
        raise(SIGUSR2);
        sigqueue(pid, SIGRTMIN + 1, (union sigval){.sival_int = 77});
        sigqueue(pid, SIGRTMIN + 1, (union sigval){.sival_int = 78});
        struct itimerval timer;
        getitimer(ITIMER_REAL, &timer);
        check(timer.it_interval.tv_sec == 5 && timer.it_value.tv_sec > 4500 && timer.it_value.tv_sec < 5000, "itimer");
        struct itimerspec precise;
        check(timer_gettime(second, &precise) == 0 && precise.it_interval.tv_nsec == 8, "timer");
        check(precise.it_value.tv_sec > 3500 && precise.it_value.tv_sec < 4000, "timer's time");
        check(umask(027) == 027, "umask");
        struct rlimit limit;
        getrlimit(RLIMIT_CORE, &limit);
        check(limit.rlim_cur == 0 && limit.rlim_max == 12345, "limit");
        char name[16];
        prctl(PR_GET_NAME, name);
        check(!strcmp(name, "a) b (c"), "name");
        check(getpriority(PRIO_PROCESS, 0) == niceness, "nice");
        char *directory = getcwd(0, 0);
        check(directory && !strcmp(directory + strlen(directory) - strlen(strrchr(argv[2], '/')), strrchr(argv[2], '/')), "directory");
        free(directory);
        char link[256] = {0};
        check(readlink("/proc/self/exe", link, 255) > 0 && strstr(link, "single"), "exe");
        int line = open("/proc/self/cmdline", O_RDONLY);
        check(read(line, link, 255) > 0 && !strcmp(link, argv[0]), "command line");
        close(line);
        struct timespec clock;
        check(clock_gettime(CLOCK_MONOTONIC, &clock) == 0 && clock.tv_nsec < 1000000000, "vDSO");
        say("ok\n");
    }
}
