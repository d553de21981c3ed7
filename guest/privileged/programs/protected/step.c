/* Single-step, debug registers and interrupt shadows in 32-bit protected mode (SDM 3B 17.3; SDM 3A
 * 6.8.3). */
#include "harness.h"

SNIPPET(plain, "nop; inc %eax", "push %eax", "pop %eax");
SNIPPET(pop_stack_segment, "push %ss", "pop %ss", "nop; nop");
SNIPPET(load_stack_segment, "mov %ss, %eax", "mov %eax, %ss", "nop; nop");
SNIPPET(load_stack_pair, "push %ss; push %esp", "lss (%esp), %esp", "add $4, %esp; nop");
SNIPPET(string, "mov $3, %ecx; mov %esp, %esi; mov %esp, %edi; cld", "rep movsb", "nop");
SNIPPET(set_flags, "push $0x102", "popfl", "nop; nop");
SNIPPET(overflow, "mov $0x7fffffff, %eax; inc %eax", "into", "nop");
SNIPPET(store, "nop", "movl %eax, (%edi)", "nop");
SNIPPET(enter_system, "nop", "sysenter", "nop");
SNIPPET(system_entry, "nop", "nop", "");
SNIPPET(far_call, "nop", "push %cs; call 1f", "nop; jmp 2f; 1: lret; 2:");

static bool log_step(struct event *event)
{
    write_dr6(0xffff0ff0);
    return log_and_resume(event);
}

static void step(const char *name, const void *code, bool user, unsigned count, const word *places)
{
    struct event start = user ? user_state(code) : kernel_state(code);
    start.rflags |= F_TF;
    run(&start);
    check(event_count, count, "%s: number of events, user %d", name, user);
    bool right = true;
    for (unsigned i = 0; i < count && i < event_count; i++)
        right &= event_log[i].rip == places[i];
    check(right, true, "%s: places, user %d", name, user);
}

#define STEPS(name, ...)                                                \
    do {                                                                \
        const word places[] = {__VA_ARGS__};                            \
        step(#name, name, user, sizeof(places) / sizeof(word), places); \
    } while (0)

static void both_rings(bool user)
{
    word p = (word)plain, a = (word)pop_stack_segment_after, l = (word)load_stack_segment_after;
    STEPS(plain, p + 1, p + 2, p + 3, p + 4);
    STEPS(pop_stack_segment, (word)pop_stack_segment_at, a + 1, a + 2);
    STEPS(load_stack_segment, (word)load_stack_segment_at, l + 1, l + 2);
    STEPS(string, (word)string + 5, (word)string + 7, (word)string + 9, (word)string_at,
          (word)string_at, (word)string_at, (word)string_after, (word)string_after + 1);
    /* lss holds nothing off. */
    l = (word)load_stack_pair_after;
    STEPS(load_stack_pair, (word)load_stack_pair + 1, (word)load_stack_pair_at, l, l + 3, l + 4);
    hooks[OF] = log_and_resume;
    word o = (word)overflow_after;
    STEPS(overflow, (word)overflow + 5, (word)overflow_at, o, o + 1);
    check(event_log[2].vector, OF, "into: the third event, user %d", user);
    hooks[OF] = 0;
    user ? run_user(set_flags, 0, 0) : run_kernel(set_flags, 0, 0);
    check(event_count, 2, "popf sets TF: number of events, user %d", user);
    check(event_log[0].rip, (word)set_flags_after + 1, "popf sets TF: the first, user %d", user);
}

static void watchpoint(void)
{
    static u32 watched;
    write_dr1((word)&watched);
    write_dr7(0x400 | 1 << 2 | 0xdu << 20);
    hooks[DB] = 0;
    run_kernel(store, (word)&watched, 0);
    check_event(DB, 0, (word)store_after, "watchpoint");
    check(read_dr6() & 0xf, 2, "watchpoint: DR6");
    write_dr7(0x400);
    run_kernel(far_call, 0, 0);
    check_done("push cs; call; lret");
}

/* `sysenter` leaves TF alone, and a trap follows it (SDM 2B, SYSENTER). */
static void system_entries(void)
{
    wrmsr(MSR_SYSENTER_CS, KERNEL_CS);
    wrmsr(MSR_SYSENTER_EIP, (word)system_entry);
    wrmsr(MSR_SYSENTER_ESP, kernel_state(0).rsp);
    word s = (word)system_entry;
    const word places[] = {(word)enter_system_at, s, s + 1, s + 2};
    step("sysenter", enter_system, true, 4, places);
    check(event_log[1].cs, KERNEL_CS, "sysenter: CS");
}

int main(void)
{
    hooks[DB] = log_step;
    write_dr6(0xffff0ff0);
    both_rings(false);
    both_rings(true);
    system_entries();
    watchpoint();
    return 0;
}
