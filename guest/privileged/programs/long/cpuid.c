/* CPUID offers exactly what works: leaves agree with each other, and every instruction set that is
 * announced executes (SDM 2A, CPUID; APM 3 appendix E). */
#include "harness.h"

SNIPPET(sse3, "nop", "addsubps %xmm0, %xmm0", "");
SNIPPET(pclmul, "nop", "pclmulqdq $0, %xmm0, %xmm0", "");
SNIPPET(ssse3, "nop", "pshufb %xmm0, %xmm0", "");
SNIPPET(fma, "nop", "vfmadd132ps %xmm0, %xmm0, %xmm0", "");
SNIPPET(cmpxchg16b, "mov %rsp, %rsi; and $-16, %rsi", "cmpxchg16b (%rsi)", "");
SNIPPET(sse41, "nop", "pminsd %xmm0, %xmm0", "");
SNIPPET(sse42, "nop", "pcmpgtq %xmm0, %xmm0", "");
SNIPPET(movbe, "nop", "movbe (%rsp), %eax", "");
SNIPPET(popcnt, "nop", "popcnt %eax, %eax", "");
SNIPPET(aes, "nop", "aesenc %xmm0, %xmm0", "");
SNIPPET(xsave, "nop", "xgetbv", "");
SNIPPET(avx, "nop", "vaddps %ymm0, %ymm0, %ymm0", "");
SNIPPET(f16c, "nop", "vcvtph2ps %xmm0, %xmm0", "");
SNIPPET(rdrand, "nop", "rdrand %eax", "");
SNIPPET(bmi1, "nop", "andn %eax, %eax, %eax", "");
SNIPPET(avx2, "nop", "vpaddd %ymm0, %ymm0, %ymm0", "");
SNIPPET(bmi2, "nop", "pdep %eax, %eax, %eax", "");
SNIPPET(avx512f, "nop", "vpaddd %zmm0, %zmm0, %zmm0", "");
SNIPPET(rdseed, "nop", "rdseed %eax", "");
SNIPPET(adx, "nop", "adcx %eax, %eax", "");
SNIPPET(clflushopt, "nop", "clflushopt (%rsp)", "");
SNIPPET(clwb, "nop", "clwb (%rsp)", "");
SNIPPET(sha, "nop", "sha256msg1 %xmm0, %xmm0", "");
SNIPPET(avx512vl, "nop", "vpaddd %xmm0, %xmm0, %xmm16", "");
SNIPPET(avx512bw, "nop", "vpaddb %zmm0, %zmm0, %zmm0", "");
SNIPPET(avx512dq, "nop", "vpmullq %zmm0, %zmm0, %zmm0", "");
SNIPPET(gfni, "nop", "gf2p8mulb %xmm0, %xmm0", "");
SNIPPET(vaes, "nop", "vaesenc %ymm0, %ymm0, %ymm0", "");
SNIPPET(vpclmul, "nop", "vpclmulqdq $0, %ymm0, %ymm0, %ymm0", "");
SNIPPET(rdpid, "nop", "rdpid %rax", "");
SNIPPET(lahf, "nop", "lahf", "");
SNIPPET(lzcnt, "nop", "lzcnt %eax, %eax", "");
SNIPPET(rdtscp, "nop", "rdtscp", "");
SNIPPET(clflush, "nop", "clflush (%rsp)", "");
SNIPPET(cmov, "nop", "cmovz %eax, %eax", "");
SNIPPET(mmx, "nop", "paddd %mm0, %mm0", "emms");
SNIPPET(vmx, "nop", "vmxoff", "");
SNIPPET(svm, "mov %rsp, %rax", "vmsave", "");
SNIPPET(monitor, "mov %rsp, %rax; xor %ecx, %ecx; xor %edx, %edx", "monitor", "");
SNIPPET(rtm, "nop", "xtest", "");
SNIPPET(serialize_s, "nop", ".byte 0x0f, 0x01, 0xe8", "");
SNIPPET(sse4a, "nop", "extrq $1, $1, %xmm0", "");
SNIPPET(prefetchw, "nop", "prefetchw (%rsp)", "");
SNIPPET(movdiri, "nop", "movdiri %eax, -64(%rsp)", "");
SNIPPET(xsavec, "lea 64(%rdi), %rdi; mov $3, %eax; xor %edx, %edx", "xsavec (%rdi)", "");
SNIPPET(xgetbv1, "mov $1, %ecx", "xgetbv", "");
SNIPPET(clac, "nop", "clac", "");

