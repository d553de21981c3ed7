/* Debug registers: breakpoints on instructions, data and ports, DR6 and DR7, general detect, and
 * the aliases DR4 and DR5 (SDM 3B 17.2, 17.3). */
#include "harness.h"

SNIPPET(three_nops, "nop", "nop", "nop");
SNIPPET(store_1, "nop", "movb %al, (%rdi)", "nop");
SNIPPET(store_4, "nop", "movl %eax, (%rdi)", "nop");
SNIPPET(store_8, "nop", "movq %rax, (%rdi)", "nop");
SNIPPET(store_16, "nop", "movups %xmm0, (%rdi)", "nop");
SNIPPET(load_1, "nop", "movb (%rdi), %al", "nop");
SNIPPET(load_8, "nop", "movq (%rdi), %rax", "nop");
SNIPPET(modify, "nop", "lock incq (%rdi)", "nop");
SNIPPET(push_here, "mov %rsp, %rbx; lea 8(%rdi), %rsp", "push %rax", "mov %rbx, %rsp");
SNIPPET(copy, "cld; mov %rsp, %rsi; mov $16, %ecx", "rep movsb", "nop");
SNIPPET(port_write, "nop", "outb %al, $0x80", "nop");
SNIPPET(read_dr, "nop", "mov %dr0, %rax", "");
SNIPPET(write_dr, "nop", "mov %rdi, %dr0", "");
SNIPPET(write_dr6_s, "nop", "mov %rdi, %dr6", "");
SNIPPET(write_dr7_s, "nop", "mov %rdi, %dr7", "");
SNIPPET(read_dr4, "nop", ".byte 0x0f, 0x21, 0xe0", "");
SNIPPET(read_dr5, "nop", ".byte 0x0f, 0x21, 0xe8", "");
SNIPPET(stack_from_memory, "nop", "mov (%rdi), %ss", "nop; nop");
SNIPPET(stack_then_icebp, "mov (%rdi), %ss", ".byte 0xf1", "nop");
SNIPPET(after_stack_load, "mov %ss, %eax; mov %eax, %ss", "nop", "nop");
SNIPPET(icebp, "nop", ".byte 0xf1", "");
SNIPPET(spin, "mov $100, %ecx", "1: dec %ecx; jnz 1b", "");

#define DR6_CLEAR 0xffff0ff0
#define DR7_CLEAR 0x400
enum { EXECUTE, WRITE, PORT, READ_WRITE };
enum { LENGTH_1 = 0, LENGTH_2 = 1, LENGTH_4 = 3, LENGTH_8 = 2 };

static u64 data[8] __attribute__((aligned(64)));
static word seen_dr6, seen_dr7;
static unsigned hits;

static bool stop_at_debug(struct event *event)
{
    (void)event;
    seen_dr6 = read_dr6();
    seen_dr7 = read_dr7();
    write_dr7(DR7_CLEAR);
    write_dr6(DR6_CLEAR);
    return false;
}

/* Count, and go on past an instruction breakpoint by RF. */
static bool count_and_go_on(struct event *event)
{
    hits++;
    write_dr6(DR6_CLEAR);
    event->rflags |= F_RF;
    return true;
}

static word enable(unsigned index, unsigned kind, unsigned length)
{
    return DR7_CLEAR | 1ul << (2 * index) | (word)(kind | length << 2) << (16 + 4 * index);
}

static const struct event *go(const void *code, word rdi, bool user, word dr7)
{
    struct event start = user ? user_state(code) : kernel_state(code);
    start.rdi = rdi;
    write_dr6(DR6_CLEAR);
    write_dr7(dr7);
    run(&start);
    write_dr7(DR7_CLEAR);
    return &last;
}

static void instructions(bool user)
{
    word base = user ? USER_ALIAS : 0;
    write_dr0((word)three_nops_at + base);
    go(three_nops, 0, user, enable(0, EXECUTE, LENGTH_1));
    check_event(DB, 0, (word)three_nops_at + base, "instruction breakpoint, user %d", user);
    check(seen_dr6, DR6_CLEAR | 1, "instruction breakpoint: DR6, user %d", user);
    /* The one fault that does not save RF set (SDM 3B 17.3.1.1). */
    check(last.rflags & F_RF, 0, "instruction breakpoint: RF is saved clear, user %d", user);
    write_dr3((word)three_nops_after + base);
    go(three_nops, 0, user, enable(3, EXECUTE, LENGTH_1));
    check_event(DB, 0, (word)three_nops_after + base, "instruction breakpoint 3, user %d", user);
    check(seen_dr6, DR6_CLEAR | 8, "instruction breakpoint 3: DR6, user %d", user);
    go(three_nops, 0, user, enable(0, EXECUTE, LENGTH_1) ^ 3);
    check_event(DB, 0, (word)three_nops_at + base, "globally enabled, user %d", user);
    go(three_nops, 0, user, DR7_CLEAR);
    check_done("not enabled, user %d", user);
    hooks[DB] = count_and_go_on;
    hits = 0;
    go(three_nops, 0, user, enable(0, EXECUTE, LENGTH_1) | enable(3, EXECUTE, LENGTH_1));
    check_done("two breakpoints passed by RF, user %d", user);
    check(hits, 2, "two breakpoints passed by RF: hits, user %d", user);
    write_dr1((word)spin_at + base);
    hits = 0;
    go(spin, 0, user, enable(1, EXECUTE, LENGTH_1));
    check(hits, 100, "a breakpoint in a loop: hits, user %d", user);
    hooks[DB] = stop_at_debug;
}

