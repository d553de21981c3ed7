/* Every exception that an instruction can raise: vector, error code, saved RIP (fault or trap),
 * registers, in ring 0 and ring 3; the stack it arrives on, its alignment, and IST
 * (SDM 3A 6.12 to 6.15). */
#include "harness.h"

SNIPPET(divide, "xor %edx, %edx; mov $1, %eax; xor %ecx, %ecx", "div %ecx", "");
SNIPPET(divide_overflow, "mov $2, %edx; xor %eax, %eax; mov $1, %ecx", "div %ecx", "");
SNIPPET(divide_signed, "mov $0x80000000, %eax; cdq; mov $-1, %ecx", "idiv %ecx", "");
SNIPPET(divide_byte, "mov $0x1000, %eax; mov $2, %cl", "div %cl", "");
SNIPPET(icebp, "nop", ".byte 0xf1", "");
SNIPPET(int3, "nop", "int3", "");
SNIPPET(int_3_long, "nop", ".byte 0xcd, 3", "");
SNIPPET(int_4, "nop", "int $4", "");
SNIPPET(ud2, "nop", "ud2", "");
SNIPPET(into_long, "nop", ".byte 0xce", "");
SNIPPET(bound_long, "nop", ".byte 0x62, 0x00, 0, 0, 0, 0", "");
SNIPPET(lock_nop, "nop", ".byte 0xf0, 0x90", "");
SNIPPET(lock_register, "nop", ".byte 0xf0, 0x01, 0xc0", "");
SNIPPET(too_long, "nop",
        ".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x90",
        "");
SNIPPET(longest, "nop",
        ".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x90", "");
SNIPPET(load, "nop", "mov (%rdi), %rax", "");
SNIPPET(store, "nop", "mov %rax, (%rdi)", "");
SNIPPET(load_stack, "mov %rdi, %rbp", "mov (%rbp), %rax", "");
SNIPPET(push_at, "mov %rdi, %rsp", "push %rax", "");
SNIPPET(jump, "nop", "jmp *%rdi", "");
SNIPPET(call_register, "nop", "call *%rdi", "");
SNIPPET(return_to, "push %rdi", "ret", "");
SNIPPET(aligned_sse, "lea 1(%rdi), %rdi", "movaps (%rdi), %xmm0", "");
SNIPPET(halt, "nop", "hlt", "");
SNIPPET(read_msr, "mov $0x1b, %ecx", "rdmsr", "");
SNIPPET(read_bad_msr, "mov $0x12345, %ecx", "rdmsr", "");
SNIPPET(write_bad_msr, "mov $0x12345, %ecx; xor %eax, %eax; xor %edx, %edx", "wrmsr", "");
SNIPPET(cli_alone, "nop", "cli", "");
SNIPPET(sti_alone, "nop", "sti; cli", "");
SNIPPET(load_gdt, "nop", "lgdt (%rsp)", "");
SNIPPET(load_task, "xor %eax, %eax", "ltr %ax", "");
SNIPPET(read_cr0_s, "nop", "mov %cr0, %rax", "");
SNIPPET(read_cr8_s, "nop", "mov %cr8, %rax", "");
SNIPPET(write_cr3_s, "nop", "mov %rax, %cr3", "");
SNIPPET(read_dr_s, "nop", "mov %dr7, %rax", "");
SNIPPET(clear_ts, "nop", "clts", "");
SNIPPET(flush_page, "nop", "invlpg (%rdi)", "");
SNIPPET(write_back, "nop", "wbinvd", "");
SNIPPET(port_in, "mov $0x80, %edx", "inb %dx, %al", "");
SNIPPET(port_out, "nop", "outb %al, $0x80", "");
SNIPPET(port_outs, "mov $0x80, %edx; mov %rsp, %rsi", "outsb", "");
SNIPPET(read_smsw, "nop", "smsw %eax", "");
SNIPPET(int_40, "nop", "int $0x40", "");
SNIPPET(int_80, "nop", "int $0x80", "");
SNIPPET(iret_bad, "push $0; push $0; push $2; push $0; push $0", "iretq", "");
SNIPPET(cr1, "nop", ".byte 0x0f, 0x20, 0xc8", "");
SNIPPET(x87_pending, "fninit; push $0x37b; fldcw (%rsp); pop %rax; fld1; fldz; fdivrp", "fwait",
        "");