enum { EAX, EBX, ECX, EDX };

/* `refused`: without the feature the instruction must be #UD. Where its encoding means something
 * else then, or the feature is only a promise, it need not. */
static const struct {
    const char *name;
    char *code, *at;
    u32 leaf, subleaf;
    unsigned reg, bit;
    bool refused;
} features[] = {
#define FEATURE(name, leaf, subleaf, reg, bit, refused)          \
    {                                                            \
#name, name, name##_at, leaf, subleaf, reg, bit, refused \
    }
    FEATURE(clflush, 1, 0, EDX, 19, true),
    FEATURE(cmov, 1, 0, EDX, 15, true),
    FEATURE(mmx, 1, 0, EDX, 23, true),
    FEATURE(sse3, 1, 0, ECX, 0, true),
    FEATURE(pclmul, 1, 0, ECX, 1, true),
    FEATURE(ssse3, 1, 0, ECX, 9, true),
    FEATURE(fma, 1, 0, ECX, 12, true),
    FEATURE(cmpxchg16b, 1, 0, ECX, 13, true),
    FEATURE(sse41, 1, 0, ECX, 19, true),
    FEATURE(sse42, 1, 0, ECX, 20, true),
    FEATURE(movbe, 1, 0, ECX, 22, true),
    FEATURE(popcnt, 1, 0, ECX, 23, true),
    FEATURE(aes, 1, 0, ECX, 25, true),
    FEATURE(xsave, 1, 0, ECX, 26, true),
    FEATURE(avx, 1, 0, ECX, 28, true),
    FEATURE(f16c, 1, 0, ECX, 29, true),
    FEATURE(rdrand, 1, 0, ECX, 30, true),
    FEATURE(monitor, 1, 0, ECX, 3, true),
    FEATURE(bmi1, 7, 0, EBX, 3, true),
    FEATURE(avx2, 7, 0, EBX, 5, true),
    FEATURE(bmi2, 7, 0, EBX, 8, true),
    FEATURE(rtm, 7, 0, EBX, 11, true),
    FEATURE(avx512f, 7, 0, EBX, 16, true),
    FEATURE(avx512dq, 7, 0, EBX, 17, true),
    FEATURE(rdseed, 7, 0, EBX, 18, true),
    FEATURE(adx, 7, 0, EBX, 19, true),
    FEATURE(clac, 7, 0, EBX, 20, true),
    FEATURE(clflushopt, 7, 0, EBX, 23, false),
    FEATURE(clwb, 7, 0, EBX, 24, false),
    FEATURE(sha, 7, 0, EBX, 29, true),
    FEATURE(avx512bw, 7, 0, EBX, 30, true),
    FEATURE(avx512vl, 7, 0, EBX, 31, true),
    FEATURE(gfni, 7, 0, ECX, 8, true),
    FEATURE(vaes, 7, 0, ECX, 9, true),
    FEATURE(vpclmul, 7, 0, ECX, 10, true),
    FEATURE(rdpid, 7, 0, ECX, 22, true),
    FEATURE(movdiri, 7, 0, ECX, 27, true),
    FEATURE(serialize_s, 7, 0, EDX, 14, true),
    FEATURE(xsavec, 13, 1, EAX, 1, true),
    FEATURE(xgetbv1, 13, 1, EAX, 2, false),
    FEATURE(lahf, 0x80000001, 0, ECX, 0, true),
    FEATURE(svm, 0x80000001, 0, ECX, 2, true),
    FEATURE(lzcnt, 0x80000001, 0, ECX, 5, false),
    FEATURE(sse4a, 0x80000001, 0, ECX, 6, true),
    FEATURE(prefetchw, 0x80000001, 0, ECX, 8, false),
    // It works without being announced (crates/cpu/src/system/cpuid.rs).
    FEATURE(rdtscp, 0x80000001, 0, EDX, 27, false),
    FEATURE(vmx, 1, 0, ECX, 5, true),
};

static u8 area[8192] __attribute__((aligned(64)));

static u32 word_of(u32 leaf, u32 subleaf, unsigned reg)
{
    struct cpuid id = cpuid(leaf, subleaf);
    u32 words[] = {id.eax, id.ebx, id.ecx, id.edx};
    return words[reg];
}

