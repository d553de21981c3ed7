// A program of the guest's to be debugged: program ROUNDS [FILE]. Its own breakpoints are int3 and, for a child of its
// own, a debug register; what it has counted of them is printed. After some rounds it waits until FILE is there.

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long counter;
volatile long traps;
volatile unsigned long pattern = 0x5ca1ab1e0ddba11;
static long seen[4];

static void on_trap(int number) {
    (void)number;
    traps++;
}

__attribute__((noinline)) long work(long amount) {
    counter += amount;
    return counter;
}

// Whoever debugs this has set YMM7.
__attribute__((noinline)) void marker(void) {
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void watched_by_its_own(void) {
    __asm__ volatile("" ::: "memory");
}

// How often a child stops at a breakpoint in its DR0.
static long own_breakpoints(long rounds) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        for (long round = 0; round < rounds; round++) {
            watched_by_its_own();
        }
        _exit(0);
    }
    long hits = 0;
    int status;
    waitpid(child, &status, 0);
    ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[0]), watched_by_its_own);
    ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[7]), 1);
    while (ptrace(PTRACE_CONT, child, 0, 0) == 0 && waitpid(child, &status, 0) == child
           && WIFSTOPPED(status)) {
        hits++;
    }
    return hits;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    signal(SIGTRAP, on_trap);
    puts("up");
    fflush(stdout);
    for (long round = 0; round < rounds; round++) {
        while (round == 100 && argc > 2 && access(argv[2], F_OK) != 0) {
            usleep(10000);
        }
        for (volatile long pause = 0; pause < 100000; pause++) {
        }
        work(1);
        __asm__ volatile("int3");
    }
    long values[4] = {0x1111, 0x2222, 0x3333, 0x4444};
    __asm__ volatile("vmovdqu %1, %%ymm7\n\tcall marker\n\tvmovdqu %%ymm7, %0"
                     : "=m"(seen)
                     : "m"(values)
                     : "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm7");
    printf("counter %ld traps %ld own %ld\n", counter, traps, own_breakpoints(20));
    printf("seen %lx %lx %lx %lx\n", seen[0], seen[1], seen[2], seen[3]);
    return 0;
}