static void data_case(const char *name, const void *code, const void *after, word offset,
                      unsigned kind, unsigned length, unsigned place, bool hit, bool user)
{
    word base = user ? USER_ALIAS : 0;
    write_dr2((word)data + place + base);
    go(code, (word)data + offset + base, user, enable(2, kind, length));
    if (hit) {
        check_event(DB, 0, (word)after + base, "%s, user %d", name, user);
        check(seen_dr6, DR6_CLEAR | 4, "DR6: %s, user %d", name, user);
    } else {
        check_done("%s, user %d", name, user);
    }
}

#define DATA(name, code, offset, kind, length, place, hit) \
    data_case(name, code, code##_after, offset, kind, length, place, hit, user)

static void data_breakpoints(bool user)
{
    DATA("a store hits a write breakpoint", store_1, 8, WRITE, LENGTH_1, 8, true);
    DATA("a store beside a write breakpoint", store_1, 9, WRITE, LENGTH_1, 8, false);
    DATA("a store hits a read-write breakpoint", store_1, 8, READ_WRITE, LENGTH_1, 8, true);
    DATA("a load passes a write breakpoint", load_1, 8, WRITE, LENGTH_1, 8, false);
    DATA("a load hits a read-write breakpoint", load_1, 8, READ_WRITE, LENGTH_1, 8, true);
    DATA("a store of 8 covers a breakpoint of 1", store_8, 0, WRITE, LENGTH_1, 5, true);
    DATA("a store of 1 within a breakpoint of 8", store_1, 5, WRITE, LENGTH_8, 0, true);
    DATA("a store of 1 within a breakpoint of 4", store_1, 7, WRITE, LENGTH_4, 4, true);
    DATA("a store of 1 beyond a breakpoint of 4", store_1, 8, WRITE, LENGTH_4, 4, false);
    DATA("a store of 4 overlaps a breakpoint of 2", store_4, 1, WRITE, LENGTH_2, 4, true);
    DATA("a store of 4 ends before a breakpoint", store_4, 0, WRITE, LENGTH_2, 4, false);
    DATA("a store of 16 covers a breakpoint", store_16, 0, WRITE, LENGTH_8, 8, true);
    DATA("a load of 8 crosses into a breakpoint", load_8, 4, READ_WRITE, LENGTH_1, 11, true);
    DATA("a locked modification", modify, 8, WRITE, LENGTH_8, 8, true);
    DATA("a push", push_here, 8, WRITE, LENGTH_8, 8, true);
    word base = user ? USER_ALIAS : 0;
    write_dr2((word)data + 4 + base);
    go(copy, (word)data + base, user, enable(2, WRITE, LENGTH_1));
    check(last.vector, DB, "rep movsb over a breakpoint, user %d", user);
    check(last.rip == (word)copy_at + base, true, "rep movsb over a breakpoint: RIP, user %d",
          user);
    check(last.rcx <= 11, true, "rep movsb over a breakpoint: RCX, user %d", user);
    write_dr2((word)data + 16 + base);
    go(copy, (word)data + base, user, enable(2, WRITE, LENGTH_1));
    check_done("rep movsb up to a breakpoint, user %d", user);
    check(last.rcx, 0, "rep movsb up to a breakpoint: RCX, user %d", user);
}

static void ports(void)
{
    write_cr4(read_cr4() | CR4_DE);
    write_dr0(0x80);
    go(port_write, 0, false, enable(0, PORT, LENGTH_1));
    check_event(DB, 0, (word)port_write_after, "port breakpoint");
    check(seen_dr6, DR6_CLEAR | 1, "port breakpoint: DR6");
    run_kernel(read_dr4, 0, 0);
    check_event(UD, 0, (word)read_dr4_at, "DR4 with CR4.DE");
    run_kernel(read_dr5, 0, 0);
    check_event(UD, 0, (word)read_dr5_at, "DR5 with CR4.DE");
    write_cr4(read_cr4() & ~CR4_DE);
    go(port_write, 0, false, enable(0, WRITE, LENGTH_1));
    check_done("no port breakpoint without CR4.DE");
    run_kernel(read_dr4, 0, 0);
    check(last.rax, read_dr6(), "DR4 is DR6");
    run_kernel(read_dr5, 0, 0);
    check(last.rax, read_dr7(), "DR5 is DR7");
}

static void registers(void)
{
    write_dr0(0x123456789abcdef0);
    check(read_dr0(), 0x123456789abcdef0, "DR0 holds 64 bits");
    write_dr1(1), write_dr2(2), write_dr3(3);
    check(read_dr1() | read_dr2() << 8 | read_dr3() << 16, 0x30201, "DR1 to DR3");
    write_dr6(0);
    check(read_dr6(), DR6_CLEAR, "DR6 of 0");
    write_dr6(0xe00f);
    check(read_dr6(), DR6_CLEAR | 0xe00f, "DR6 of all that can be set");
    write_dr6(DR6_CLEAR);
    write_dr7(0);
    check(read_dr7(), DR7_CLEAR, "DR7 of 0");
    write_dr7(0xffff03ff);
    check(read_dr7(), 0xffff07ff, "DR7 of all that can be set");
    write_dr7(DR7_CLEAR);
    run_kernel(write_dr6_s, 1ul << 32, 0);
    check_event(GP, 0, (word)write_dr6_s_at, "DR6 above 32 bits");
    run_kernel(write_dr7_s, 1ul << 32, 0);
    check_event(GP, 0, (word)write_dr7_s_at, "DR7 above 32 bits");
    run_user(read_dr, 0, 0);
    check_event(GP, 0, USER(read_dr_at), "DR0 read in ring 3");
    run_user(write_dr, 0, 0);
    check_event(GP, 0, USER(write_dr_at), "DR0 written in ring 3");
}

static void general_detect(void)
{
    go(read_dr, 0, false, DR7_CLEAR | 1 << 13);
    check_event(DB, 0, (word)read_dr_at, "general detect on a read");
    check(seen_dr6, DR6_CLEAR | 1 << 13, "general detect: DR6.BD");
    check(seen_dr7, DR7_CLEAR, "general detect: DR7.GD is cleared for the handler");
    go(write_dr, 0, false, DR7_CLEAR | 1 << 13);
    check_event(DB, 0, (word)write_dr_at, "general detect on a write");
    go(icebp, 0, false, DR7_CLEAR);
    check_event(DB, 0, (word)icebp_after, "int1");
    check(seen_dr6, DR6_CLEAR, "int1 sets nothing in DR6");
}

/* Step and data breakpoint at once: one #DB with both bits. */
static void together(void)
{
    struct event start = kernel_state(store_1_at);
    start.rdi = (word)data;
    start.rflags |= F_TF;
    write_dr0((word)data);
    write_dr6(DR6_CLEAR);
    write_dr7(enable(0, WRITE, LENGTH_1));
    run(&start);
    check_event(DB, 0, (word)store_1_after, "step and data breakpoint");
    check(seen_dr6, DR6_CLEAR | 0x4001, "step and data breakpoint: DR6");
}

/* A load of SS holds the trap of its own operand off for one instruction (SDM 3A 6.8.3). */
static void held_off(void)
{
    for (unsigned user = 0; user < 2; user++) {
        word base = user ? USER_ALIAS : 0;
        data[0] = user ? USER_DS : KERNEL_DS;
        write_dr0((word)data + base);
        go(stack_from_memory, (word)data + base, user, enable(0, READ_WRITE, LENGTH_2));
        check_event(DB, 0, (word)stack_from_memory_after + 1 + base,
                    "mov ss holds its trap off, user %d", user);
        check(seen_dr6, DR6_CLEAR | 1, "mov ss holds its trap off: DR6, user %d", user);
        /* One exception, not a second one on the stack of the first. */
        go(stack_then_icebp, (word)data + base, user, enable(0, READ_WRITE, LENGTH_2));
        check_event(DB, 0, (word)stack_then_icebp_after + base, "mov ss and int1, user %d", user);
        check(seen_dr6, DR6_CLEAR | 1, "mov ss and int1: DR6, user %d", user);
    }
}

/* Intel's processors pass an instruction breakpoint behind a load of SS, as if RF were set (SDM 3B
 * 18.3.1.1). AMD's manuals have no such rule, and their processors report it. */
static void behind_stack_loads(void)
{
    for (unsigned user = 0; user < 2; user++) {
        word at = (word)after_stack_load_at + (user ? USER_ALIAS : 0);
        write_dr0(at);
        go(after_stack_load, 0, user, enable(0, EXECUTE, LENGTH_1));
        if (is_intel()) {
            check_done("a breakpoint behind mov ss, user %d", user);
        } else {
            check_event(DB, 0, at, "a breakpoint behind mov ss, user %d", user);
            check(seen_dr6, DR6_CLEAR | 1, "a breakpoint behind mov ss: DR6, user %d", user);
        }
    }
}

int main(void)
{
    /* Events have a stack of their own: the stack pointer points into the data. */
    set_gate(DB, (word)vector_stubs + 16 * DB, KERNEL_CS, GATE_INTERRUPT, 1);
    set_gate(DONE, (word)vector_stubs + 16 * DONE, KERNEL_CS, GATE_INTERRUPT | GATE_DPL3, 2);
    hooks[DB] = stop_at_debug;
    registers();
    for (unsigned user = 0; user < 2; user++) {
        instructions(user);
        data_breakpoints(user);
    }
    ports();
    general_detect();
    together();
    held_off();
    behind_stack_loads();
    return 0;
}
