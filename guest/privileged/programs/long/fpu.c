/* x87 and vector state under the control of CR0, CR4 and XCR0: #NM, #MF, #XM, #UD, and what
 * xsave, xrstor, fxsave and xsetbv refuse (SDM 3A 2.5, 13; SDM 1 13). */
#include "harness.h"

SNIPPET(x87, "nop", "fnop", "");
SNIPPET(wait_x87, "nop", "fwait", "");
SNIPPET(mmx, "nop", "movd %eax, %mm0", "emms");
SNIPPET(sse, "nop", "xorps %xmm0, %xmm0", "");
SNIPPET(sse_integer, "nop", "paddd %xmm0, %xmm1", "");
SNIPPET(avx, "nop", "vxorps %ymm0, %ymm0, %ymm0", "");
SNIPPET(fences, "nop", "sfence; lfence; mfence", "");
SNIPPET(prefetch, "nop", "prefetcht0 (%rsp)", "");
SNIPPET(store_mxcsr, "nop", "stmxcsr -8(%rsp)", "");
SNIPPET(load_mxcsr, "push %rdi", "ldmxcsr (%rsp)", "pop %rax");
SNIPPET(save_fx, "nop", "fxsave (%rdi)", "");
SNIPPET(restore_fx, "nop", "fxrstor (%rdi)", "");
SNIPPET(save_x, "mov %esi, %eax; xor %edx, %edx", "xsave (%rdi)", "");
SNIPPET(restore_x, "mov %esi, %eax; xor %edx, %edx", "xrstor (%rdi)", "");
SNIPPET(get_xcr, "mov %edi, %ecx", "xgetbv", "");
SNIPPET(set_xcr, "mov %edi, %ecx; mov %esi, %eax; mov %rsi, %rdx; shr $32, %rdx", "xsetbv", "");
SNIPPET(divide_by_zero, "fninit; push $0x37b; fldcw (%rsp); pop %rax; fld1; fldz; fdivrp", "fnop",
        "");
SNIPPET(pending_unwaited,
        "fninit; push $0x37b; fldcw (%rsp); pop %rax; fld1; fldz; fdivrp; fnstsw %ax", "fnclex",
        "fnop; fwait");
SNIPPET(pending_mmx, "fninit; push $0x37b; fldcw (%rsp); pop %rax; fld1; fldz; fdivrp", "emms", "");
SNIPPET(vector_invalid, "push $0x1f00; ldmxcsr (%rsp); pop %rax; xorps %xmm0, %xmm0",
        "divss %xmm0, %xmm0", "");
SNIPPET(clear_ts, "nop", "clts", "");
SNIPPET(load_values, "movd %edi, %xmm3; movd %esi, %xmm4; fninit; fld1", "nop", "");
SNIPPET(read_values, "movd %xmm3, %eax; movd %xmm4, %ebx", "nop", "");
SNIPPET(clear_values, "xorps %xmm3, %xmm3; xorps %xmm4, %xmm4", "nop", "");

static u8 area[4096] __attribute__((aligned(64)));
static bool has_avx, has_xsave;

static void table(bool user)
{
    static const struct {
        const char *name;
        const void *code, *at;
    } kinds[] = {{"x87", x87, x87_at}, {"fwait", wait_x87, wait_x87_at},      {"MMX", mmx, mmx_at},
                 {"SSE", sse, sse_at}, {"SSE2", sse_integer, sse_integer_at}, {"AVX", avx, avx_at}};
    word cr0 = read_cr0();
    for (unsigned bits = 0; bits < 8; bits++) {
        bool em = bits & 1, mp = bits & 2, ts = bits & 4;
        for (unsigned k = 0; k < (has_avx ? 6u : 5u); k++) {
            int vector = -1;
            if (k == 0)
                vector = em || ts ? NM : -1;
            else if (k == 1)
                vector = mp && ts ? NM : -1;
            else if (k == 5)
                vector = ts ? NM : -1;
            else
                vector = em ? UD : ts ? NM : -1;
            write_cr0((cr0 & ~(CR0_EM | CR0_MP | CR0_TS)) | (em ? CR0_EM : 0) | (mp ? CR0_MP : 0) |
                      (ts ? CR0_TS : 0));
            user ? run_user(kinds[k].code, 0, 0) : run_kernel(kinds[k].code, 0, 0);
            write_cr0(cr0);
            if (vector < 0)
                check_done("%s, EM %d, MP %d, TS %d, user %d", kinds[k].name, em, mp, ts, user);
            else
                check_event(vector, 0, (word)kinds[k].at + (user ? USER_ALIAS : 0),
                            "%s, EM %d, MP %d, TS %d, user %d", kinds[k].name, em, mp, ts, user);
        }
    }
}

