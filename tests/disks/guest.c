/* What guests do with a disk, of which the test looks at the other end. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define SECTOR 512

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static const char *disk_name = "/dev/vda";

static int open_disk(int flags) {
    int disk = open(disk_name, flags, 0600);
    if (disk < 0)
        fail(disk_name);
    return disk;
}

static void *pages(int count, int protection) {
    void *at = mmap(NULL, count * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        fail("mmap");
    return at;
}

/* `mov eax, value; ret` at the start of a page. */
static void make_function(unsigned char *page, uint32_t value) {
    page[0] = 0xb8;
    memcpy(page + 1, &value, 4);
    page[5] = 0xc3;
}

static uint32_t (*volatile shared_function)(void);
static volatile int is_over;

static void *call_all_the_time(void *unused) {
    (void)unused;
    while (!is_over)
        shared_function();
    return NULL;
}

/* Functions are read from the disk, directly into the page from which the last one has run. Another
   thread runs it all the time. */
static void run_what_was_read(int rounds) {
    int disk = open_disk(O_RDWR | O_DIRECT);
    unsigned char *out = pages(1, PROT_READ | PROT_WRITE);
    for (uint32_t n = 0; n < 16; n++) {
        make_function(out, 1000 + n);
        if (pwrite(disk, out, PAGE, n * PAGE) != PAGE)
            fail("pwrite");
    }
    unsigned char *code = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    make_function(code, 7);
    uint32_t (*function)(void) = (uint32_t (*)(void))code;
    shared_function = function;
    pthread_t other;
    pthread_create(&other, NULL, call_all_the_time, NULL);
    for (int round = 0; round < rounds; round++) {
        uint32_t n = (uint32_t)round * 7 % 16;
        if (pread(disk, code, PAGE, n * PAGE) != PAGE)
            fail("pread");
        for (int again = 0; again < 20; again++) {
            uint32_t got = function();
            if (got != 1000 + n) {
                printf("round %d: %u instead of %u\n", round, got, 1000 + n);
                exit(1);
            }
        }
    }
    is_over = 1;
    pthread_join(other, NULL);
    printf("done\n");
}

/* Records, each of which is said to be there when it is. */
static void commit_for_ever(void) {
    int disk = open_disk(O_RDWR | O_CREAT);
    char record[SECTOR] = {0};
    for (unsigned n = 1;; n++) {
        for (int half = 0; half < 2; half++) {
            snprintf(record, sizeof record, "record %u half %d", n, half);
            if (pwrite(disk, record, SECTOR, (2 * (off_t)n + half * 100000) * SECTOR) != SECTOR)
                fail("pwrite");
        }
        if (fdatasync(disk))
            fail("fdatasync");
        printf("%u\n", n);
        fflush(stdout);
    }
}

/* All records up to one that was said to be there. */
static void check_committed(unsigned last) {
    int disk = open_disk(O_RDONLY);
    char record[SECTOR], expected[SECTOR];
    for (unsigned n = 1; n <= last; n++) {
        for (int half = 0; half < 2; half++) {
            snprintf(expected, sizeof expected, "record %u half %d", n, half);
            if (pread(disk, record, SECTOR, (2 * (off_t)n + half * 100000) * SECTOR) != SECTOR)
                fail("pread");
            if (strcmp(record, expected)) {
                printf("%s of %u is lost\n", expected, last);
                exit(1);
            }
        }
    }
    printf("done\n");
}

/* Several threads write and read back what is theirs, in all sizes, past the page cache. */
struct share {
    pthread_t thread;
    unsigned seed;
    off_t first;
    int sectors, rounds;
};

