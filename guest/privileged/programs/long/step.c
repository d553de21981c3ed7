/* Single-step by RFLAGS.TF: after which instructions #DB comes, and with which RIP, over ordinary,
 * string, privileged and faulting instructions, and who sets and clears TF (SDM 3B 17.3.1.4). */
#include "apic.h"

#define TIMER 0x40

SNIPPET(plain, "nop; nop", "nop", "nop");
SNIPPET(branches,
        "jmp 1f; nop; 1: call 2f; nop; jmp 3f; 2: ret; 3: xor %eax, %eax; jz 4f; nop; 4: nop",
        "nop", "");
SNIPPET(string, "mov $3, %ecx; mov %rsp, %rsi; mov %rsp, %rdi; cld", "rep movsb", "nop");
SNIPPET(string_none, "xor %ecx, %ecx", "rep movsb", "nop");
SNIPPET(popf_on, "pushq $0x102", "popfq", "nop; nop");
SNIPPET(popf_off, "pushq $2", "popfq", "nop; nop");
SNIPPET(push_flags, "pushfq", "pop %rax", "");
SNIPPET(stack_switch, "mov %ss, %eax", "mov %eax, %ss", "nop; nop");
SNIPPET(pop_segment, "mov %ds, %eax; push %rax", "popq %fs", "nop");
SNIPPET(breakpoint, "nop", "int3", "nop; nop");
SNIPPET(fault, "nop", "mov (%rdi), %eax", "nop");
SNIPPET(call_system, "nop", "syscall", "nop");
SNIPPET(system_back, "nop", "sysretq", "");
SNIPPET(system_back_32, "nop", "sysretl", "");
SNIPPET(system_plain, "nop", "nop", "");
SNIPPET(halt, "nop", "hlt", "nop");
SNIPPET(halt_open, "sti", "hlt", "nop");
SNIPPET(iret_within,
        "mov %rsp, %rax; mov %ss, %ecx; push %rcx; push %rax; push %rdi; mov %cs, %ecx; push %rcx;"
        "lea 1f(%rip), %rax; push %rax",
        "iretq", "nop; 1: nop; nop");
SNIPPET(
    emulated,
    "sub $64, %rsp; mov $1, %eax; xor %ecx, %ecx; cpuid; rdtsc; cli; mov %cr0, %rax; mov %rax, %cr0;"
    "mov %cr4, %rax;"
    "mov %rax, %cr4; mov %cr3, %rax; mov %rax, %cr3; mov %ds, %eax; mov %eax, %ds; sgdt (%rsp);"
    "lgdt (%rsp); mov $0xc0000102, %ecx; rdmsr; wrmsr; clts; invlpg (%rsp); outb %al, $0x80;"
    "inb $0x80, %al; mov $0xfee00020, %edi; mov (%rdi), %eax; str %eax; swapgs; swapgs;"
    "pushfq; popfq; nop",
    "nop", "");
SNIPPET(vector, "movups -64(%rsp), %xmm0; addps %xmm0, %xmm1; fld1; fstp %st(0)", "nop", "");
SNIPPET(straight, "mov (%rsp), %rax; mov %rax, -8(%rsp); lock incq -8(%rsp); push %rax; pop %rax",
        "nop", "");
SNIPPET32(plain_32, "nop; mov $1, %eax; push %eax; pop %eax", "nop", "");
SNIPPET(trap_off, "nop", "nop", "nop");

static word dr6_seen[256];
static word step_flags;

static bool log_step(struct event *event)
{
    if (event_count < 256)
        dr6_seen[event_count] = read_dr6();
    write_dr6(0xffff0ff0);
    step_flags = event->rflags;
    return log_and_resume(event);
}

static bool mend_fault(struct event *event)
{
    event->rdi = event->rsp;
    return log_and_resume(event);
}

static const struct event *step(const void *code, bool user)
{
    struct event start = user ? user_state(code) : kernel_state(code);
    start.rflags |= F_TF;
    return run(&start);
}

