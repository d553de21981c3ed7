/* Changes of privilege by iret, far calls, jumps and returns, and call gates in 64-bit mode
 * (SDM 3A 5.8, 6.14.3; SDM 2A, IRET; APM 2 4.10). */
#include "harness.h"

SNIPPET(nothing, "nop", "nop", "");
SNIPPET(read_segments, "mov %ds, %eax; mov %es, %ebx; mov %fs, %ecx; mov %gs, %edx", "nop", "");
SNIPPET(far_jump, "nop", "ljmpl *(%rdi)", "");
SNIPPET(far_call, "nop", "lcall *(%rdi)", "");
SNIPPET(return_far, "push %rsi; push %rdi", "lretq", "");
SNIPPET(return_far_outer, "push $0x2b; push %rdx; push %rsi; push %rdi", "lretq", "");
SNIPPET(return_far_pop, "push $0x2b; push %rdx; push $1; push $2; push %rsi; push %rdi",
        "lretq $16", "");
SNIPPET(iret_same, "mov %rsp, %rax; push %rdx; push %rax; pushfq; push %rsi; push %rdi", "iretq",
        "");
SNIPPET(iret_32,
        "mov %esp, %eax; sub $20, %rsp; movl %edi, (%rsp); movl %esi, 4(%rsp);"
        "movl $0x202, 8(%rsp); movl %eax, 12(%rsp); movl %edx, 16(%rsp)",
        "iretl", "");
SNIPPET(gate_target, "nop", "nop", "");
SNIPPET(gate_return, "nop", "lretq", "");
SNIPPET(call_and_back, "lcall *(%rdi)", "mov %cs, %eax; mov %ss, %ebx", "");
asm(".text; .code32; in_32: mov $0x1234, %eax; int $0x81; .code64");
extern char in_32[];

#define SPARE FREE_SELECTOR
#define SPARE2 (FREE_SELECTOR + 0x10)

static void set(unsigned selector, u32 limit, unsigned attributes)
{
    gdt[selector / 8] = descriptor(0, limit, attributes);
}

static void iret_case(unsigned cs, unsigned ss, unsigned vector, unsigned error, const char *name)
{
    struct event start = user_state(nothing);
    start.cs = cs;
    start.ss = ss;
    run(&start);
    if (vector == DONE)
        check_done("iretq: %s", name);
    else
        check_event(vector, error, (word)enter_iret, "iretq: %s", name);
}

static void iret_checks(void)
{
    set(SPARE, 0xfffff, 0xa0fb);
    iret_case(SPARE | 3, USER_DS, DONE, 0, "user code");
    iret_case(0, USER_DS, GP, 0, "null CS");
    iret_case(3, USER_DS, GP, 0, "null CS with RPL 3");
    iret_case(USER_DS, USER_DS, GP, USER_DS & ~3, "CS is data");
    iret_case(KERNEL_CS | 3, USER_DS, GP, KERNEL_CS, "CS of DPL 0, RPL 3");
    iret_case(USER_CS64 & ~3, KERNEL_DS, GP, USER_CS64 & ~3, "CS of DPL 3, RPL 0");
    iret_case(0xfffb, USER_DS, GP, 0xfff8, "CS beyond the GDT");
    iret_case(0x2f, USER_DS, GP, 0x2c, "CS in no LDT");
    set(SPARE, 0xfffff, 0xa07b);
    iret_case(SPARE | 3, USER_DS, NP, SPARE, "CS not present");
}

static void iret_conforming(void)
{
    set(SPARE, 0xfffff, 0xa09f);
    iret_case(SPARE | 3, USER_DS, DONE, 0, "conforming CS of DPL 0");
    set(SPARE, 0xfffff, 0xa0ff);
    iret_case(SPARE, KERNEL_DS, GP, SPARE, "conforming CS of DPL 3, RPL 0");
}