static void *write_and_verify(void *argument) {
    struct share *share = argument;
    int disk = open_disk(O_RDWR | O_DIRECT);
    uint64_t *buffer = pages(64, PROT_READ | PROT_WRITE);
    uint64_t *written = calloc(share->sectors, sizeof *written);
    for (int round = 1; round <= share->rounds; round++) {
        int count = 1 + rand_r(&share->seed) % 128;
        int at = rand_r(&share->seed) % (share->sectors - count);
        off_t place = (share->first + at) * SECTOR;
        if (rand_r(&share->seed) % 2) {
            for (int n = 0; n < count; n++) {
                written[at + n] = (uint64_t)round << 32 | (share->first + at + n);
                for (int word = 0; word < SECTOR / 8; word++)
                    buffer[n * SECTOR / 8 + word] = written[at + n];
            }
            if (pwrite(disk, buffer, count * SECTOR, place) != count * SECTOR)
                fail("pwrite");
            continue;
        }
        if (pread(disk, buffer, count * SECTOR, place) != count * SECTOR)
            fail("pread");
        for (int word = 0; word < count * SECTOR / 8; word++)
            if (buffer[word] != written[at + word * 8 / SECTOR]) {
                printf("sector %d: %lx instead of %lx\n", at, buffer[word],
                       written[at + word * 8 / SECTOR]);
                exit(1);
            }
    }
    free(written);
    close(disk);
    return NULL;
}

static void verify(int threads, int rounds) {
    struct share shares[16];
    for (int n = 0; n < threads; n++) {
        shares[n] = (struct share){.seed = n, .first = n * 4096, .sectors = 4096, .rounds = rounds};
        pthread_create(&shares[n].thread, NULL, write_and_verify, &shares[n]);
    }
    for (int n = 0; n < threads; n++)
        pthread_join(shares[n].thread, NULL);
    printf("done\n");
}

/* Two threads on each processor write sectors one after the other, have some of them flushed, and read each back at
   once, until there is a file of this name. What is in a sector says which it is and in which round it was written,
   so that whoever goes on from a snapshot finds what it has written itself. */
#define PLACES (1 << 17)

struct writer {
    pthread_t thread;
    int number, processor;
    uint64_t rounds;
};

static const char *end_name;

static void *write_and_read_back(void *argument) {
    struct writer *writer = argument;
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(writer->processor, &processors);
    if (sched_setaffinity(0, sizeof processors, &processors))
        fail("sched_setaffinity");
    int disk = open_disk(O_RDWR | O_DIRECT);
    uint64_t *out = pages(1, PROT_READ | PROT_WRITE), *in = pages(1, PROT_READ | PROT_WRITE);
    for (uint64_t round = 0; access(end_name, F_OK); round++) {
        uint64_t sector = (uint64_t)writer->number * PLACES + round % PLACES;
        for (int word = 0; word < SECTOR / 8; word += 2) {
            out[word] = sector;
            out[word + 1] = round;
        }
        if (pwrite(disk, out, SECTOR, sector * SECTOR) != SECTOR)
            fail("pwrite");
        if (round % 8 == 7 && fdatasync(disk))
            fail("fdatasync");
        memset(in, 0, SECTOR);
        if (pread(disk, in, SECTOR, sector * SECTOR) != SECTOR)
            fail("pread");
        if (memcmp(in, out, SECTOR)) {
            printf("thread %d, round %lu: %lx of %lx\n", writer->number, round, in[1], in[0]);
            exit(1);
        }
        writer->rounds = round + 1;
        if (writer->number == 0 && round == 200) {
            printf("begun\n");
            fflush(stdout);
        }
    }
    return NULL;
}

static void write_until(int processors, const char *end) {
    struct writer writers[16];
    int count = 2 * processors;
    end_name = end;
    for (int n = 0; n < count; n++) {
        writers[n] = (struct writer){.number = n, .processor = n % processors};
        pthread_create(&writers[n].thread, NULL, write_and_read_back, &writers[n]);
    }
    for (int n = 0; n < count; n++)
        pthread_join(writers[n].thread, NULL);
    printf("rounds");
    for (int n = 0; n < count; n++)
        printf(" %lu", writers[n].rounds);
    printf("\n");
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (access(disk_name, F_OK))
        disk_name = "/dev/xvda";
    if (!strcmp(what, "run"))
        run_what_was_read(atoi(words[2]));
    else if (!strcmp(what, "commit") && count > 2) {
        disk_name = words[2];
        commit_for_ever();
    } else if (!strcmp(what, "commit"))
        commit_for_ever();
    else if (!strcmp(what, "check")) {
        if (count > 3)
            disk_name = words[3];
        check_committed(atoi(words[2]));
    } else if (!strcmp(what, "verify"))
        verify(atoi(words[2]), atoi(words[3]));
    else if (!strcmp(what, "until"))
        write_until(atoi(words[2]), words[3]);
    else
        return 2;
    return 0;
}
