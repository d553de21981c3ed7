/* The programs that are measured. As PID 1 of a machine it mounts nothing, runs all of them, waits a
 * moment so that its machine's memory can be looked at, and switches the machine off. Anywhere else
 * it just runs them. Every line is `NAME NANOSECONDS`. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static volatile uint64_t sink;

/* SHA-256 (FIPS 180-4), the compression function over a buffer. */
static uint32_t round_constant[64];
static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }
static void sha256(uint32_t *state, const uint8_t *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        uint32_t word;
        memcpy(&word, block + 4 * i, 4);
        w[i] = __builtin_bswap32(word);
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                     ((e & v[5]) ^ (~e & v[6])) + round_constant[i] + w[i];
        uint32_t u = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                     ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}
static void run_sha256(int scale) {
    static uint8_t data[1 << 16];
    uint32_t state[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < 64; i++) round_constant[i] = 0x9e3779b9u * (i + 1);
    for (int pass = 0; pass < 40 * scale; pass++)
        for (size_t at = 0; at < sizeof data; at += 64) sha256(state, data + at);
    sink = state[0];
}

struct body { double x, y, z, vx, vy, vz, m; };
static void run_nbody(int scale) {
    static struct body b[5];
    for (int i = 0; i < 5; i++)
        b[i] = (struct body){i * 1.3, i * i * 0.7, 3 - i, 0.1 * i, 0, 0.2, 1 + i};
    for (int n = 0; n < 60000 * scale; n++) {
        for (int i = 0; i < 5; i++)
            for (int j = i + 1; j < 5; j++) {
                double dx = b[i].x - b[j].x, dy = b[i].y - b[j].y, dz = b[i].z - b[j].z;
                double d2 = dx * dx + dy * dy + dz * dz, mag = 0.01 / (d2 * sqrt(d2));
                b[i].vx -= dx * b[j].m * mag, b[i].vy -= dy * b[j].m * mag;
                b[i].vz -= dz * b[j].m * mag, b[j].vx += dx * b[i].m * mag;
                b[j].vy += dy * b[i].m * mag, b[j].vz += dz * b[i].m * mag;
            }
        for (int i = 0; i < 5; i++)
            b[i].x += 0.01 * b[i].vx, b[i].y += 0.01 * b[i].vy, b[i].z += 0.01 * b[i].vz;
    }
    sink = b[0].x > 0;
}

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}
static void run_qsort(int scale) {
    static int array[1 << 16];
    for (int pass = 0; pass < 2 * scale; pass++) {
        uint32_t x = 12345 + pass;
        for (int i = 0; i < 1 << 16; i++) array[i] = (x = x * 1103515245 + 12345) >> 1;
        qsort(array, 1 << 16, sizeof *array, compare);
    }
    sink = array[1000];
}

static void run_bytecode(int scale) {
    static volatile uint8_t code[] = {0, 1, 2, 3, 4, 5, 1, 2, 6};
    long stack[16] = {0}, accumulator = 0, left = 1000000L * scale;
    int depth = 0, pc = 0;
    while (left > 0) switch (code[pc++]) {
        case 0: stack[depth++ & 15] = accumulator; break;
        case 1: accumulator += 3; break;
        case 2: accumulator ^= left; break;
        case 3: accumulator += stack[(depth - 1) & 15]; break;
        case 4: depth--; break;
        case 5: accumulator = (unsigned long)accumulator << 1 | (accumulator >> 63 & 1); break;
        default: pc = 0; left -= 4; break;
    }
    sink = accumulator;
}

static void run_chase(int scale) {
    enum { N = 1 << 20 };
    static uint32_t next[N];
    for (uint32_t i = 0; i < N; i++) next[i] = (i * 69069u + 1) & (N - 1);
    uint32_t at = 0;
    for (long i = 0; i < 1000000L * scale; i++) at = next[at];
    sink = at;
}

static void null_syscall(int n) {
    for (int i = 0; i < n; i++) syscall(SYS_getppid);
}
static void pipe_round_trip(int n) {
    int there[2], back[2];
    char byte = 0;
    if (pipe(there) || pipe(back)) exit(1);
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < n; i++)
            if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1) _exit(1);
        _exit(0);
    }
    for (int i = 0; i < n; i++)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) exit(1);
    waitpid(child, NULL, 0);
}
static char self[4096];
static void fork_exec(int n) {
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (!child) {
            execl(self, self, "nothing", NULL);
            _exit(1);
        }
        waitpid(child, NULL, 0);
    }
}
static void page_fault(int n) {
    char *memory = mmap(NULL, n * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    madvise(memory, n * 4096L, MADV_NOHUGEPAGE);
    for (int i = 0; i < n; i++) memory[i * 4096L] = 1;
    munmap(memory, n * 4096L);
}

static void measure(const char *name, void (*run)(int), int count, int per) {
    double start = now();
    run(count);
    printf("%s %.1f\n", name, (now() - start) / per);
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "nothing")) return 0;
    int machine = getpid() == 1, scale = count > 1 ? atoi(arguments[1]) : 1;
    printf("init 0\n");
    fflush(stdout);
    snprintf(self, sizeof self, "%s", machine ? "/init" : arguments[0]);
    for (int i = 1; i < count; i++)
        if (!strncmp(arguments[i], "scale=", 6)) scale = atoi(arguments[i] + 6);
    if (getenv("scale")) scale = atoi(getenv("scale"));
    if (scale < 1) scale = 1;
    measure("sha256", run_sha256, scale, 1);
    measure("nbody", run_nbody, scale, 1);
    measure("qsort", run_qsort, scale, 1);
    measure("bytecode", run_bytecode, scale, 1);
    measure("chase", run_chase, 10 * scale, 1);
    measure("null-syscall", null_syscall, 100000 * scale, 100000 * scale);
    measure("pipe-round-trip", pipe_round_trip, 3000 * scale, 3000 * scale);
    measure("fork-exec", fork_exec, 50 * scale, 50 * scale);
    measure("page-fault", page_fault, 10000, 10000);
    printf("idle 0\n");
    fflush(stdout);
    if (machine) {
        sleep(1);
        sync();
        reboot(RB_POWER_OFF);
    }
    return 0;
}