static void iret_stack_segment(void)
{
    iret_case(USER_CS64, 0, GP, 0, "null SS, RPL 0");
    iret_case(USER_CS64, 3, GP, 0, "null SS to ring 3");
    iret_case(USER_CS64, KERNEL_DS | 3, GP, KERNEL_DS, "SS of DPL 0");
    iret_case(USER_CS64, USER_DS & ~3, GP, USER_DS & ~3, "SS with RPL 0");
    iret_case(USER_CS64, USER_CS64, GP, USER_CS64 & ~3, "SS is code");
    iret_case(USER_CS64, 0xfffb, GP, 0xfff8, "SS beyond the GDT");
    set(SPARE, 0xfffff, 0xc073);
    iret_case(USER_CS64, SPARE | 3, SS, SPARE, "SS not present");
    set(SPARE, 0xfffff, 0xc0f1);
    iret_case(USER_CS64, SPARE | 3, GP, SPARE, "SS not writable");
}

static void iret_state(void)
{
    struct event start = user_state(nothing);
    start.rip = 0x800000000000;
    run(&start);
    check(last.vector, GP, "iretq to a non-canonical RIP");
    start = user_state(nothing);
    start.rflags = ~(F_TF | F_NT | F_RF | 15ul << 17) | F_AC;
    run(&start);
    check(last.rflags, 0x243ed7, "iretq loads every flag but the reserved");
    start = user_state(read_segments);
    asm volatile("mov %0, %%ds; mov %0, %%es; mov %0, %%fs; mov %1, %%gs" ::"r"(KERNEL_DS),
                 "r"(USER_DS));
    run(&start);
    check(last.rax, 0, "iretq to ring 3 clears DS of DPL 0");
    check(last.rbx, 0, "iretq to ring 3 clears ES of DPL 0");
    check(last.rcx, 0, "iretq to ring 3 clears FS of DPL 0");
    check(last.rdx, USER_DS, "iretq to ring 3 keeps GS of DPL 3");
    start = kernel_state(iret_same);
    start.rdi = (word)nothing;
    start.rsi = KERNEL_CS;
    start.rdx = 0;
    run(&start);
    check_done("iretq within ring 0 to a null SS");
    check(last.ss, 0, "SS is null");
    start.rflags |= F_NT;
    run(&start);
    check_event(GP, 0, (word)iret_same_at, "iretq with NT");
    start = kernel_state(iret_32);
    start.rdi = USER(nothing);
    start.rsi = USER_CS64;
    start.rdx = USER_DS;
    run(&start);
    check_event(DONE, 0, USER(nothing_after) + 2, "iretl to ring 3");
    start.rdi = USER(in_32);
    start.rsi = USER_CS32;
    run(&start);
    check(last.vector, DONE, "iretl to compatibility mode");
    check(last.rax, 0x1234, "iretl to compatibility mode has run 32-bit code");
}

struct far_pointer {
    u32 offset;
    u16 selector;
} __attribute__((packed));
static struct far_pointer pointer;

static void jump_case(bool user, unsigned selector, unsigned vector, unsigned error,
                      const char *name)
{
    struct event start = user ? user_state(far_jump) : kernel_state(far_jump);
    pointer = (struct far_pointer){user ? USER(nothing) : (word)nothing, selector};
    start.rdi = user ? USER(&pointer) : (word)&pointer;
    run(&start);
    if (vector == DONE)
        check_done("jmp far: %s", name);
    else
        check_event(vector, error, user ? USER(far_jump_at) : (word)far_jump_at, "jmp far: %s",
                    name);
}