static void control_bits(void)
{
    word cr0 = read_cr0(), cr4 = read_cr4();
    write_cr4(cr4 & ~CR4_OSFXSR);
    run_kernel(sse, 0, 0);
    check_event(UD, 0, (word)sse_at, "SSE without OSFXSR");
    run_kernel(load_mxcsr, 0x1f80, 0);
    check_event(UD, 0, (word)load_mxcsr_at, "ldmxcsr without OSFXSR");
    run_kernel(mmx, 0, 0);
    check_done("MMX without OSFXSR");
    run_kernel(prefetch, 0, 0);
    check_done("prefetch without OSFXSR");
    run_kernel(fences, 0, 0);
    check_done("fences without OSFXSR");
    write_cr4(cr4);
    write_cr0(cr0 | CR0_TS);
    run_kernel(save_fx, (word)area, 0);
    check_event(NM, 0, (word)save_fx_at, "fxsave with TS");
    run_kernel(store_mxcsr, 0, 0);
    check_event(NM, 0, (word)store_mxcsr_at, "stmxcsr with TS");
    run_kernel(clear_ts, 0, 0);
    check(read_cr0() & CR0_TS, 0, "clts");
    write_cr0(cr0);
}

static void exceptions(bool user)
{
    word base = user ? USER_ALIAS : 0, cr4 = read_cr4();
#define GO(code) (user ? run_user(code, 0, 0) : run_kernel(code, 0, 0))
    GO(divide_by_zero);
    check_event(MF, 0, (word)divide_by_zero_at + base,
                "x87 exception at the next instruction, user %d", user);
    GO(pending_mmx);
    check_event(MF, 0, (word)pending_mmx_at + base, "x87 exception at emms, user %d", user);
    GO(pending_unwaited);
    check_done("fnstsw and fnclex do not wait, user %d", user);
    check(last.rax >> 2 & 1, 1, "fnstsw shows the exception, user %d", user);
    GO(vector_invalid);
    check_event(XM, 0, (word)vector_invalid_at + base, "SIMD exception, user %d", user);
    write_cr4(cr4 & ~CR4_OSXMMEXCPT);
    GO(vector_invalid);
    check_event(UD, 0, (word)vector_invalid_at + base, "SIMD exception without OSXMMEXCPT, user %d",
                user);
    write_cr4(cr4);
    asm volatile("fninit");
}

static void fx_areas(void)
{
    run_kernel(load_mxcsr, 0x1f80, 0);
    check_done("ldmxcsr");
    run_kernel(load_mxcsr, 0x11f80, 0);
    check_event(GP, 0, (word)load_mxcsr_at, "ldmxcsr of a reserved bit");
    run_kernel(save_fx, (word)area + 8, 0);
    check_event(GP, 0, (word)save_fx_at, "fxsave unaligned");
    run_kernel(load_values, 0x11111111, 0x22222222);
    run_kernel(save_fx, (word)area, 0);
    check_done("fxsave");
    check(*(u32 *)(area + 160 + 48), 0x11111111, "fxsave: XMM3");
    check(area[4], 0x80, "fxsave: abridged tag word");
    check(*(u32 *)(area + 24), 0x1f80, "fxsave: MXCSR");
    run_kernel(clear_values, 0, 0);
    run_kernel(restore_fx, (word)area, 0);
    run_kernel(read_values, 0, 0);
    check(last.rax, 0x11111111, "fxrstor: XMM3");
    check(last.rbx, 0x22222222, "fxrstor: XMM4");
    *(u32 *)(area + 24) = 0xffff1f80;
    run_kernel(restore_fx, (word)area, 0);
    check_event(GP, 0, (word)restore_fx_at, "fxrstor of a reserved bit of MXCSR");
    asm volatile("fninit");
}