static void instructions(void)
{
    for (unsigned i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        bool announced =
            word_of(features[i].leaf, features[i].subleaf, features[i].reg) >> features[i].bit & 1;
        if (features[i].code == svm || features[i].code == vmx)
            announced = false;
        run_kernel(features[i].code, (word)area, 0);
        if (announced)
            check_done("%s is announced and works", features[i].name);
        else if (features[i].refused)
            check_event(UD, 0, (word)features[i].at, "%s is not announced and invalid",
                        features[i].name);
    }
}

static void implies(const char *name, bool one, bool other)
{
    check(!one || other, true, "%s", name);
}

#define BIT(leaf, reg, bit) (word_of(leaf, 0, reg) >> (bit)&1)

static void consistency(void)
{
    struct cpuid vendor = cpuid(0, 0), extended = cpuid(0x80000000, 0);
    check(vendor.eax >= 13, true, "leaf 13 is there");
    check(extended.eax >= 0x80000008, true, "leaf 0x80000008 is there");
    if (!is_intel())
        check(extended.ebx == vendor.ebx && extended.ecx == vendor.ecx &&
                  extended.edx == vendor.edx,
              true, "the vendor is the same in both ranges");
    implies("AVX needs XSAVE", BIT(1, ECX, 28), BIT(1, ECX, 26));
    implies("AVX2 needs AVX", BIT(7, EBX, 5), BIT(1, ECX, 28));
    implies("FMA needs AVX", BIT(1, ECX, 12), BIT(1, ECX, 28));
    implies("AVX-512F needs AVX2", BIT(7, EBX, 16), BIT(7, EBX, 5));
    implies("AVX-512BW needs AVX-512F", BIT(7, EBX, 30), BIT(7, EBX, 16));
    implies("AVX-512F needs its states in XCR0", BIT(7, EBX, 16),
            (cpuid(13, 0).eax & 0xe6) == 0xe6);
    implies("AVX needs its state in XCR0", BIT(1, ECX, 28), (cpuid(13, 0).eax & 6) == 6);
    static const unsigned required[] = {0, 3, 4, 5, 6, 8, 9, 13, 15, 16, 19, 23, 24, 25, 26};
    for (unsigned i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        check(BIT(1, EDX, required[i]), 1, "leaf 1, EDX, bit %d", required[i]);
    check(BIT(0x80000001, EDX, 29), 1, "long mode");
    check(BIT(0x80000001, EDX, 20), 1, "NX");
    check(BIT(0x80000001, EDX, 11), 1, "syscall");
    check(BIT(1, ECX, 31), 1, "a hypervisor is present");
    unsigned physical = cpuid(0x80000008, 0).eax & 0xff,
             linear = cpuid(0x80000008, 0).eax >> 8 & 0xff;
    check(physical >= 36 && physical <= 52, true, "width of physical addresses");
    check(linear == (BIT(7, ECX, 16) ? 57 : 48), true, "width of linear addresses");
    check(cpuid(1, 0).ebx >> 24, cpuid(11, 0).edx & 0xff, "APIC id in leaves 1 and 11");
    check(cpuid(1, 0).ebx >> 8 & 0xff, 8, "line size of clflush");
}

/* Sizes of the extended state: offsets do not overlap, the total is the end of the last. */
static void extended_state(void)
{
    struct cpuid main_leaf = cpuid(13, 0);
    u32 end = 576;
    for (unsigned i = 2; i < 32; i++) {
        if (!(main_leaf.eax >> i & 1))
            continue;
        struct cpuid part = cpuid(13, i);
        check(part.eax > 0 && part.ebx >= 576, true, "component %d has a place", i);
        if (part.ebx + part.eax > end)
            end = part.ebx + part.eax;
    }
    check(main_leaf.ecx, end, "size of all components");
    u32 all = main_leaf.eax;
    asm volatile("xsetbv" ::"a"(3), "d"(0), "c"(0));
    check(cpuid(13, 0).ebx, 576, "size of what is enabled, x87 and SSE");
    all &= 0xe7;
    asm volatile("xsetbv" ::"a"(all), "d"(0), "c"(0));
    check(cpuid(13, 0).ebx <= main_leaf.ecx, true, "size of what is enabled, all");
}

int main(void)
{
    if (cpuid(1, 0).ecx >> 26 & 1) {
        write_cr4(read_cr4() | CR4_OSXSAVE);
        extended_state();
    }
    consistency();
    instructions();
    return 0;
}
