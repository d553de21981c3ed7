/* Context switches, as lmbench's lat_ctx has them: a token goes round a ring of processes, each of which reads an
 * array of its own before it passes the token on. What the same costs one process, pipes and arrays, is
 * subtracted. */
#define _GNU_SOURCE
#include "bench.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16, WORD = sizeof(int) };

static void touch(const int *array, long bytes) {
    int sum = 0;
    for (long i = 0; i < bytes / WORD; i++) sum += array[i];
    sink += sum;
}

static int *array_of(long bytes) {
    int *array = calloc(1, bytes + 1);
    must(array != NULL, "calloc");
    for (long i = 0; i < bytes / WORD; i++) array[i] = i;
    return array;
}

static int take(int from) {
    int token;
    return read(from, &token, sizeof token) == sizeof token;
}

static int pass(int to) {
    int token = 1;
    return write(to, &token, sizeof token) == sizeof token;
}

/* n tokens through `count` pipes by one process, which touches one array for each: what is no switch. */
static double alone(long n, int count, long bytes, int pipes[MOST][2]) {
    int *array = array_of(bytes);
    double start = now();
    for (long i = 0; i < n; i++) {
        must(pass(pipes[i % count][1]) && take(pipes[i % count][0]), "token");
        touch(array, bytes);
    }
    double took = now() - start;
    free(array);
    return took;
}

/* n switches in a ring of `count` processes with arrays of so many bytes. */
static double ring(long n, int count, long bytes) {
    int pipes[MOST][2];
    pid_t children[MOST];
    long rounds = n / count + 1;
    for (int i = 0; i < count; i++) must(!pipe(pipes[i]), "pipe");
    double overhead = alone(rounds * count, count, bytes, pipes);
    for (int i = 1; i < count; i++) {
        children[i] = fork();
        must(children[i] >= 0, "fork");
        if (!children[i]) {
            int *array = array_of(bytes);
            /* The first round only waits for the others to be there. */
            for (long round = 0; round <= rounds; round++) {
                if (!take(pipes[i - 1][0])) _exit(1);
                touch(array, bytes);
                if (!pass(pipes[i][1])) _exit(1);
            }
            _exit(0);
        }
    }
    int *array = array_of(bytes);
    double start = 0;
    for (long round = 0; round <= rounds; round++) {
        if (round == 1) start = now();
        must(pass(pipes[0][1]) && take(pipes[count - 1][0]), "token");
        touch(array, bytes);
    }
    double took = now() - start;
    free(array);
    for (int i = 1; i < count; i++) {
        int status;
        must(waitpid(children[i], &status, 0) == children[i] && !status, "a child");
    }
    for (int i = 0; i < count; i++) close(pipes[i][0]), close(pipes[i][1]);
    /* Noise is no reason to have been faster than nothing. */
    took -= overhead;
    return (took > 1 ? took : 1) / (rounds * count) * n;
}

double switch_2p_0k(long n) { return ring(n, 2, 0); }
double switch_2p_16k(long n) { return ring(n, 2, 16 << 10); }
double switch_2p_64k(long n) { return ring(n, 2, 64 << 10); }
double switch_8p_16k(long n) { return ring(n, 8, 16 << 10); }
double switch_8p_64k(long n) { return ring(n, 8, 64 << 10); }
double switch_16p_16k(long n) { return ring(n, 16, 16 << 10); }
double switch_16p_64k(long n) { return ring(n, 16, 64 << 10); }
