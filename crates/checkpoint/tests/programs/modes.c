// Threads and processes that do not run as usual: scheduling, processors, priorities, execution domains, and what they
// have forbidden themselves.
#include "check.h"
#include <linux/ioprio.h>
#include <pthread.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/resource.h>

#define SET_MDWE 65
#define GET_MDWE 66
enum { BATCH, PLAIN, PINNED, COUNTERLESS, DOMAIN, CAREFUL, FIFO, THREADS };
static pthread_barrier_t asked, answered;
static const char *volatile wrong;
static int has_fifo, is_careful, may_pin, usual;
static cpu_set_t one;

static void expect(int holds, const char *what) { if (!holds) wrong = what; }
static void begin_as(int number) {
    struct sched_param none = {0}, high = {.sched_priority = 7};
    switch (number) {
    case BATCH: check(sched_setscheduler(0, SCHED_BATCH, &none) == 0 && setpriority(PRIO_PROCESS, 0, 19) == 0, "batch"); break;
    case PLAIN: check(sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none) == 0, "reset"); break;
    case PINNED: may_pin = sched_setaffinity(0, sizeof one, &one) == 0; break;
    case COUNTERLESS: check(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0, "counter"); break;
    case DOMAIN: check(personality(ADDR_NO_RANDOMIZE | PER_LINUX) != -1, "domain");
        check(syscall(SYS_ioprio_set, 1, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 7)) == 0, "input"); break;
    // Not every processor can be told.
    case CAREFUL: is_careful = prctl(PR_SET_SPECULATION_CTRL, 0, 4, 0, 0) == 0; break;
    // Nor may everybody.
    case FIFO: has_fifo = sched_setscheduler(0, SCHED_FIFO, &high) == 0; break;
    }
}
static void look(int number) {
    struct sched_param found = {0};
    int counter = 0, policy = sched_getscheduler(0);
    sched_getparam(0, &found);
    expect(policy == (number == BATCH ? SCHED_BATCH : number == PLAIN ? SCHED_OTHER | SCHED_RESET_ON_FORK : number == FIFO && has_fifo ? SCHED_FIFO : SCHED_OTHER), "policy");
    expect(found.sched_priority == (number == FIFO && has_fifo ? 7 : 0), "priority");
    expect(getpriority(PRIO_PROCESS, 0) == (number == BATCH ? 19 : usual), "nice");
    cpu_set_t may;
    expect(sched_getaffinity(0, sizeof may, &may) == 0, "processors");
    if (may_pin) expect(!CPU_EQUAL(&may, &one) == (number != PINNED) || CPU_COUNT(&may) == 1, "processors");
    expect(prctl(PR_GET_TSC, &counter) == 0 && counter == (number == COUNTERLESS ? PR_TSC_SIGSEGV : PR_TSC_ENABLE), "counter");
    expect(personality(0xffffffff) == (number == DOMAIN ? ADDR_NO_RANDOMIZE : 0), "domain");
    int input = (int)syscall(SYS_ioprio_get, 1, 0);
    expect((input == IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 7)) == (number == DOMAIN), "input");
    int speculates = prctl(PR_GET_SPECULATION_CTRL, 0, 0, 0, 0);
    if (is_careful) expect(speculates == (number == CAREFUL ? 5 : 3), "speculation");
}
static int tasks[THREADS];
static volatile int rounds[THREADS];
static void *thread(void *argument) {
    int number = (int)(intptr_t)argument;
    begin_as(number);
    tasks[number] = (int)syscall(SYS_gettid);
    for (;;) {
        pthread_barrier_wait(&answered);
        rounds[number]++;
        pthread_barrier_wait(&asked);
        look(number);
    }
    return 0;
}
// All threads wait to be asked.
static void settle(int round) {
    for (int number = 0; number < THREADS; number++) {
        char path[64], text[256] = {0};
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tasks[number]);
        do {
            usleep(1000);
            int file = open(path, O_RDONLY);
            check(file >= 0 && read(file, text, sizeof text - 1) > 0, "stat");
            close(file);
        } while (rounds[number] < round || !strstr(text, ") S "));
    }
}
static int score(void) {
    char text[16] = {0};
    int file = open("/proc/self/oom_score_adj", O_RDONLY);
    check(file >= 0 && read(file, text, 15) > 0, "score");
    close(file);
    return atoi(text);
}

// A child that executes nothing that it has written, where the kernel knows that.
static volatile int *strict;
static void be_strict(void) {
    signal(SIGUSR1, SIG_DFL);
    if (prctl(SET_MDWE, 1, 0, 0, 0)) { *strict = -1; _exit(0); }
    for (;;) {
        put_word(strict, 1);
        wait_while(strict, 1);
        void *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int may = at == MAP_FAILED || mprotect(at, 4096, PROT_READ | PROT_EXEC) == 0;
        munmap(at, 4096);
        if (may || prctl(GET_MDWE, 0, 0, 0, 0) != 1) { put_word(strict, 3); _exit(0); }
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    usual = getpriority(PRIO_PROCESS, 0);
    sigset_t mask;
    sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mask, 0);
    cpu_set_t may;
    check(sched_getaffinity(0, sizeof may, &may) == 0, "processors");
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) if (CPU_ISSET(cpu, &may)) { CPU_SET(cpu, &one); break; }
    strict = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fork() == 0) be_strict();
    while (*strict == 0) usleep(1000);
    int file = open("/proc/self/oom_score_adj", O_WRONLY);
    check(write(file, "777", 3) == 3, "write a score");
    close(file);
    pthread_barrier_init(&asked, 0, THREADS + 1);
    pthread_barrier_init(&answered, 0, THREADS + 1);
    pthread_t id;
    for (intptr_t number = 0; number < THREADS; number++) pthread_create(&id, 0, thread, (void *)number);
    pthread_barrier_wait(&answered);
    settle(1);
    say("ready\n");
    for (int round = 2;; round++) {
        wait_to_be_told();
        pthread_barrier_wait(&asked);
        pthread_barrier_wait(&answered);
        check(!wrong, wrong);
        check(score() == 777, "score");
        if (*strict >= 0) {
            put_word(strict, 2);
            wait_while(strict, 2);
            check(*strict == 1, "strict");
        }
        settle(round);
        say("ok\n");
    }
}
