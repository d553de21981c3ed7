/* What a guest with several processors is asked to do by tests/several/main.rs: static, because it
 * is all there is in its file system. Each part prints lines "NAME NUMBER" and exits with 1 when it
 * has found something wrong. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { MOST_PROCESSORS = 16, PAGE = 4096 };

static int processors;

static void fail(const char *why) {
    printf("FAILED %s\n", why);
    exit(1);
}

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static void stay_on(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("cannot choose a processor");
}

/* The same on every processor at once. */
static void on_each(void *(*act)(void *)) {
    pthread_t threads[MOST_PROCESSORS];
    for (intptr_t n = 0; n < processors; n++)
        if (pthread_create(&threads[n], NULL, act, (void *)n)) fail("no thread");
    for (int n = 0; n < processors; n++) pthread_join(threads[n], NULL);
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How much later than asked for a sleep ends, on each processor in turn. */

enum { SLEEPS = 400 };

static void lateness(void) {
    static uint64_t late[MOST_PROCESSORS * SLEEPS];
    int count = 0;
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    for (int processor = 0; processor < processors; processor++) {
        stay_on(processor);
        for (int n = 0; n < SLEEPS; n++) {
            uint64_t end = now(CLOCK_MONOTONIC) + 500000 + n * 7919;
            struct timespec until = {end / 1000000000, end % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
            uint64_t woken = now(CLOCK_MONOTONIC);
            if (woken < end) fail("a sleep ended early");
            late[count++] = woken - end;
        }
    }
    qsort(late, count, sizeof *late, ascending);
    printf("quarter %lu\nmedian %lu\nninetieth %lu\nninety-ninth %lu\nmost %lu\n", late[count / 4],
           late[count / 2], late[count * 9 / 10], late[count * 99 / 100], late[count - 1]);
}

/* Whether a clock that one processor has read is ever behind on another. The last reading of all is
 * passed on through a shared word: whoever reads the clock after it has read the word is later. */

static const struct {
    const char *name;
    clockid_t clock;
} CLOCKS[] = {{"tsc", -1}, {"monotonic", CLOCK_MONOTONIC}, {"raw", CLOCK_MONOTONIC_RAW},
              {"real", CLOCK_REALTIME}};

static int clock_used;
static _Atomic uint64_t latest, readings, backwards, most_back, deadline;

static uint64_t reading(void) {
    unsigned processor;
    return clock_used ? now(CLOCKS[clock_used].clock) : __rdtscp(&processor);
}

static void *read_in_turn(void *argument) {
    stay_on((intptr_t)argument);
    uint64_t count = 0;
    while (now(CLOCK_MONOTONIC) < deadline) {
        for (int n = 0; n < 64; n++, count++) {
            uint64_t before = latest, mine = reading();
            if (mine < before) {
                backwards++;
                if (before - mine > most_back) most_back = before - mine;
            }
            while (before < mine && !atomic_compare_exchange_weak(&latest, &before, mine)) {}
        }
    }
    readings += count;
    return NULL;
}

static void clocks(int milliseconds) {
    for (unsigned n = 0; n < sizeof CLOCKS / sizeof *CLOCKS; n++) {
        clock_used = n;
        latest = readings = backwards = most_back = 0;
        deadline = now(CLOCK_MONOTONIC) + milliseconds * UINT64_C(1000000);
        on_each(read_in_turn);
        printf("%s-readings %lu\n%s-backwards %lu\n%s-most-back %lu\n", CLOCKS[n].name, readings,
               CLOCKS[n].name, backwards, CLOCKS[n].name, most_back);
    }
}

/* Mappings that change under the other processors: the word at a page tells which page it is. All
 * but the first read it, compute or sleep; the first replaces the page, and when that is done nobody
 * may see the old one any more. */

static volatile uint64_t *volatile window;
static _Atomic uint64_t replaced, stale, looks;
static _Atomic int over;

static void *look(void *argument) {
    intptr_t number = (intptr_t)argument;
    stay_on(number);
    while (!over) {
        uint64_t least = replaced, found = *window;
        looks++;
        if (found < least) stale++;
        /* One of them sleeps now and then, so that its processor does. */
        if (number % 2) {
            struct timespec moment = {0, 50000};
            nanosleep(&moment, NULL);
        }
    }
    return NULL;
}

static void *replace(void *argument) {
    intptr_t number = (intptr_t)argument;
    if (number) return look(argument);
    stay_on(0);
    for (uint64_t round = 1; now(CLOCK_MONOTONIC) < deadline; round++) {
        uint64_t *fresh = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fresh == MAP_FAILED) fail("no memory");
        *fresh = round;
        if (mremap(fresh, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)window) == MAP_FAILED)
            fail("cannot move a page");
        replaced = round;
    }
    over = 1;
    return NULL;
}

