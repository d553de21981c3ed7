/* Copies and vector loops. */
#include "bench.h"
#include <immintrin.h>
#include <string.h>

/* The C library's memcpy. */
static double copy_bytes(long n, size_t size) {
    static uint8_t from[1 << 18], to[1 << 18];
    void *(*volatile function)(void *, const void *, size_t) = memcpy;
    memset(from, 1, sizeof from);
    memset(to, 2, sizeof to);
    double start = now();
    for (long i = 0; i < n; i++) function(to, from, size);
    sink = to[77];
    return now() - start;
}

double copy(long n) { return copy_bytes(n, 1 << 18); }
double copy_16k(long n) { return copy_bytes(n, 1 << 14); }

enum { FLOATS = 4096 };
static float x[FLOATS] __attribute__((aligned(64))), y[FLOATS] __attribute__((aligned(64)));
static void fill(void) {
    for (int i = 0; i < FLOATS; i++) x[i] = i * 0.25f, y[i] = 1;
}

/* y = a * x + y and an integer mix, 4,096 elements, 128-bit vectors. */
double sse(long n) {
    fill();
    __m128 a = _mm_set1_ps(0.001f);
    __m128i mix = _mm_set1_epi32(0x9e3779b9);
    double start = now();
    for (long pass = 0; pass < n; pass++)
        for (int i = 0; i < FLOATS; i += 4) {
            __m128 sum = _mm_add_ps(_mm_mul_ps(a, _mm_load_ps(x + i)), _mm_load_ps(y + i));
            mix = _mm_add_epi32(_mm_shuffle_epi32(mix, 0x39), _mm_castps_si128(sum));
            _mm_store_ps(y + i, sum);
        }
    sink = (uint64_t)_mm_cvtsi128_si64(mix) + (uint64_t)y[7];
    return now() - start;
}

/* The same with 256-bit vectors and fused multiplication. */
__attribute__((target("avx2,fma"))) static double avx_loop(long n) {
    fill();
    __m256 a = _mm256_set1_ps(0.001f);
    __m256i mix = _mm256_set1_epi32(0x9e3779b9);
    double start = now();
    for (long pass = 0; pass < n; pass++)
        for (int i = 0; i < FLOATS; i += 8) {
            __m256 sum = _mm256_fmadd_ps(a, _mm256_load_ps(x + i), _mm256_load_ps(y + i));
            mix = _mm256_add_epi32(_mm256_shuffle_epi32(mix, 0x39), _mm256_castps_si256(sum));
            _mm256_store_ps(y + i, sum);
        }
    sink = (uint64_t)_mm256_extract_epi64(mix, 0) + (uint64_t)y[7];
    return now() - start;
}
double avx(long n) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return UNSUPPORTED;
    return avx_loop(n);
}
