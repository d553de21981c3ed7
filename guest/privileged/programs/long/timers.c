/* Timers and interrupt controllers as far as an operating system trusts them: the local APIC's
 * timer in its three modes, x2APIC, the PIT through the I/O APIC and through the PIC, the CMOS
 * clock (SDM 3A 10; Intel 82093AA, 8254, 8259A). */
#include "apic.h"

SNIPPET(wait_for_event, "nop", "sti; 1: pause; jmp 1b", "");
SNIPPET(get_msr, "mov %edi, %ecx", "rdmsr", "");
SNIPPET(set_msr, "mov %edi, %ecx; mov %esi, %eax; xor %edx, %edx", "wrmsr", "");

enum { VECTOR = 0x50, PIC_BASE = 0x20, SPIN = 2000000 };

static volatile unsigned ticks;

static bool tick(struct event *event)
{
    (void)event;
    ticks++;
    apic_eoi();
    return true;
}

static bool tick_x2apic(struct event *event)
{
    (void)event;
    ticks++;
    wrmsr(0x80b, 0);
    return true;
}

static bool tick_pic(struct event *event)
{
    (void)event;
    ticks++;
    out8(0x20, 0x20);
    return true;
}

static bool tick_and_stop_at_5(struct event *event)
{
    tick(event);
    return ticks < 5;
}

/* Let interrupts in until `count` ticks have come, or long enough. */
static unsigned let_in(unsigned count)
{
    for (u64 end = rdtsc() + 20000000000ul; ticks < count && rdtsc() < end;)
        asm volatile("sti; nop; pause; cli" ::: "memory");
    return ticks;
}

static void one_shot(void)
{
    hooks[VECTOR] = tick;
    ticks = 0;
    apic_write(APIC_LVT_TIMER, VECTOR);
    check(apic_read(APIC_TIMER_CURRENT), 0, "the timer stands still at first");
    apic_timer(VECTOR, 0, 1000000000);
    u32 first = apic_read(APIC_TIMER_CURRENT);
    check(first > 0 && first <= 1000000000, true, "the timer starts at its initial count");
    for (volatile unsigned i = 0; i < 1000; i++)
        ;
    check(apic_read(APIC_TIMER_CURRENT) < first || ticks, true, "the timer counts down");
    apic_timer(VECTOR, 0, 1000000);
    check(let_in(1), 1, "one shot fires");
    for (volatile unsigned i = 0; i < 100000; i++)
        ;
    let_in(0);
    check(ticks, 1, "one shot fires once");
    check(apic_read(APIC_TIMER_CURRENT), 0, "the timer stands at 0 after one shot");
    apic_timer(VECTOR, LVT_MASKED, 1000);
    for (volatile unsigned i = 0; i < 1000000; i++)
        ;
    asm volatile("sti; nop; nop; cli" ::: "memory");
    check(ticks, 1, "a masked timer does not fire");
    apic_timer(VECTOR, 0, 100000000);
    apic_write(APIC_TIMER_INITIAL, 0);
    check(apic_read(APIC_TIMER_CURRENT), 0, "an initial count of 0 stops the timer");
    apic_timer_off();
}

static void periodic(void)
{
    hooks[VECTOR] = tick_and_stop_at_5;
    ticks = 0;
    apic_timer(VECTOR, TIMER_PERIODIC, 100000);
    run_kernel(wait_for_event, 0, 0);
    check(ticks, 5, "periodic ticks end a loop at the fifth");
    check(last.rip >= (word)wait_for_event_at && last.rip < (word)wait_for_event_after, true,
          "within the loop");
    apic_timer_off();
    for (unsigned divide = 0; divide < 8; divide++) {
        u32 value = (divide & 3) | (divide & 4) << 1;
        apic_write(APIC_TIMER_DIVIDE, value);
        check(apic_read(APIC_TIMER_DIVIDE), value, "divide configuration %d", divide);
    }
    apic_write(APIC_TIMER_DIVIDE, 0xb);
    apic_timer_off();
}