static void far_jumps(void)
{
    jump_case(false, KERNEL_CS, DONE, 0, "same code, ring 0");
    jump_case(true, USER_CS64, DONE, 0, "same code, ring 3");
    jump_case(true, USER_CS64 & ~3, DONE, 0, "RPL 0 from ring 3 is adjusted");
    check(last.cs, USER_CS64, "CS has CPL as its RPL");
    jump_case(false, 0, GP, 0, "null");
    jump_case(false, KERNEL_DS, GP, KERNEL_DS, "data");
    jump_case(false, USER_CS64, GP, USER_CS64 & ~3, "ring 3 code from ring 0");
    jump_case(true, KERNEL_CS, GP, KERNEL_CS, "ring 0 code from ring 3");
    jump_case(true, KERNEL_CS | 3, GP, KERNEL_CS, "ring 0 code from ring 3, RPL 3");
    jump_case(false, 0xfff8, GP, 0xfff8, "beyond the GDT");
    jump_case(false, TSS_SELECTOR, GP, TSS_SELECTOR, "TSS in 64-bit mode");
    set(SPARE, 0xfffff, 0xa09f);
    jump_case(true, SPARE, DONE, 0, "conforming code of DPL 0 from ring 3");
    check(last.cs, SPARE | 3, "CS is conforming, CPL 3");
    set(SPARE, 0xfffff, 0xa01b);
    jump_case(false, SPARE, NP, SPARE, "not present");
    set(SPARE, 0xfffff, 0xe09b);
    jump_case(false, SPARE, GP, SPARE, "L and D");
    pointer = (struct far_pointer){(word)in_32, KERNEL_CS32};
    run_kernel(far_jump, (word)&pointer, 0);
    check(last.vector, DONE, "jmp far to 32-bit code");
    check(last.cs, KERNEL_CS32, "CS is 32-bit code");
    check(last.rax, 0x1234, "32-bit code has run");
}

static void set_call_gate(word target, unsigned selector, unsigned attributes)
{
    gdt[SPARE / 8] = (target & 0xffff) | (u64)selector << 16 | (u64)attributes << 32 |
                     (target >> 16 & 0xffff) << 48;
    gdt[SPARE / 8 + 1] = target >> 32;
}

static void gate_case(bool user, unsigned rpl, unsigned vector, unsigned error, const char *name)
{
    pointer = (struct far_pointer){0xdeadbeef, SPARE | rpl};
    if (user)
        run_user(far_call, USER(&pointer), 0);
    else
        run_kernel(far_call, (word)&pointer, 0);
    if (vector == DONE)
        check_done("call gate: %s", name);
    else
        check_event(vector, error, user ? USER(far_call_at) : (word)far_call_at, "call gate: %s",
                    name);
}

static void call_gates(void)
{
    unsigned gate = GATE_CALL | GATE_DPL3;
    set_call_gate((word)gate_target, KERNEL_CS, gate);
    gate_case(true, 3, DONE, 0, "from ring 3");
    check(last.cs, KERNEL_CS, "call gate: CS");
    check(last.ss, 0, "call gate: SS is null");
    u64 *stack = (u64 *)last.rsp;
    check(last.rsp, tss.rsp[0] - 32, "call gate: RSP from the TSS");
    check(stack[0], USER(far_call_after), "call gate: RIP pushed");
    check(stack[1], USER_CS64, "call gate: CS pushed");
    check(stack[2], user_state(0).rsp, "call gate: RSP pushed");
    check(stack[3], USER_DS, "call gate: SS pushed");
    gate_case(false, 0, DONE, 0, "from ring 0");
    check(last.rsp, kernel_state(0).rsp - 16, "call gate: no change of stack within ring 0");
    set_call_gate((word)gate_target, KERNEL_CS | 3, gate);
    gate_case(true, 3, DONE, 0, "RPL of the target selector is ignored");
    check(last.cs, KERNEL_CS, "call gate: CS has RPL 0");
    set_call_gate((word)gate_return_at, KERNEL_CS, gate);
    pointer.selector = SPARE | 3;
    run_user(call_and_back, USER(&pointer), 0);
    check_done("call gate and lretq");
    check(last.rax, USER_CS64, "lretq: CS");
    check(last.rbx, USER_DS, "lretq: SS");
    check(last.rsp, user_state(0).rsp, "lretq: RSP");
    set_call_gate((word)gate_target, KERNEL_CS, GATE_CALL);
    gate_case(true, 3, GP, SPARE, "DPL 0 from ring 3");
    gate_case(false, 3, GP, SPARE, "DPL 0, RPL 3 from ring 0");
    set_call_gate((word)gate_target, KERNEL_CS, gate & ~0x8000);
    gate_case(true, 3, NP, SPARE, "not present");
    set_call_gate((word)gate_target, 0, gate);
    gate_case(true, 3, GP, 0, "null target");
    set_call_gate((word)gate_target, KERNEL_DS, gate);
    gate_case(true, 3, GP, KERNEL_DS, "target is data");
    set_call_gate((word)gate_target, KERNEL_CS32, gate);
    gate_case(true, 3, GP, KERNEL_CS32, "target is 32-bit code");
    set_call_gate((word)gate_target, 0xfff8, gate);
    gate_case(true, 3, GP, 0xfff8, "target beyond the GDT");
    set_call_gate((word)gate_target, USER_CS64, gate);
    gate_case(false, 0, GP, USER_CS64 & ~3, "target of less privilege");
    set_call_gate((word)gate_target, KERNEL_CS, 0x8400 | GATE_DPL3);
    gate_case(true, 3, GP, SPARE, "16-bit gate in 64-bit mode");
    set_call_gate((word)gate_target, KERNEL_CS, gate);
    gdt[SPARE / 8 + 1] |= 1ull << 40;
    gate_case(true, 3, GP, SPARE, "type in the upper half");
    set_call_gate(0x800000000000, KERNEL_CS, gate);
    gate_case(true, 3, GP, 0, "non-canonical target");
    set_call_gate((word)gate_target, KERNEL_CS, gate);
    u64 stack_pointer = tss.rsp[0];
    tss.rsp[0] = 0x800000000000;
    struct event start = user_state(far_call);
    start.rdi = USER(&pointer);
    for (unsigned vector = DF; vector <= GP; vector++)
        set_gate(vector, (word)vector_stubs + 16 * vector, KERNEL_CS, GATE_INTERRUPT, 1);
    run(&start);
    check(last.vector, SS, "call gate: non-canonical RSP in the TSS");
    for (unsigned vector = DF; vector <= GP; vector++)
        set_gate(vector, (word)vector_stubs + 16 * vector, KERNEL_CS, GATE_INTERRUPT, 0);
    tss.rsp[0] = stack_pointer;
}

