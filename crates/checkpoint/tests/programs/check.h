// What all programs that check themselves have in common.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int out;
static volatile sig_atomic_t told;

static void say(const char *text) { if (write(out, text, strlen(text)) < 0) _exit(9); }
static void check(int holds, const char *what) {
    if (holds) return;
    say("wrong: "); say(what); say("\n"); _exit(1);
}
static void on_told(int signal) { (void)signal; told = 1; }

// Open the output, handle SIGUSR1, close all else.
static inline void begin(int argc, char **argv) {
    syscall(SYS_close_range, 3, ~0U, 0);
    out = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
    check(argc == 3, "arguments");
    mkdir(argv[2], 0700);
    check(chdir(argv[2]) == 0, "chdir");
    struct sigaction action = {.sa_handler = on_told};
    sigaction(SIGUSR1, &action, 0);
}

// Wait for SIGUSR1, which is blocked otherwise.
static inline void wait_to_be_told(void) {
    sigset_t mask, old;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, &old);
    sigdelset(&old, SIGUSR1);
    while (!told) sigsuspend(&old);
    told = 0;
}

// Wait in one call until a word that processes share has another value, and give it one.
static inline void wait_while(volatile int *word, int value) {
    while (*word == value) syscall(SYS_futex, word, 0 /* FUTEX_WAIT */, value, 0, 0, 0);
}
static inline void put_word(volatile int *word, int value) {
    *word = value;
    syscall(SYS_futex, word, 1 /* FUTEX_WAKE */, 1 << 20, 0, 0, 0);
}