/* The current count, and the time-stamp counter at that moment: the reading of several that took least, because the
 * host may stop the guest between the two. */
static u64 time_of_count(u32 *count)
{
    u64 least = ~0ul, middle = 0;
    for (unsigned i = 0; i < 32; i++) {
        u64 before = rdtsc();
        u32 read = apic_read(APIC_TIMER_CURRENT);
        u64 took = rdtsc() - before;
        if (took < least) {
            least = took;
            middle = before + took / 2;
            *count = read;
        }
    }
    return middle;
}

/* How many cycles of the time-stamp counter 2^20 counts take. */
static u64 pace_of_timer(void)
{
    u32 first, second;
    apic_timer(VECTOR, LVT_MASKED, 0xffffffff);
    u64 start = time_of_count(&first);
    while (rdtsc() - start < 50000000)
        ;
    u64 end = time_of_count(&second);
    check(second < first, true, "the count goes down");
    apic_timer_off();
    return ((end - start) << 20) / (first - second);
}

/* A count takes its time by the time-stamp counter, and interrupts when it has run down. The host may stop the guest
 * at any point and for as long as it likes: each reading lies between two readings of the time-stamp counter, and only
 * what these two leave no doubt of is checked. */
static void duration(void)
{
    u64 pace = pace_of_timer();
    hooks[VECTOR] = tick;
    for (unsigned i = 0; i < 3; i++) {
        u32 count = 1000000 << i;
        u64 due = (pace * count) >> 20, slack = due / 64;
        bool is_late = false, is_pending = false;
        ticks = 0;
        u64 start = rdtsc();
        apic_timer(VECTOR, 0, count);
        u64 armed = rdtsc(), before, after;
        u32 left;
        do {
            before = rdtsc();
            left = apic_read(APIC_TIMER_CURRENT);
            after = rdtsc();
            is_late |= left && before - armed > due + slack;
        } while (left && after - start < 20000000000ul);
        is_pending = apic_highest(APIC_IRR) == VECTOR;
        check(left, 0, "a count of %d runs down", count);
        check(after - start + slack >= due, true, "a count of %d takes its time", count);
        check(is_late, false, "a count of %d takes no longer", count);
        check(is_pending, true, "an interrupt is pending when a count of %d has run down", count);
        check(let_in(1), 1, "a count of %d interrupts", count);
    }
    apic_timer_off();
}

static void deadline(void)
{
    if (!(cpuid(1, 0).ecx >> 24 & 1)) {
        skip("TSC deadline", "not announced");
        return;
    }
    hooks[VECTOR] = tick;
    ticks = 0;
    apic_write(APIC_LVT_TIMER, VECTOR | TIMER_DEADLINE);
    asm volatile("mfence");
    u64 at = rdtsc() + 3000000;
    wrmsr(MSR_TSC_DEADLINE, at);
    check(rdmsr(MSR_TSC_DEADLINE) == at || ticks || rdtsc() >= at, true, "the deadline reads back");
    check(let_in(1), 1, "the deadline fires");
    check(rdtsc() >= at, true, "not before its time");
    check(rdmsr(MSR_TSC_DEADLINE), 0, "the deadline reads as 0 after it has fired");
    wrmsr(MSR_TSC_DEADLINE, 1);
    check(let_in(2), 2, "a deadline in the past fires at once");
    wrmsr(MSR_TSC_DEADLINE, rdtsc() + 10000000);
    wrmsr(MSR_TSC_DEADLINE, 0);
    for (u64 end = rdtsc() + 20000000; rdtsc() < end;)
        asm volatile("sti; nop; cli" ::: "memory");
    check(ticks, 2, "a deadline of 0 disarms");
    wrmsr(MSR_TSC_DEADLINE, rdtsc() + 1000000000000);
    apic_write(APIC_LVT_TIMER, VECTOR);
    check(rdmsr(MSR_TSC_DEADLINE), 0, "another mode disarms");
    apic_timer_off();
}