/* The events must have been at these places, and each with BS in DR6. */
static void check_steps(const char *name, bool user, unsigned count, const word *where)
{
    word base = user ? USER_ALIAS : 0;
    check(event_count, count, "%s: number of events, user %d", name, user);
    bool places = true, bs = true;
    for (unsigned i = 0; i < count && i < event_count; i++) {
        if (event_log[i].rip != where[i] + base) {
            print("place %d: %x instead of %x\n", i, event_log[i].rip, where[i] + base);
            places = false;
        }
        bs &= event_log[i].vector != DB || dr6_seen[i] == 0xffff4ff0;
    }
    check(places, true, "%s: places, user %d", name, user);
    check(bs, true, "%s: DR6.BS, user %d", name, user);
}

#define STEPS(name, user, ...)                                          \
    do {                                                                \
        const word places[] = {__VA_ARGS__};                            \
        check_steps(name, user, sizeof(places) / sizeof(word), places); \
    } while (0)

static void ordinary(bool user)
{
    word p = (word)plain;
    step(plain, user);
    STEPS("nops", user, p + 1, p + 2, p + 3, p + 4);
    step(branches, user);
    word b = (word)branches;
    /* jmp(2) nop call(5) nop jmp(2) ret xor(2) jz(2) nop nop nop */
    STEPS("branches", user, b + 3, b + 11, b + 8, b + 9, b + 12, b + 14, b + 17, b + 18, b + 19);
    step(string, user);
    word s = (word)string_at, e = (word)string_after;
    STEPS("rep movsb", user, (word)string + 5, (word)string + 8, (word)string + 11, s, s, s, e,
          e + 1);
    step(string_none, user);
    STEPS("rep movsb of nothing", user, (word)string_none_at, (word)string_none_after,
          (word)string_none_after + 1);
    step(straight, user);
    check(event_count, 6, "loads and stores: number of events, user %d", user);
    step(vector, user);
    check(event_count, 5, "vector and x87: number of events, user %d", user);
    step(push_flags, user);
    check(last.rax & F_TF, F_TF, "pushf shows TF, user %d", user);
    step(pop_segment, user);
    check(event_count, 4, "pop fs holds nothing off, user %d", user);
}

static void setting(bool user)
{
    user ? run_user(popf_on, 0, 0) : run_kernel(popf_on, 0, 0);
    word a = (word)popf_on_after;
    STEPS("popf sets TF", user, a + 1, a + 2);
    step(popf_off, user);
    STEPS("popf clears TF", user, (word)popf_off_at, (word)popf_off_after);
    check(step_flags & F_TF, 0, "popf clears TF: saved RFLAGS, user %d", user);
    step(stack_switch, user);
    a = (word)stack_switch_after;
    STEPS("mov ss", user, (word)stack_switch_at, a + 1, a + 2);
    struct event start = user ? user_state(iret_within) : kernel_state(iret_within);
    start.rdi = 2 | F_TF;
    run(&start);
    a = (word)iret_within_after;
    STEPS("iret sets TF", user, a + 2, a + 3);
    start.rflags |= F_TF;
    start.rdi = 2;
    run(&start);
    check(event_log[event_count - 1].rip, a + 1 + (user ? USER_ALIAS : 0),
          "iret clears TF: the last step, user %d", user);
    check(last.vector, DONE, "iret clears TF, user %d", user);
}

static void events(bool user)
{
    hooks[BP] = log_and_resume;
    step(breakpoint, user);
    word at = (word)breakpoint_at, after = (word)breakpoint_after;
    STEPS("int3", user, at, after, after + 1, after + 2);
    check(event_log[1].vector, BP, "int3: the second event, user %d", user);
    check(event_log[1].rflags & F_TF, F_TF, "int3 saves TF, user %d", user);
    hooks[BP] = 0;
    hooks[PF] = mend_fault;
    struct event start = user ? user_state(fault) : kernel_state(fault);
    start.rflags |= F_TF;
    start.rdi = 0x9000000000;
    run(&start);
    at = (word)fault_at, after = (word)fault_after;
    STEPS("a fault", user, at, at, after, after + 1);
    check(event_log[1].vector, PF, "a fault: the second event, user %d", user);
    hooks[PF] = 0;
}