SNIPPET(sse_invalid,
        "push $0x1f00; ldmxcsr (%rsp); pop %rax; pxor %xmm0, %xmm0; movaps %xmm0, %xmm1",
        "divss %xmm1, %xmm0", "");
SNIPPET(done_only, "nop", "nop", "");

static bool user;

static const struct event *go(const void *code, word rdi)
{
    return user ? run_user(code, rdi, 0) : run_kernel(code, rdi, 0);
}

static word at(const void *label) { return user ? USER(label) : (word)label; }

static const char *ring(void) { return user ? "ring 3" : "ring 0"; }

#define RAISES(snippet, vector, error, rdi)                                   \
    do {                                                                      \
        go(snippet, rdi);                                                     \
        check_event(vector, error, at(snippet##_at), #snippet " %s", ring()); \
    } while (0)

#define TRAPS(snippet, vector)                                               \
    do {                                                                     \
        go(snippet, 0);                                                      \
        check_event(vector, 0, at(snippet##_after), #snippet " %s", ring()); \
    } while (0)

#define NONCANONICAL 0x0000800000000000
#define ABSENT 0x9000000000
static u64 data[4] __attribute__((aligned(64)));

/* Exceptions that are the same at every privilege level. */
static void both_rings(void)
{
    word object = user ? USER(data) : (word)data;
    RAISES(divide, DE, 0, 0);
    RAISES(divide_overflow, DE, 0, 0);
    RAISES(divide_signed, DE, 0, 0);
    RAISES(divide_byte, DE, 0, 0);
    TRAPS(icebp, DB);
    TRAPS(int3, BP);
    TRAPS(int_3_long, BP);
    TRAPS(int_4, OF);
    RAISES(ud2, UD, 0, 0);
    RAISES(into_long, UD, 0, 0);
    RAISES(bound_long, UD, 0, object);
    RAISES(lock_nop, UD, 0, 0);
    RAISES(lock_register, UD, 0, 0);
    RAISES(too_long, GP, 0, 0);
    go(longest, 0);
    check_done("15-byte instruction %s", ring());
    RAISES(load, GP, 0, NONCANONICAL);
    RAISES(load, GP, 0, 0xffff7ffffffffff8);
    RAISES(store, GP, 0, NONCANONICAL);
    RAISES(load_stack, SS, 0, NONCANONICAL);
    RAISES(aligned_sse, GP, 0, object);
    RAISES(x87_pending, MF, 0, 0);
    RAISES(sse_invalid, XM, 0, 0);
    TRAPS(int_80, 0x80);
    unsigned u = user ? 4 : 0;
    RAISES(load, PF, u, ABSENT);
    check(last_cr2, ABSENT, "load CR2 %s", ring());
    RAISES(store, PF, u | 2, ABSENT + 3);
    check(last_cr2, ABSENT + 3, "store CR2 %s", ring());
    go(jump, ABSENT);
    check_event(PF, u | 0x10, ABSENT, "jump to an absent page %s", ring());
    go(call_register, ABSENT);
    check_event(PF, u | 0x10, ABSENT, "call of an absent page %s", ring());
    check(last.rsp, (user ? user_state(0) : kernel_state(0)).rsp - 8, "call has pushed %s", ring());
    go(done_only, 0);
    check_done("nothing happens %s", ring());
}

/* Branches to a non-canonical address: #GP with RIP of the branch and RSP unchanged (SDM 2A, CALL,
 * JMP; 2B, RET). APM 3 leaves the choice of RIP. */
static void noncanonical_branches(void)
{
    word rsp = (user ? user_state(0) : kernel_state(0)).rsp;
    static const void *const code[] = {jump, call_register, return_to};
    static const void *const where[] = {jump_at, call_register_at, return_to_at};
    static const char *const names[] = {"jmp", "call", "ret"};
    for (unsigned i = 0; i < 3; i++) {
        go(code[i], NONCANONICAL);
        if (is_intel()) {
            check_event(GP, 0, at(where[i]), "%s to a non-canonical address %s", names[i], ring());
            check(last.rsp, rsp - (i == 2 ? 8 : 0), "%s leaves RSP %s", names[i], ring());
        } else {
            check(last.vector, GP, "%s to a non-canonical address %s", names[i], ring());
        }
    }
}

/* Ring 3 only: what is privileged (SDM 3A 5.9). */
static void privileged(void)
{
    user = true;
    RAISES(halt, GP, 0, 0);
    RAISES(read_msr, GP, 0, 0);
    RAISES(cli_alone, GP, 0, 0);
    RAISES(sti_alone, GP, 0, 0);
    RAISES(load_gdt, GP, 0, 0);
    RAISES(load_task, GP, 0, 0);
    RAISES(read_cr0_s, GP, 0, 0);
    RAISES(read_cr8_s, GP, 0, 0);
    RAISES(write_cr3_s, GP, 0, 0);
    RAISES(read_dr_s, GP, 0, 0);
    RAISES(clear_ts, GP, 0, 0);
    RAISES(flush_page, GP, 0, 0);
    RAISES(write_back, GP, 0, 0);
    RAISES(port_in, GP, 0, 0);
    RAISES(port_out, GP, 0, 0);
    RAISES(port_outs, GP, 0, 0);
    RAISES(int_40, GP, 0x40 * 8 + 2, 0);
    go(read_smsw, 0);
    check_done("smsw ring 3");
    check(last.rax & 0xffff, read_cr0() & 0xffff, "smsw value ring 3");
    user = false;
}

/* Ring 0 only. */
static void kernel_only(void)
{
    RAISES(read_bad_msr, GP, 0, 0);
    RAISES(write_bad_msr, GP, 0, 0);
    TRAPS(int_40, 0x40);
    RAISES(cr1, UD, 0, 0);
    go(iret_bad, 0);
    check_event(GP, 0, (word)iret_bad_at, "iretq to a null CS");
    static const struct {
        const char *name;
        unsigned selector, attributes, vector, error;
        u64 handler;
    } gates[] = {
        {"gate not present", KERNEL_CS, GATE_INTERRUPT & ~0x8000, NP, 0x40 * 8 + 2, 0},
        {"gate to a data segment", KERNEL_DS, GATE_INTERRUPT, GP, KERNEL_DS, 0},
        {"gate to a null selector", 0, GATE_INTERRUPT, GP, 0, 0},
        {"gate to 32-bit code", KERNEL_CS32, GATE_INTERRUPT, GP, KERNEL_CS32, 0},
        {"gate beyond the GDT", 0xfff8, GATE_INTERRUPT, GP, 0xfff8, 0},
        {"gate to a non-canonical handler", KERNEL_CS, GATE_INTERRUPT, GP, 0, NONCANONICAL},
        {"task gate", KERNEL_CS, 0x8500, GP, 0x40 * 8 + 2, 0},
        {"16-bit interrupt gate", KERNEL_CS, 0x8600, GP, 0x40 * 8 + 2, 0},
        {"call gate", KERNEL_CS, GATE_CALL, GP, 0x40 * 8 + 2, 0},
    };
    word stub = (word)vector_stubs + 0x400;
    for (unsigned i = 0; i < sizeof(gates) / sizeof(gates[0]); i++) {
        set_gate(0x40, gates[i].handler ? gates[i].handler : stub, gates[i].selector,
                 gates[i].attributes, 0);
        go(int_40, 0);
        check_event(gates[i].vector, gates[i].error, (word)int_40_at, "%s", gates[i].name);
    }
    set_gate(0x40, stub, KERNEL_CS, GATE_INTERRUPT, 0);
}

/* A gate beyond the limit of the IDT: #GP with the vector and the IDT bit. */
static void idt_limit(void)
{
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) pointer;
    asm volatile("sidt %0" : "=m"(pointer));
    pointer.limit = 0x90 * 16 - 1;
    asm volatile("lidt %0" ::"m"(pointer));
    static const u8 code[] = {0xcd, 0x8f, 0xcd, 0x90, 0xcd, 0x81};
    run_kernel(code, 0, 0);
    check_event(0x8f, 0, (word)code + 2, "the last gate of the IDT");
    run_kernel(code + 2, 0, 0);
    check_event(GP, 0x90 * 8 + 2, (word)code + 2, "a gate beyond the IDT");
    load_idt();
}

/* The frame: SS and RSP always, RSP aligned to 16 before it, the ring-0 stack of the TSS from
 * ring 3, RFLAGS as it was but for RF (SDM 3A 6.14.2). */
static void frames(void)
{
    for (unsigned offset = 0; offset < 16; offset++) {
        struct event start = kernel_state(int3);
        start.rsp += offset;
        run(&start);
        check(last.rsp, start.rsp, "RSP saved in ring 0, offset %d", offset);
        /* The frame is 22 words, of which the topmost, SS, ends at the aligned RSP. */
        check(last_frame + 22 * 8, start.rsp & ~15ul, "RSP aligned in ring 0, offset %d", offset);
    }
    run_user(int3, 0, 0);
    check(last_frame + 22 * 8, tss.rsp[0], "RSP from the TSS");
    check(last.ss, USER_DS, "SS of ring 3 saved");
    check(last.cs, USER_CS64, "CS of ring 3 saved");
    tss.rsp[0] -= 8;
    run_user(int3, 0, 0);
    check(last_frame + 22 * 8, tss.rsp[0] - 8, "RSP from the TSS is aligned");
    tss.rsp[0] += 8;
    struct event start = user_state(ud2);
    start.rflags = 2 | F_CF | F_ZF | F_DF | F_AC;
    run(&start);
    check(last.rflags, start.rflags | F_RF, "a fault saves RFLAGS with RF set");
    start = user_state(int3);
    start.rflags = 2 | F_CF | F_ZF | F_DF | F_AC;
    run(&start);
    check(last.rflags, start.rflags, "a trap saves RFLAGS with RF clear");
}

/* What the handler starts with: SS null after a change of level, IF by the kind of gate. */
static u64 seen_ss, seen_flags;
asm(".text; look: mov %ss, seen_ss; pushfq; popq seen_flags; pushq $0; pushq $0x81;"
    "jmp vector_stubs + 0x81 * 16 + 7");
extern char look[];

static void entry_state(void)
{
    set_gate(0x41, (word)look, KERNEL_CS, GATE_INTERRUPT | GATE_DPL3, 0);
    set_gate(0x42, (word)look, KERNEL_CS, GATE_TRAP | GATE_DPL3, 0);
    static const u8 by_interrupt[] = {0xcd, 0x41}, by_trap[] = {0xcd, 0x42};
    for (unsigned from_user = 0; from_user < 2; from_user++) {
        struct event start = from_user ? user_state(by_interrupt) : kernel_state(by_interrupt);
        start.rflags |= F_IF | F_NT | F_AC;
        seen_ss = 0xffff;
        run(&start);
        check(seen_ss & 0xffff, from_user ? 0 : KERNEL_DS, "SS in the handler, from user %d",
              from_user);
        check(seen_flags, 2 | F_AC, "RFLAGS by an interrupt gate, from user %d", from_user);
        start = from_user ? user_state(by_trap) : kernel_state(by_trap);
        start.rflags |= F_IF | F_NT | F_AC;
        run(&start);
        check(seen_flags, 2 | F_AC | F_IF, "RFLAGS by a trap gate, from user %d", from_user);
    }
}

static void interrupt_stack_table(void)
{
    for (unsigned ist = 1; ist <= 7; ist++) {
        set_gate(BP, (word)vector_stubs + 16 * BP, KERNEL_CS, GATE_INTERRUPT | GATE_DPL3, ist);
        for (unsigned from_user = 0; from_user < 2; from_user++) {
            from_user ? run_user(int3, 0, 0) : run_kernel(int3, 0, 0);
            check(last_frame + 22 * 8, tss.ist[ist - 1], "IST %d, from user %d", ist, from_user);
        }
    }
    set_gate(BP, (word)vector_stubs + 16 * BP, KERNEL_CS, GATE_INTERRUPT | GATE_DPL3, 0);
}

int main(void)
{
    for (unsigned i = 0; i < 2; i++) {
        user = i;
        both_rings();
        noncanonical_branches();
    }
    user = false;
    privileged();
    kernel_only();
    idt_limit();
    frames();
    entry_state();
    interrupt_stack_table();
    (void)push_at;
    return 0;
}
