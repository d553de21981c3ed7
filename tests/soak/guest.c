/* What a machine does in the soak test (main.rs): the first and only program of its guest. Workers
 * choose at random among activities that use processes, memory, signals, threads and code, and that
 * each know what must come out. Prints how often each was done, and DONE; or FAILED and why.
 *
 *   /soak SECONDS SEED         as the first process
 *   /soak answer NUMBER TEXT   started by itself, to be seen to start */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_WORKERS = 8, STUCK_SECONDS = 60 };

static char own_name[] = "/soak";

/* Shared by all processes. */
struct worker {
    _Atomic int activity;
    _Atomic uint64_t since;
};
static struct shared {
    struct worker workers[MOST_WORKERS];
    _Atomic uint64_t done[16];
    _Atomic bool failed;
} *shared;

static uint64_t random_state;

static uint64_t next(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

static uint64_t below(uint64_t limit) { return (next() >> 8) % limit; }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = snprintf(line, sizeof line, "FAILED ");
    length += vsnprintf(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    shared->failed = true;
    if (write(1, line, length) < 0) abort();
    _exit(1);
}

static void *map(size_t bytes, int protection, int flags) {
    void *at = mmap(NULL, bytes, protection, flags | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) fail("no memory: %m");
    return at;
}

/* The child has ended with this status. */
static void expect_end(pid_t child, int status, const char *whose) {
    int got;
    if (child < 0) fail("%s: no process: %m", whose);
    if (waitpid(child, &got, 0) != child) fail("%s: is no child: %m", whose);
    if (!WIFEXITED(got) || WEXITSTATUS(got) != status)
        fail("%s: ended with %#x instead of %d", whose, got, status);
}

/* Another process changes what it is sent, in pieces of any size, and sends it back. */

static void move(int from, int to, uint8_t change) {
    uint8_t piece[3000];
    ssize_t got;
    while ((got = read(from, piece, 1 + below(sizeof piece))) > 0) {
        for (ssize_t n = 0; n < got; n++) piece[n] ^= change;
        if (write(to, piece, got) != got) _exit(2);
    }
    _exit(got < 0 ? 3 : 0);
}

static void pipes(void) {
    int there[2], back[2];
    uint8_t change = next(), sent[4000], got[4000];
    if (pipe(there) || pipe(back)) fail("no pipe: %m");
    pid_t child = fork();
    if (child == 0) {
        close(there[1]), close(back[0]);
        move(there[0], back[1], change);
    }
    close(there[0]), close(back[1]);
    for (int round = 0; round < 20; round++) {
        size_t count = 1 + below(sizeof sent), have = 0;
        for (size_t n = 0; n < count; n++) sent[n] = next();
        if (write(there[1], sent, count) != (ssize_t)count) fail("a pipe takes less: %m");
        while (have < count) {
            ssize_t more = read(back[0], got + have, count - have);
            if (more <= 0) fail("a pipe gives %zd: %m", more);
            have += more;
        }
        for (size_t n = 0; n < count; n++)
            if ((sent[n] ^ change) != got[n]) fail("a pipe changes byte %zu", n);
    }
    close(there[1]), close(back[0]);
    expect_end(child, 0, "the end of a pipe");
}

/* Programs start with what they are given. */

static const char text[] = "eleven words, of which none may be lost on the way";

static int answer(char **words) {
    return words[3] && !strcmp(words[3], text) ? (atoi(words[2]) * 7 + 1) & 0x7f : 0xff;
}

static void programs(void) {
    for (int round = 0; round < 3; round++) {
        int number = below(1000);
        char digits[12];
        snprintf(digits, sizeof digits, "%d", number);
        char *words[] = {own_name, "answer", digits, (char *)text, NULL};
        pid_t child;
        if (round & 1) {
            if (posix_spawn(&child, own_name, NULL, NULL, words, NULL)) fail("cannot spawn");
        } else if ((child = fork()) == 0) {
            execv(own_name, words);
            _exit(0xfe);
        }
        expect_end(child, (number * 7 + 1) & 0x7f, "a program");
    }
}

/* A child sees its parent's memory as it was, and what it writes only it sees. */

static uint64_t pattern(uint64_t seed, uint64_t page) {
    return (seed + page) * UINT64_C(0x9e3779b97f4a7c15);
}

static bool holds(const uint8_t *memory, uint64_t pages, uint64_t seed) {
    for (uint64_t page = 0; page < pages; page++) {
        const uint64_t *at = (const uint64_t *)(memory + page * PAGE);
        if (at[page & 511] != pattern(seed, page)) return false;
        if (at[(page + 1) & 511] != 0) return false;
    }
    return true;
}

static void fill(uint8_t *memory, uint64_t pages, uint64_t seed) {
    for (uint64_t page = 0; page < pages; page++)
        ((uint64_t *)(memory + page * PAGE))[page & 511] = pattern(seed, page);
}

static void copies(void) {
    uint64_t pages = 16 + below(400), seed = next();
    uint8_t *memory = map(pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    fill(memory, pages, seed);
    pid_t child = fork();
    if (child == 0) {
        if (!holds(memory, pages, seed)) _exit(2);
        fill(memory, pages, seed + 1);
        _exit(holds(memory, pages, seed + 1) ? 0 : 3);
    }
    if (!holds(memory, pages, seed)) fail("memory changes when it is copied");
    expect_end(child, 0, "a copy of memory");
    if (!holds(memory, pages, seed)) fail("a child changes its parent's memory");
    uint64_t more = pages + 1 + below(64);
    memory = mremap(memory, pages * PAGE, more * PAGE, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) fail("memory does not grow: %m");
    if (!holds(memory, pages, seed)) fail("memory changes when it moves");
    if (madvise(memory, pages * PAGE, MADV_DONTNEED)) fail("memory is not given back: %m");
    for (uint64_t n = 0; n < more * PAGE; n += 512)
        if (memory[n]) fail("new memory is not zero");
    if (munmap(memory, more * PAGE)) fail("memory is not unmapped: %m");
}

/* Each page that may not be accessed faults, once, where it is accessed. */

static uint8_t *guarded;
static uint64_t guarded_pages;
static volatile int faults_seen, fault_code;
static sigjmp_buf after_fault;

static void on_fault(int signal, siginfo_t *information, void *context) {
    (void)signal, (void)context;
    uint8_t *at = information->si_addr;
    faults_seen++;
    fault_code = information->si_code;
    if (at < guarded || at >= guarded + guarded_pages * PAGE) fail("a fault at %p", (void *)at);
    if (fault_code == SEGV_MAPERR) siglongjmp(after_fault, 1);
    at = (uint8_t *)((uintptr_t)at & -(uintptr_t)PAGE);
    if (mprotect(at, PAGE, PROT_READ | PROT_WRITE)) fail("cannot unprotect: %m");
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    if (sigaction(signal, &action, NULL)) fail("no handler: %m");
}

static void protections(void) {
    guarded_pages = 8 + below(60);
    guarded = map(guarded_pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    handle(SIGSEGV, on_fault);
    fill(guarded, guarded_pages, 1);
    int protection = below(2) ? PROT_READ : PROT_NONE;
    if (mprotect(guarded, guarded_pages * PAGE, protection)) fail("cannot protect: %m");
    faults_seen = 0;
    uint64_t step = below(2) ? 1 : guarded_pages - 1;
    for (uint64_t n = 0, page = 0; n < guarded_pages; n++, page = (page + step) % guarded_pages)
        *(volatile uint64_t *)(guarded + page * PAGE + 8 * (page & 511)) = pattern(2, page);
    if (faults_seen != (int)guarded_pages || fault_code != SEGV_ACCERR)
        fail("%d faults of %lu pages, code %d", faults_seen, guarded_pages, fault_code);
    if (!holds(guarded, guarded_pages, 2)) fail("a page that faulted is wrong");
    if (munmap(guarded, guarded_pages * PAGE)) fail("cannot unmap: %m");
    if (sigsetjmp(after_fault, 1) == 0) {
        (void)*(volatile uint8_t *)(guarded + below(guarded_pages * PAGE));
        fail("what is unmapped can be read");
    }
    signal(SIGSEGV, SIG_DFL);
}

/* Signals in the midst of a computation change nothing of it. */

static volatile sig_atomic_t alarms;
static volatile double disturbed;

/* Whole numbers, vectors and x87 at once; done again each time that it is asked for. */
__attribute__((noipa)) static uint64_t compute(uint64_t seed, int rounds) {
    uint64_t x = seed | 1;
    double vectors[4] = {1, 2, 3, 4};
    long double x87 = 1;
    for (int n = 0; n < rounds; n++) {
        x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
        for (int lane = 0; lane < 4; lane++)
            vectors[lane] = vectors[lane] * 0.75 + (double)(x >> (40 + lane));
        x87 = x87 / 1.5L + (long double)(x & 0xffff);
    }
    uint64_t all = x ^ (uint64_t)x87;
    for (int lane = 0; lane < 4; lane++) all = all * 31 + (uint64_t)vectors[lane];
    return all;
}

static void on_alarm(int signal, siginfo_t *information, void *context) {
    (void)signal, (void)information, (void)context;
    alarms++;
    disturbed = compute(alarms, 20);
}

static void signals(void) {
    uint64_t seed = next();
    int rounds = 20000 + below(100000);
    uint64_t expected = compute(seed, rounds);
    handle(SIGALRM, on_alarm);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    alarms = 0;
    setitimer(ITIMER_REAL, &often, NULL);
    uint64_t end = now() + UINT64_C(20000000000);
    for (int round = 0; now() < end && (round < 3 || alarms < 3); round++)
        if (compute(seed, rounds) != expected) fail("a signal changes a computation");
    setitimer(ITIMER_REAL, &never, NULL);
    if (alarms < 3) fail("%d signals of a timer", (int)alarms);
}

/* Threads that take turns, and that share a lock. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static uint64_t locked_count, turn;
static _Atomic uint64_t atomic_count;

enum { THREADS = 4, TURNS = 50 };

static void *take_turns(void *argument) {
    uint64_t own = (uintptr_t)argument;
    for (int n = 0; n < 2000; n++) {
        atomic_fetch_add(&atomic_count, own + 1);
        if (n % 20) continue;
        pthread_mutex_lock(&lock);
        locked_count++;
        pthread_mutex_unlock(&lock);
    }
    for (int n = 0; n < TURNS; n++) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != own) pthread_cond_wait(&turned, &lock);
        turn++;
        pthread_cond_broadcast(&turned);
        pthread_mutex_unlock(&lock);
    }
    return (void *)compute(own, 5000);
}

static void threads(void) {
    pthread_t all[THREADS];
    locked_count = turn = atomic_count = 0;
    for (uintptr_t n = 0; n < THREADS; n++)
        if (pthread_create(&all[n], NULL, take_turns, (void *)n)) fail("no thread: %m");
    for (uintptr_t n = 0; n < THREADS; n++) {
        void *result;
        pthread_join(all[n], &result);
        if ((uint64_t)result != compute(n, 5000)) fail("a thread computes something else");
    }
    if (turn != THREADS * TURNS) fail("%lu turns", turn);
    if (locked_count != THREADS * 100) fail("%lu under a lock", locked_count);
    if (atomic_count != 2000 * (1 + 2 + 3 + 4)) fail("%lu counted", atomic_count);
}

/* Code that is written while it runs: mov eax, NUMBER; ret. */

typedef uint32_t function(void);

static void write_function(uint8_t *at, uint32_t number) {
    at[0] = 0xb8;
    memcpy(at + 1, &number, 4);
    at[5] = 0xc3;
}

static void rewritten(void) {
    int file = memfd_create("code", 0);
    if (file < 0 || ftruncate(file, 2 * PAGE)) fail("no file in memory: %m");
    bool two_views = below(2);
    int both = PROT_READ | PROT_WRITE | PROT_EXEC;
    uint8_t *writable = mmap(NULL, 2 * PAGE, both, MAP_SHARED, file, 0);
    uint8_t *runs = writable;
    if (two_views) runs = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    if (writable == MAP_FAILED || runs == MAP_FAILED) fail("no view of code: %m");
    for (int n = 0; n < 60; n++) {
        /* Now and then across the two pages. */
        uint64_t offset = below(4) ? below(PAGE) : PAGE - 1 - below(6);
        uint32_t number = next();
        write_function(writable + offset, number);
        uint32_t got = ((function *)(runs + offset))();
        if (got != number) fail("code at %lx is old: %x, not %x", offset, got, number);
    }
    munmap(writable, 2 * PAGE);
    if (two_views) munmap(runs, 2 * PAGE);
    close(file);
}

/* The same while another thread runs it: what has been said to be there is there. */

static uint8_t *patched;
static _Atomic uint32_t said;
static _Atomic bool no_more;

static void *run_patched(void *argument) {
    (void)argument;
    uint64_t calls = 0;
    while (!no_more) {
        uint32_t least = said;
        __builtin_ia32_pause();
        asm volatile("cpuid" : : "a"(0), "c"(0) : "rbx", "rdx", "memory");
        uint32_t got = ((function *)patched)();
        calls++;
        if (got < least) fail("another thread's code is old: %u, not %u", got, least);
    }
    return (void *)calls;
}

static void patches(void) {
    pthread_t other;
    void *calls;
    uint8_t *page = map(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE);
    /* The number is aligned, so that it changes at once. */
    patched = page + 63 + 4;
    write_function(patched, 0);
    said = 0;
    no_more = false;
    if (pthread_create(&other, NULL, run_patched, NULL)) fail("no thread: %m");
    for (uint32_t n = 1; n <= 100; n++) {
        atomic_store((_Atomic uint32_t *)(patched + 1), n);
        said = n;
        if (n % 10 == 0) usleep(below(300));
    }
    no_more = true;
    pthread_join(other, &calls);
    munmap(page, PAGE);
}

/* Files in memory, read through mappings by another process. */

static void files(void) {
    char name[64];
    snprintf(name, sizeof name, "/file-%d", getpid());
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint64_t pages = 4 + below(60), seed = next();
    if (file < 0 || ftruncate(file, pages * PAGE)) fail("no file: %m");
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t word = pattern(seed, page);
        if (pwrite(file, &word, 8, page * PAGE + 8 * (page & 511)) != 8) fail("no write: %m");
    }
    pid_t child = fork();
    if (child == 0) {
        uint8_t *view = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (view == MAP_FAILED || !holds(view, pages, seed)) _exit(2);
        fill(view, pages, seed + 1);
        _exit(0);
    }
    expect_end(child, 0, "a reader of a file");
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t word;
        if (pread(file, &word, 8, page * PAGE + 8 * (page & 511)) != 8) fail("no read: %m");
        if (word != pattern(seed + 1, page)) fail("a file has not what was written");
    }
    close(file);
    if (unlink(name)) fail("a file stays: %m");
}

/* Sleeps, and a clock that only goes forward. */
static void sleeps(void) {
    for (int n = 0; n < 10; n++) {
        uint64_t before = now(), nanoseconds = below(2000000);
        struct timespec time = {0, nanoseconds};
        while (nanosleep(&time, &time)) {}
        if (now() < before + nanoseconds) fail("a sleep of %lu ns ended early", nanoseconds);
    }
}

static const struct activity {
    const char *name;
    void (*act)(void);
} ACTIVITIES[] = {{"pipes", pipes},     {"programs", programs},   {"copies", copies},
                  {"protections", protections}, {"signals", signals}, {"threads", threads},
                  {"rewritten", rewritten}, {"patches", patches}, {"files", files},
                  {"sleeps", sleeps}};

enum { COUNT = sizeof ACTIVITIES / sizeof *ACTIVITIES };

static void work(struct worker *self, uint64_t seed, uint64_t end) {
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    while (now() < end && !shared->failed) {
        int activity = below(COUNT);
        self->activity = activity;
        self->since = now();
        ACTIVITIES[activity].act();
        shared->done[activity]++;
    }
    self->since = 0;
    _exit(0);
}

/* Until all workers have ended; none may be at the same activity for long. */
static void watch(pid_t *workers, int count) {
    for (int left = count; left > 0;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        for (int n = 0; n < count; n++) {
            if (ended > 0 && workers[n] == ended) {
                left--;
                if (status) fail("a worker ended with %#x", status);
            }
            uint64_t since = shared->workers[n].since;
            if (since && now() > since + STUCK_SECONDS * UINT64_C(1000000000))
                fail("%s is stuck", ACTIVITIES[shared->workers[n].activity].name);
        }
        if (ended <= 0) usleep(20000);
    }
}

static void soak(uint64_t seconds, uint64_t seed) {
    pid_t workers[MOST_WORKERS];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int count = processors * 2 > MOST_WORKERS ? MOST_WORKERS : processors * 2;
    uint64_t end = now() + seconds * UINT64_C(1000000000);
    for (int n = 0; n < count; n++)
        if ((workers[n] = fork()) == 0) work(&shared->workers[n], seed * 100 + n + 1, end);
    watch(workers, count);
    /* The terminal has echoed what nobody reads. */
    printf("\n");
    for (int n = 0; n < COUNT; n++)
        printf("COUNT %s %lu\n", ACTIVITIES[n].name, shared->done[n]);
    printf("PROCESSORS %ld\n", processors);
    if (!shared->failed) printf("DONE\n");
    fflush(stdout);
}

int main(int count, char **words) {
    if (count > 2 && !strcmp(words[1], "answer")) return answer(words);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    bool is_first = getpid() == 1;
    mkdir("/sys", 0755);
    mount("none", "/sys", "sysfs", 0, NULL);
    /* A fork, so that a failure ends it and not the machine's first process. */
    pid_t child = fork();
    if (child == 0) {
        soak(count > 1 ? atoi(words[1]) : 5, count > 2 ? atoll(words[2]) : 1);
        _exit(0);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    if (is_first) {
        sync();
        reboot(RB_POWER_OFF);
    }
    return 0;
}
