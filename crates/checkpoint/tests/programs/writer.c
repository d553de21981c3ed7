// A process, with children and a thread, that writes to its memory without end, in every way that memory is written or
// changes its place; at SIGUSR1 it says "ok" if everything is as it should be.
#include "check.h"
#include <pthread.h>
#include <sys/uio.h>

#define PAGES 4096
#define PAGE 4096
#define MOVED 64

static struct page { unsigned index, count, sum, rest[1021]; } *arena;
static unsigned counts[PAGES];
static unsigned char *moved, moved_value;
static volatile int asked;
static unsigned state = 5;

static unsigned next(unsigned limit) {
    state = state * 1103515245u + 12345u;
    return (state >> 16) % limit;
}

static void on_signal(int signal) { (void)signal; asked = 1; }

// A page that says what it is, written by the program or by the kernel.
static void put(unsigned index, int by_kernel) {
    struct page page = {index, counts[index] + 1, 0, {0}};
    page.sum = page.index * 31 + page.count;
    page.rest[next(1021)] = page.sum;
    counts[index]++;
    if (!by_kernel) { arena[index] = page; return; }
    struct iovec from = {&page, PAGE}, to = {&arena[index], PAGE};
    check(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == PAGE, "kernel");
}

static void verify(void) {
    for (unsigned index = 0; index < PAGES; index++) {
        struct page *page = &arena[index];
        check(page->count == counts[index], "count");
        check(!page->count || (page->index == index && page->sum == index * 31 + page->count), "page");
    }
    for (unsigned at = 0; at < MOVED * PAGE; at += PAGE) check(moved[at] == moved_value, "moved");
}

static void move(void) {
    unsigned char *place = mmap(0, (MOVED + 1) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    moved = mremap(moved, MOVED * PAGE, MOVED * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    check(moved == place && munmap(place + MOVED * PAGE, PAGE) == 0, "move");
    if (next(2)) {
        moved_value++;
        for (unsigned at = 0; at < MOVED * PAGE; at += PAGE) moved[at] = moved_value;
    }
}

// Something is there for a moment, at an address where something else was or will be.
static void fleeting(void) {
    static unsigned char *left;
    if (left) munmap(left, 32 * PAGE);
    left = mmap(0, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(left != MAP_FAILED, "fleeting");
    memset(left, (int)next(256), next(32 * PAGE));
    if (next(2)) madvise(left, 8 * PAGE, MADV_DONTNEED);
    if (next(2)) mprotect(left, PAGE, PROT_READ);
    if (next(8) == 0) check(sbrk(8 * PAGE) != (void *)-1 && memset((char *)sbrk(0) - PAGE, 7, PAGE), "brk");
}

static void *thread(void *unused) {
    static volatile unsigned mine[64 * 1024];
    for (unsigned turn = 1;; turn++) { mine[turn % (64 * 1024)] += turn; usleep(20); }
    return unused;
}

// A child that shares its pages and changes some; the last one stays.
static void bear(void) {
    static pid_t child;
    if (child) { kill(child, SIGKILL); check(waitpid(child, 0, 0) == child, "wait"); }
    child = fork();
    if (child == 0) {
        for (unsigned turn = 0;; turn++) { arena[turn % PAGES].rest[7] = turn; usleep(50); }
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    signal(SIGUSR1, on_signal);
    arena = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    moved = mmap(0, MOVED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(arena != MAP_FAILED && moved != MAP_FAILED, "mmap");
    for (unsigned index = 0; index < PAGES; index += 1 + next(3)) put(index, 0);
    pthread_t other;
    check(pthread_create(&other, 0, thread, 0) == 0, "thread");
    say("ready\n");
    for (unsigned turn = 1;; turn++) {
        put(next(PAGES), next(4) == 0);
        if (turn % 64 == 0) move();
        if (turn % 96 == 0) fleeting();
        if (turn % 4096 == 0) bear();
        // Nothing of a page is left but that it is empty.
        if (turn % 128 == 0) { unsigned gone = next(PAGES); counts[gone] = 0; madvise(&arena[gone], PAGE, MADV_DONTNEED); }
        if (turn % 16 == 0) usleep(100);
        if (asked) { asked = 0; verify(); say("ok\n"); }
    }
}