static void mappings(int milliseconds) {
    window = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    deadline = now(CLOCK_MONOTONIC) + milliseconds * UINT64_C(1000000);
    on_each(replace);
    printf("replaced %lu\nlooks %lu\nstale %lu\n", replaced, looks, stale);
    if (stale) fail("a page that was gone was seen");
}

/* Kernel locks that all processors want: each maps and unmaps in one address space, and opens and
 * closes files in one table. */

static void *contend(void *argument) {
    stay_on((intptr_t)argument);
    while (now(CLOCK_MONOTONIC) < deadline) {
        for (int n = 0; n < 32; n++) {
            int copy = dup(1);
            if (copy < 0) fail("no descriptor");
            close(copy);
            looks++;
        }
    }
    return NULL;
}

static void contention(int milliseconds) {
    deadline = now(CLOCK_MONOTONIC) + milliseconds * UINT64_C(1000000);
    on_each(contend);
    printf("rounds %lu\n", looks);
}

/* Compute on every processor. */

static void *compute(void *argument) {
    stay_on((intptr_t)argument);
    while (now(CLOCK_MONOTONIC) < deadline) {}
    return NULL;
}

/* The steal time of all processors, in hundredths of a second. */
static uint64_t stolen(void) {
    FILE *file = fopen("/proc/stat", "r");
    uint64_t fields[8] = {0};
    if (!file || fscanf(file, "cpu %lu %lu %lu %lu %lu %lu %lu %lu", &fields[0], &fields[1],
                        &fields[2], &fields[3], &fields[4], &fields[5], &fields[6], &fields[7]) != 8)
        fail("/proc/stat is not readable");
    fclose(file);
    return fields[7];
}

static void steal(int milliseconds) {
    uint64_t before = stolen();
    deadline = now(CLOCK_MONOTONIC) + milliseconds * UINT64_C(1000000);
    on_each(compute);
    printf("stolen %lu\n", stolen() - before);
}

/* Processes come and go on every processor. */

static void *fork_often(void *argument) {
    stay_on((intptr_t)argument);
    for (int n = 0; n < 100; n++) {
        pid_t child = fork();
        if (child < 0) fail("no process");
        if (!child) _exit(n % 128);
        int status;
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != n % 128)
            fail("a child is not what it was");
    }
    return NULL;
}

int main(int count, char **words) {
    /* As the first process, it is to see whether the machine boots again. */
    if (getpid() == 1) reboot(RB_AUTOBOOT);
    setvbuf(stdout, NULL, _IOLBF, 0);
    processors = sysconf(_SC_NPROCESSORS_ONLN);
    printf("processors %d\n", processors);
    int milliseconds = count > 2 ? atoi(words[2]) : 1000;
    const char *part = count > 1 ? words[1] : "";
    if (!strcmp(part, "lateness")) lateness();
    else if (!strcmp(part, "clocks")) clocks(milliseconds);
    else if (!strcmp(part, "mappings")) mappings(milliseconds);
    else if (!strcmp(part, "contention")) contention(milliseconds);
    else if (!strcmp(part, "steal")) steal(milliseconds);
    else if (!strcmp(part, "forks")) on_each(fork_often);
    else fail("no such part");
    puts("done");
    return 0;
}