static void return_case(const void *code, word rip, word cs, unsigned vector, unsigned error,
                        const char *name)
{
    struct event start = kernel_state(code);
    start.rdi = rip;
    start.rsi = cs;
    start.rdx = user_state(0).rsp;
    run(&start);
    if (vector == DONE)
        check_done("lretq: %s", name);
    else
        check_event(vector, error, (word)(code == return_far ? return_far_at : return_far_outer_at),
                    "lretq: %s", name);
}

static void far_returns(void)
{
    return_case(return_far, (word)nothing, KERNEL_CS, DONE, 0, "within ring 0");
    check(last.rsp, kernel_state(0).rsp, "lretq: RSP within ring 0");
    return_case(return_far_outer, USER(nothing), USER_CS64, DONE, 0, "to ring 3");
    check(last.cs, USER_CS64, "lretq: CS of ring 3");
    check(last.rsp, user_state(0).rsp, "lretq: RSP of ring 3");
    struct event start = kernel_state(return_far_pop);
    start.rdi = USER(nothing);
    start.rsi = USER_CS64;
    start.rdx = user_state(0).rsp;
    run(&start);
    check_done("lretq 16 to ring 3");
    check(last.rsp, user_state(0).rsp + 16, "lretq 16 releases both stacks");
    return_case(return_far, (word)nothing, 0, GP, 0, "null CS");
    return_case(return_far, (word)nothing, KERNEL_DS, GP, KERNEL_DS, "CS is data");
    return_case(return_far_outer, USER(nothing), KERNEL_CS | 3, GP, KERNEL_CS,
                "CS of DPL 0, RPL 3");
    start = user_state(return_far);
    start.rdi = USER(nothing);
    start.rsi = KERNEL_CS;
    run(&start);
    check_event(GP, KERNEL_CS, USER(return_far_at), "lretq: to ring 0 from ring 3");
    start = user_state(iret_same);
    start.rdi = USER(nothing);
    start.rsi = KERNEL_CS;
    start.rdx = KERNEL_DS;
    run(&start);
    check_event(GP, KERNEL_CS, USER(iret_same_at), "iretq: to ring 0 from ring 3");
    start.rsi = USER_CS64;
    start.rdx = USER_DS;
    run(&start);
    check_done("iretq: within ring 3");
}

int main(void)
{
    iret_checks();
    iret_conforming();
    iret_stack_segment();
    iret_state();
    far_jumps();
    call_gates();
    far_returns();
    return 0;
}