static void system_calls(void)
{
    wrmsr(MSR_STAR, (u64)USER_CS32 << 48 | (u64)KERNEL_CS << 32);
    wrmsr(MSR_LSTAR, (word)system_plain);
    wrmsr(MSR_SFMASK, F_TF);
    step(call_system, true);
    check(event_count, 1, "syscall that masks TF: number of events");
    check(last.r11 & F_TF, F_TF, "syscall that masks TF: R11");
    check(last.rflags & F_TF, 0, "syscall that masks TF: RFLAGS");
    check_event(DONE, 0, (word)system_plain_after + 2, "syscall that masks TF");
    wrmsr(MSR_LSTAR, (word)system_back_at);
    step(call_system, true);
    check(event_log[event_count - 1].rip, USER(call_system_after) + 1,
          "stepping goes on after sysret");
    check(last.vector, DONE, "syscall and sysret with TF");
    word c = (word)call_system_at;
    STEPS("syscall and sysret with TF", true, c, c + 2, c + 3);
    wrmsr(MSR_SFMASK, 0);
    wrmsr(MSR_LSTAR, (word)system_plain);
    step(call_system, true);
    word s = (word)system_plain;
    STEPS("syscall that leaves TF", false, USER(call_system_at), s, s + 1, s + 2);
    check(event_log[1].cs, KERNEL_CS, "syscall that leaves TF: CS");
}

/* Unlike `iret`, `sysret` to code with TF set traps before that code's first instruction. */
static void system_returns(void)
{
    struct event start = kernel_state(system_back_at);
    start.rcx = USER(plain);
    start.r11 = 2 | F_TF;
    start.rsp = user_state(0).rsp;
    run(&start);
    word p = (word)plain;
    STEPS("sysretq that sets TF", true, p, p + 1, p + 2, p + 3, p + 4);
    check(event_log[0].cs, USER_CS64, "sysretq that sets TF: CS");
    start.rip = (word)system_back_32_at;
    start.rcx = USER(plain_32);
    run(&start);
    p = (word)plain_32;
    STEPS("sysretl that sets TF", true, p, p + 1, p + 6, p + 7, p + 8, p + 9);
    check(event_log[0].cs, USER_CS32, "sysretl that sets TF: CS");
}

static bool acknowledge(struct event *event)
{
    (void)event;
    apic_eoi();
    return true;
}

/* The trap of `hlt` is pending when it completes, and ends the halt (SDM 2A, HLT). */
static void halts(void)
{
    if (is_tcg()) {
        skip("hlt with TF", "TCG halts for ever");
        return;
    }
    word h = (word)halt_at;
    step(halt, false);
    STEPS("hlt with IF clear", false, h, h + 1, h + 2);
    apic_enable();
    hooks[TIMER] = acknowledge;
    static const u32 counts[] = {1, 20000, 2000000000};
    h = (word)halt_open_at;
    for (unsigned i = 0; i < 3; i++) {
        apic_timer(TIMER, 0, counts[i]);
        step(halt_open, false);
        STEPS("sti, hlt and a timer", false, h, h + 1, h + 2);
        apic_timer_off();
    }
}

static void others(void)
{
    step(emulated, false);
    check(event_count, 32, "instructions that are emulated: number of events");
    struct event start = compat_state(plain_32);
    start.rflags |= F_TF;
    run(&start);
    word p = (word)plain_32;
    STEPS("compatibility mode", true, p + 1, p + 6, p + 7, p + 8, p + 9);
    run_kernel(trap_off, 0, 0);
    check(event_count, 0, "no steps without TF");
}

int main(void)
{
    hooks[DB] = log_step;
    write_dr6(0xffff0ff0);
    for (unsigned user = 0; user < 2; user++) {
        ordinary(user);
        setting(user);
        events(user);
    }
    system_calls();
    system_returns();
    halts();
    others();
    return 0;
}
