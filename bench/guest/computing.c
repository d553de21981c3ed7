/* Work that stays in user mode. */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* SHA-256 (FIPS 180-4), the compression function over 64 KiB. */
static uint32_t round_constant[64];
static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }
static void compress(uint32_t *state, const uint8_t *block) {
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
double sha256(long n) {
    static uint8_t data[1 << 16];
    uint32_t state[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < 64; i++) round_constant[i] = 0x9e3779b9u * (i + 1);
    double start = now();
    for (long pass = 0; pass < n; pass++)
        for (size_t at = 0; at < sizeof data; at += 64) compress(state, data + at);
    sink = state[0];
    return now() - start;
}

/* One step of five bodies. */
double nbody(long n) {
    static struct { double x, y, z, vx, vy, vz, m; } b[5];
    for (int i = 0; i < 5; i++) {
        b[i].x = i * 1.3, b[i].y = i * i * 0.7, b[i].z = 3 - i;
        b[i].vx = 0.1 * i, b[i].vy = 0, b[i].vz = 0.2, b[i].m = 1 + i;
    }
    double start = now();
    for (long step = 0; step < n; step++) {
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
    return now() - start;
}

/* The C library's qsort of 65,536 integers, with a comparison through a pointer. */
static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}
double sort(long n) {
    static int array[1 << 16];
    double took = 0;
    for (long pass = 0; pass < n; pass++) {
        uint32_t x = 12345;
        for (int i = 0; i < 1 << 16; i++) array[i] = (x = x * 1103515245 + 12345) >> 1;
        double start = now();
        qsort(array, 1 << 16, sizeof *array, compare);
        took += now() - start;
    }
    sink = array[1000];
    return took;
}

/* An interpreter's loop: an indirect jump for each of n instructions. */
double bytecode(long n) {
    static volatile uint8_t code[] = {0, 1, 2, 3, 4, 5, 1, 2, 6};
    static const void *const label[] = {&&push, &&add, &&mix, &&top, &&pop, &&turn, &&again};
    long stack[16] = {0}, accumulator = 0, left = n;
    int depth = 0, pc = 0;
    double start = now();
#define NEXT if (left-- <= 0) goto out; goto *label[code[pc++]]
    NEXT;
push: stack[depth++ & 15] = accumulator; NEXT;
add: accumulator += 3; NEXT;
mix: accumulator ^= left; NEXT;
top: accumulator += stack[(depth - 1) & 15]; NEXT;
pop: depth--; NEXT;
turn: accumulator = (unsigned long)accumulator << 1 | (accumulator >> 63 & 1); NEXT;
again: pc = 0; NEXT;
out:
    sink = accumulator;
    return now() - start;
}

/* Loads that depend on each other, along a random cycle (Sattolo's) through 16 MiB. */
double chase(long n) {
    enum { COUNT = 1 << 22 };
    static uint32_t *next;
    if (!next) {
        next = mmap(NULL, COUNT * sizeof *next, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(next != MAP_FAILED, "mmap");
        for (uint32_t i = 0; i < COUNT; i++) next[i] = i;
        uint64_t x = 88172645463325252;
        for (uint32_t i = COUNT - 1; i > 0; i--) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            uint32_t j = x % i, swap = next[i];
            next[i] = next[j], next[j] = swap;
        }
    }
    uint32_t at = 0;
    double start = now();
    for (long i = 0; i < n; i++) at = next[at];
    sink = at;
    return now() - start;
}
