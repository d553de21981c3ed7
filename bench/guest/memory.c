/* Page faults and mappings. */
#define _GNU_SOURCE
#include "bench.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 1024 };

static char *map(long pages, int flags, int file) {
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
    must(memory != MAP_FAILED, "mmap");
    return memory;
}

/* n first writes to pages, a batch for each mapping; only the writes are timed. */
static double touch(long n, int flags, int file) {
    double took = 0;
    for (long left = n; left > 0; left -= BATCH) {
        long pages = left < BATCH ? left : BATCH;
        char *memory = map(BATCH, flags, file);
        madvise(memory, BATCH * PAGE, MADV_NOHUGEPAGE);
        double start = now();
        for (long i = 0; i < pages; i++) *(volatile char *)(memory + i * PAGE) = 1;
        took += now() - start;
        munmap(memory, BATCH * PAGE);
    }
    return took;
}

double anonymous_fault(long n) { return touch(n, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

/* Of a file that is in memory. Writes to a shared mapping: reads would map around the fault. */
double file_fault(long n) {
    static const char zeroes[PAGE];
    int file = open(SCRATCH, O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(file >= 0, "create " SCRATCH);
    for (int i = 0; i < BATCH; i++) must(write(file, zeroes, PAGE) == PAGE, "write " SCRATCH);
    double took = touch(n, MAP_SHARED, file);
    close(file);
    unlink(SCRATCH);
    return took;
}

/* 16 pages mapped, written to and unmapped. */
double map_touch_unmap(long n) {
    enum { PAGES = 16 };
    double start = now();
    for (long i = 0; i < n; i++) {
        char *memory = map(PAGES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        for (int page = 0; page < PAGES; page++) *(volatile char *)(memory + page * PAGE) = 1;
        munmap(memory, PAGES * PAGE);
    }
    return now() - start;
}