/* A timer that is due when it is set interrupts some instructions later, whatever else the host does. */
static void due_at_once(void)
{
    enum { ROUNDS = 200 };
    unsigned late = 0;
    hooks[VECTOR] = tick;
    for (unsigned mode = 0; mode < 2; mode++) {
        apic_write(APIC_LVT_TIMER, VECTOR | (mode ? 0 : TIMER_DEADLINE));
        asm volatile("mfence");
        for (unsigned i = 0; i < ROUNDS; i++) {
            ticks = 0;
            asm volatile("sti");
            if (mode)
                apic_write(APIC_TIMER_INITIAL, 1);
            else
                wrmsr(MSR_TSC_DEADLINE, rdtsc());
            for (unsigned n = 0; n < 100; n++)
                asm volatile("pause");
            asm volatile("cli" ::: "memory");
            late += ticks != 1 || (!mode && rdmsr(MSR_TSC_DEADLINE));
        }
        check(late, 0, mode ? "a count of 1 interrupts at once" : "a deadline of now interrupts at once");
        late = 0;
    }
    apic_timer_off();
}

static void local_apic(void)
{
    check(rdmsr(MSR_APIC_BASE) & 0xfffff800, 0xfee00800, "the APIC is enabled, at its place");
    check(rdmsr(MSR_APIC_BASE) >> 8 & 1, 1, "this is the boot processor");
    check(apic_read(APIC_VERSION) & 0xff, 0x14, "version of an integrated APIC");
    check(apic_read(APIC_ID) >> 24, cpuid(1, 0).ebx >> 24, "APIC id");
    apic_write(APIC_TPR, 0x35);
    check(apic_read(APIC_TPR), 0x35, "TPR reads back");
    apic_write(APIC_TPR, 0);
    apic_write(APIC_LVT_LINT0, LVT_MASKED | 0x700);
    check(apic_read(APIC_LVT_LINT0) & 0x10700, 0x10700, "LINT0 reads back");
    /* Writing ESR latches; no error has happened. */
    apic_write(APIC_ERROR, 0);
    check(apic_read(APIC_ERROR), 0, "no errors");
    /* Vectors below 16 are illegal (SDM 3A 10.5.3). */
    hooks[5] = log_and_acknowledge;
    apic_write(APIC_ICR, ICR_SELF | 5);
    apic_write(APIC_ERROR, 0);
    check(apic_read(APIC_ERROR) & 0x60, 0x20, "an illegal vector that is sent");
    apic_write(APIC_ERROR, 0);
    apic_write(APIC_ERROR, 0);
}

static void pit_by_ioapic(void)
{
    hooks[VECTOR] = tick;
    ticks = 0;
    check(ioapic_read(1) >> 16 & 0xff, 23, "the I/O APIC has 24 inputs");
    ioapic_write(0x10 + 2 * 2 + 1, (apic_read(APIC_ID) >> 24) << 24);
    ioapic_write(0x10 + 2 * 2, VECTOR);
    pit_start(2, 1193);
    check(let_in(3) >= 3, true, "the PIT ticks through input 2");
    ioapic_write(0x10 + 2 * 2, VECTOR | LVT_MASKED);
    asm volatile("sti; nop; cli" ::: "memory");
    unsigned before = ticks;
    for (volatile unsigned i = 0; i < SPIN; i++)
        ;
    asm volatile("sti; nop; cli" ::: "memory");
    check(ticks, before, "a masked input does not");
    check(ioapic_read(0x10 + 2 * 2) & 0x100ff, LVT_MASKED | VECTOR,
          "the redirection entry reads back");
}

static u32 latched_count(void)
{
    out8(0x43, 0);
    u32 count = in8(0x40);
    return count | in8(0x40) << 8;
}