static void extended(void)
{
    if (read_cr4() & CR4_OSXSAVE) {
        run_kernel(set_xcr, 0, 1);
        write_cr4(read_cr4() & ~CR4_OSXSAVE);
    }
    run_kernel(get_xcr, 0, 0);
    check_event(UD, 0, (word)get_xcr_at, "xgetbv without OSXSAVE");
    run_kernel(save_x, (word)area, 3);
    check_event(UD, 0, (word)save_x_at, "xsave without OSXSAVE");
    if (has_avx) {
        run_kernel(avx, 0, 0);
        check_event(UD, 0, (word)avx_at, "AVX without OSXSAVE");
    }
    check(cpuid(1, 0).ecx >> 27 & 1, 0, "CPUID.OSXSAVE follows CR4");
    write_cr4(read_cr4() | CR4_OSXSAVE);
    check(cpuid(1, 0).ecx >> 27 & 1, 1, "CPUID.OSXSAVE follows CR4, set");
    word all = cpuid(13, 0).eax | (word)cpuid(13, 0).edx << 32;
    static const struct {
        word index, value;
        const char *name;
    } refused[] = {
        {0, 0, "XCR0 without x87"},
        {0, 2, "XCR0 of SSE alone"},
        {0, 5, "XCR0 of AVX without SSE"},
        {0, 1ul << 62 | 3, "XCR0 of a reserved bit"},
        {1, 3, "XCR1"},
        {0, 0x23, "XCR0 of a part of AVX-512"},
        {0, 0xa3, "XCR0 of two parts of AVX-512"},
    };
    for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        run_kernel(set_xcr, refused[i].index, refused[i].value);
        check_event(GP, 0, (word)set_xcr_at, "%s", refused[i].name);
    }
    run_kernel(get_xcr, 2, 0);
    check_event(GP, 0, (word)get_xcr_at, "xgetbv of XCR2");
    run_user(set_xcr, 0, 3);
    check_event(GP, 0, USER(set_xcr_at), "xsetbv in ring 3");
    run_user(get_xcr, 0, 0);
    check(last.rax, 1, "XCR0 is 1 at first, read in ring 3");
    run_kernel(set_xcr, 0, 3);
    check_done("XCR0 of x87 and SSE");
    if (has_avx) {
        run_kernel(avx, 0, 0);
        check_event(UD, 0, (word)avx_at, "AVX without XCR0.AVX");
    }
    run_kernel(set_xcr, 0, all & 0xe7);
    check_done("XCR0 of all that is announced");
    run_kernel(get_xcr, 0, 0);
    check(last.rax | last.rdx << 32, all & 0xe7, "XCR0 reads back");
}

static void extended_areas(void)
{
    memset(area, 0, sizeof(area));
    run_kernel(save_x, (word)area + 16, 3);
    check_event(GP, 0, (word)save_x_at, "xsave unaligned");
    run_kernel(load_values, 0x33333333, 0x44444444);
    run_kernel(save_x, (word)area, 3);
    check_done("xsave");
    check(*(u64 *)(area + 512) & 3, 3, "xsave: XSTATE_BV");
    check(*(u32 *)(area + 160 + 64), 0x44444444, "xsave: XMM4");
    run_kernel(clear_values, 0, 0);
    run_kernel(restore_x, (word)area, 3);
    run_kernel(read_values, 0, 0);
    check(last.rax, 0x33333333, "xrstor: XMM3");
    *(u64 *)(area + 512) &= ~2ul;
    run_kernel(restore_x, (word)area, 3);
    run_kernel(read_values, 0, 0);
    check(last.rax | last.rbx, 0, "xrstor of a component in its initial state");
    *(u64 *)(area + 512) = 1ul << 62;
    run_kernel(restore_x, (word)area, 3);
    check_event(GP, 0, (word)restore_x_at, "xrstor of a component that is not enabled");
    *(u64 *)(area + 512) = 3;
    *(u64 *)(area + 520) = 1;
    run_kernel(restore_x, (word)area, 3);
    check_event(GP, 0, (word)restore_x_at, "xrstor of a header with reserved bits");
    *(u64 *)(area + 520) = 0;
    run_user(save_x, USER(area), 3);
    check_done("xsave in ring 3");
    write_cr0(read_cr0() | CR0_TS);
    run_kernel(restore_x, (word)area, 3);
    check_event(NM, 0, (word)restore_x_at, "xrstor with TS");
    write_cr0(read_cr0() & ~CR0_TS);
    asm volatile("fninit");
}

int main(void)
{
    has_xsave = cpuid(1, 0).ecx >> 26 & 1;
    has_avx = has_xsave && cpuid(1, 0).ecx >> 28 & 1;
    for (unsigned user = 0; user < 2; user++)
        exceptions(user);
    control_bits();
    fx_areas();
    if (has_xsave) {
        extended();
        extended_areas();
    } else {
        skip("xsave", "not announced");
    }
    for (unsigned user = 0; user < 2; user++)
        table(user);
    return 0;
}
