/* Model-specific registers that CPUID does not announce, or that it follows: the base performance
 * counters of AMD's processors and IA32_APIC_BASE (APM 2 13.2.1, 16.3.1; SDM 3A 11.4.3, 11.4.4). */
#include "harness.h"

SNIPPET(get_msr, "mov %edi, %ecx", "rdmsr", "");
SNIPPET(set_msr, "mov %edi, %ecx; mov %esi, %eax; mov %rsi, %rdx; shr $32, %rdx", "wrmsr", "");

#define MSR_PERF_CTL0 0xc0010000
#define APIC_EXTENDED (1ul << 10)
#define APIC_ENABLED (1ul << 11)

static void check_zero(word index, const char *when)
{
    run_kernel(get_msr, index, 0);
    check_done("rdmsr %x, %s", index, when);
    check(last.rax | last.rdx << 32, 0, "value of %x, %s", index, when);
}

/* PERF_CTL0 to 3 and PERF_CTR0 to 3 are part of AMD64, and no CPUID bit is about them. Those here do
 * not count, so nothing that is written is found again. */
static void performance_counters(void)
{
    for (word index = MSR_PERF_CTL0; index < MSR_PERF_CTL0 + 8; index++) {
        if (is_intel()) {
            run_kernel(get_msr, index, 0);
            check_event(GP, 0, (word)get_msr_at, "rdmsr %x", index);
            run_kernel(set_msr, index, 0);
            check_event(GP, 0, (word)set_msr_at, "wrmsr %x", index);
            continue;
        }
        check_zero(index, "at first");
        run_kernel(set_msr, index, ~0ul);
        check_done("wrmsr %x", index);
        check_zero(index, "after a write");
    }
}

static void check_announced(unsigned there, const char *when)
{
    check(cpuid(1, 0).edx >> 9 & 1, there, "APIC bit, %s", when);
    if (!is_intel())
        check(cpuid(0x80000001, 0).edx >> 9 & 1, there, "AMD's APIC bit, %s", when);
}

static void local_apic(void)
{
    u64 old = rdmsr(MSR_APIC_BASE);
    check_announced(1, "at first");
    wrmsr(MSR_APIC_BASE, old & ~(APIC_ENABLED | APIC_EXTENDED));
    check_announced(0, "with the APIC off");
    wrmsr(MSR_APIC_BASE, old);
    check_announced(1, "with the APIC on again");
    unsigned width = cpuid(0x80000008, 0).eax & 0xff;
    begin_group();
    for (unsigned bit = width; bit < 64; bit++) {
        run_kernel(set_msr, MSR_APIC_BASE, old | 1ul << bit);
        check_event(GP, 0, (word)set_msr_at, "bit %d of IA32_APIC_BASE", bit);
        check(rdmsr(MSR_APIC_BASE), old, "bit %d of IA32_APIC_BASE: the value stays", bit);
    }
    end_group("bits of IA32_APIC_BASE at and above MAXPHYADDR");
    run_kernel(set_msr, MSR_APIC_BASE, old | 1ul << (width - 1));
    check_done("the highest bit of IA32_APIC_BASE");
    check(rdmsr(MSR_APIC_BASE), old | 1ul << (width - 1), "the highest bit of IA32_APIC_BASE: value");
    wrmsr(MSR_APIC_BASE, old);
}

int main(void)
{
    performance_counters();
    local_apic();
    return 0;
}