static void pit_by_pic(void)
{
    for (unsigned i = 0; i < 16; i++)
        hooks[PIC_BASE + i] = tick_pic;
    ticks = 0;
    pic_set_up(PIC_BASE, 0xfffe);
    check(in8(0x21) | in8(0xa1) << 8, 0xfffe, "the masks of the PIC read back");
    apic_write(APIC_LVT_LINT0, 0x700);
    pit_start(2, 1193);
    check(let_in(3) >= 3, true, "the PIT ticks through the PIC");
    out8(0x21, 0xff);
    asm volatile("sti; nop; cli" ::: "memory");
    unsigned before = ticks;
    for (volatile unsigned i = 0; i < SPIN; i++)
        ;
    asm volatile("sti; nop; cli" ::: "memory");
    check(ticks, before, "a masked line does not");
    apic_write(APIC_LVT_LINT0, LVT_MASKED | 0x700);
    u32 first, second;
    unsigned attempts = 0;
    do {
        pit_start(0, 0xffff);
        first = latched_count();
        for (volatile unsigned i = 0; i < 100000; i++)
            ;
        second = latched_count();
    } while (second >= first && ++attempts < 10);
    check(second < first, true, "the latched count of the PIT goes down");
    /* Channel 2 as a stop watch, as kernels calibrate. */
    out8(0x61, (in8(0x61) & ~2) | 1);
    out8(0x43, 0xb0);
    out8(0x42, 0);
    out8(0x42, 0x10);
    u64 end = rdtsc() + 20000000000ul;
    while (!(in8(0x61) & 0x20) && rdtsc() < end)
        ;
    check(in8(0x61) & 0x20, 0x20, "channel 2 runs down");
}

static u8 cmos(u8 index)
{
    out8(0x70, index);
    return in8(0x71);
}

static void clock(void)
{
    check(cmos(0xd) & 0x80, 0x80, "the clock has power");
    u8 seconds = cmos(0);
    bool binary = cmos(0xb) & 4;
    check(binary ? seconds < 60 : (seconds >> 4) < 6 && (seconds & 15) < 10, true,
          "seconds are seconds");
    u8 month = cmos(8);
    if (!binary)
        month = (month >> 4) * 10 + (month & 15);
    check(month >= 1 && month <= 12, true, "months are months");
}

static void x2apic(void)
{
    if (!(cpuid(1, 0).ecx >> 21 & 1)) {
        skip("x2APIC", "not announced");
        return;
    }
    run_kernel(get_msr, 0x802, 0);
    check_event(GP, 0, (word)get_msr_at, "x2APIC registers before it is enabled");
    wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | 0x400);
    check(rdmsr(0x802), cpuid(11, 0).edx, "x2APIC id");
    check(rdmsr(0x803) & 0xff, 0x14, "x2APIC version");
    hooks[VECTOR] = tick_x2apic;
    ticks = 0;
    wrmsr(0x80f, 0x1ff);
    wrmsr(0x83f, VECTOR);
    check(rdmsr(0x822), 1ul << (VECTOR & 31), "a self IPI is pending");
    check(let_in(1), 1, "a self IPI is taken");
    check(rdmsr(0x822) | rdmsr(0x812), 0, "and acknowledged");
    wrmsr(0x830, ICR_SELF | VECTOR);
    check(let_in(2), 2, "an IPI by ICR is taken");
    wrmsr(0x832, VECTOR);
    wrmsr(0x838, 10000);
    check(let_in(3), 3, "the timer fires");
    run_kernel(set_msr, 0x80b, 1);
    check_event(GP, 0, (word)set_msr_at, "EOI takes only 0");
    run_kernel(set_msr, 0x802, 1);
    check_event(GP, 0, (word)set_msr_at, "the id is read-only");
    run_kernel(get_msr, 0x80b, 0);
    check_event(GP, 0, (word)get_msr_at, "EOI is write-only");
    run_kernel(get_msr, 0x831, 0);
    check_event(GP, 0, (word)get_msr_at, "there is no upper half of ICR");
    run_kernel(set_msr, MSR_APIC_BASE, 0xfee00900);
    check_event(GP, 0, (word)set_msr_at, "no way from x2APIC back to xAPIC at once");
}

int main(void)
{
    apic_enable();
    local_apic();
    one_shot();
    periodic();
    duration();
    deadline();
    due_at_once();
    pit_by_ioapic();
    pit_by_pic();
    clock();
    x2apic();
    return 0;
}
