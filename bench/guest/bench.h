/* What the files of the guest's runner share. */
#pragma once
#include <stdint.h>
#include <time.h>

/* A number that is measured by calling a function: it does something n times and returns how many
 * nanoseconds that took, without what it needs to prepare; negative if it cannot be done here. */
struct program {
    const char *name;
    double (*run)(long n);
};

#define UNSUPPORTED (-1.0)

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Results go here, so that no compiler drops the work. */
extern volatile uint64_t sink;

/* This program's own file, to be executed again. */
extern char self[4096];

/* A file on a file system in memory. */
#define SCRATCH "/tmp/bench-scratch"

/* End the program, saying why, where the system refuses what every Linux can do. */
void must(int fine, const char *what);

double sha256(long n), nbody(long n), sort(long n), bytecode(long n), chase(long n);
double copy(long n), copy_16k(long n), sse(long n), avx(long n);
double null_syscall(long n), read_byte(long n), stat_file(long n), open_close(long n);
double signal_delivery(long n), protection_fault(long n);
double pipe_round_trip(long n), unix_round_trip(long n), tcp_round_trip(long n);
double fork_exit(long n), fork_exec(long n), shell(long n), thread(long n);
double anonymous_fault(long n), file_fault(long n), map_touch_unmap(long n);
double switch_2p_0k(long n), switch_2p_16k(long n), switch_2p_64k(long n), switch_8p_16k(long n);
double switch_8p_64k(long n), switch_16p_16k(long n), switch_16p_64k(long n);
double create_0k(long n), delete_0k(long n), create_10k(long n), delete_10k(long n);
double map_file(long n), select_tcp(long n), signal_install(long n);
