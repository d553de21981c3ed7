/* Calls from page to page and the way back, while what is mapped at either end changes: a processor
 * may remember where code is until it is told to forget, and no longer (SDM 3A 4.10.4). */
#include "paging.h"

SNIPPET(call_rbx, "nop", "call *%rbx", "");

#define FRAMES (48ul << 20)
#define HERE (HIGH_BASE + (60ul << 30))
#define THERE (HERE + 0x1000)
#define GLOBAL (P_P | P_W | P_G)

static struct walk here, there;

static u8 *frame(unsigned number) { return (u8 *)(FRAMES + 0x1000ul * number); }

static u8 *emit(u8 *at, const void *bytes, unsigned length)
{
    memcpy(at, bytes, length);
    return at + length;
}

static u8 *emit_call(u8 *at, word own, word target)
{
    int32_t distance = target - (own + 5);
    at = emit(at, "\xe8", 1);
    return emit(at, &distance, 4);
}

/* mov $value, %eax; ret */
static void emit_result(u8 *at, u32 value)
{
    at = emit(at, "\xb8", 1);
    at = emit(at, &value, 4);
    emit(at, "\xc3", 1);
}

static void map(struct walk walk, word at, unsigned number, u64 bits)
{
    *walk.entry[1] = (word)frame(number) | bits;
    invlpg(at);
}

static u32 call(void)
{
    struct event start = kernel_state(call_rbx);
    start.rbx = HERE;
    start.rdi = (word)there.entry[1];
    start.rdx = HERE;
    run(&start);
    return last.vector == DONE ? last.rax : 0xffffff00 | last.vector;
}

/* Frame 0 calls the next page, which is frame 1 or frame 2. */
static void other_targets(void)
{
    emit(emit_call(frame(0), HERE, THERE), "\xc3", 1);
    emit_result(frame(1), 0xa);
    emit_result(frame(2), 0xb);
    map(here, HERE, 0, GLOBAL);
    begin_group();
    for (unsigned i = 0; i < 40; i++) {
        map(there, THERE, 1 + i % 2, GLOBAL);
        for (unsigned again = 0; again < 5; again++)
            check(call(), i % 2 ? 0xb : 0xa, "round %d, call %d", i, again);
    }
    end_group("a global page is mapped elsewhere, invlpg");
    begin_group();
    for (unsigned i = 0; i < 10; i++) {
        *there.entry[1] = (word)frame(1 + i % 2) | GLOBAL;
        write_cr4(read_cr4() & ~CR4_PGE);
        write_cr4(read_cr4() | CR4_PGE);
        check(call(), i % 2 ? 0xb : 0xa, "round %d", i);
        check(call(), i % 2 ? 0xb : 0xa, "round %d, again", i);
    }
    end_group("the same, all flushed");
    begin_group();
    for (unsigned i = 0; i < 10; i++) {
        *there.entry[1] = (word)frame(1 + i % 2) | P_P | P_W;
        i ? flush_tlb() : invlpg(THERE);
        check(call(), i % 2 ? 0xb : 0xa, "round %d", i);
        check(call(), i % 2 ? 0xb : 0xa, "round %d, again", i);
    }
    end_group("a page that is not global, CR3 loaded");
    begin_group();
    map(there, THERE, 1, GLOBAL);
    check(call(), 0xa, "it is there");
    map(there, THERE, 1, GLOBAL | P_NX);
    check(call(), 0xffffff00 | PF, "it is not executable");
    check(last.rip, THERE, "and the call has happened");
    map(there, THERE, 1, GLOBAL);
    check(call(), 0xa, "it is executable");
    map(there, THERE, 1, 0);
    check(call(), 0xffffff00 | PF, "it is gone");
    check(last_cr2, THERE, "where");
    map(there, THERE, 1, GLOBAL);
    check(call(), 0xa, "it is back");
    emit_result(frame(1), 0xc);
    check(call(), 0xc, "it is written to");
    emit_result(frame(1) + HIGH_ALIAS, 0xd);
    check(call(), 0xd, "it is written to elsewhere");
    end_group("a target that comes and goes");
}

/* The called code maps the page that it will return to elsewhere. */
static void other_callers(void)
{
    /* mov %rsi, (%rdi); invlpg (%rdx); ret */
    static const u8 remap[] = {0x48, 0x89, 0x37, 0x0f, 0x01, 0x3a, 0xc3};
    emit_result(emit_call(frame(3), HERE, THERE), 0x33);
    emit_result(emit_call(frame(4), HERE, THERE), 0x44);
    emit(frame(5), remap, sizeof remap);
    map(there, THERE, 5, GLOBAL);
    for (unsigned global = 0; global < 2; global++) {
        u64 bits = global ? GLOBAL : P_P | P_W;
        begin_group();
        for (unsigned i = 0; i < 20; i++) {
            /* Every fourth time it stays where it is. */
            unsigned from = 3 + i % 2, to = i % 4 == 3 ? from : 7 - from;
            map(here, HERE, from, bits);
            struct event start = kernel_state(call_rbx);
            start.rbx = HERE;
            start.rdi = (word)here.entry[1];
            start.rsi = (word)frame(to) | bits;
            start.rdx = HERE;
            run(&start);
            check(last.vector, DONE, "round %d", i);
            check(last.rax, to == 3 ? 0x33 : 0x44, "round %d: where it returns to", i);
        }
        map(here, HERE, 3, bits);
        struct event start = kernel_state(call_rbx);
        start.rbx = HERE;
        start.rdi = (word)here.entry[1];
        start.rsi = 0;
        start.rdx = HERE;
        run(&start);
        check(last.vector, PF, "it returns to nothing");
        check(last.rip, HERE + 5, "where");
        end_group(global ? "the way back changes, global" : "the way back changes, not global");
    }
}

/* Returns that belong to no call, to other calls, and to calls further out. */
SNIPPET(odd_returns,
        "xor %eax, %eax; mov $50, %ecx;"
        "1: lea 2f(%rip), %rbx; push %rbx; ret; int3;"
        "2: inc %eax; call 3f; int3;"
        "3: inc %eax; lea 4f(%rip), %rbx; mov %rbx, (%rsp); ret; int3;"
        "4: inc %eax; call 5f; jmp 7f;"
        "5: inc %eax; call 6f; int3;"
        "6: inc %eax; add $8, %rsp; ret;"
        "7: call 8f; jmp 9f;"
        "8: inc %eax; push %rax; pop %rax; ret $0;"
        "9: dec %ecx; jnz 1b",
        "nop", "");
/* 200 calls deep and back. */
SNIPPET(deep_returns,
        "mov $200, %ecx; xor %eax, %eax; call 1f; jmp 3f;"
        "1: dec %ecx; jz 2f; call 1b;"
        "2: inc %eax; ret;"
        "3:",
        "nop", "");

static void odd(bool user)
{
    for (unsigned i = 0; i < 3; i++) {
        user ? run_user(odd_returns, 0, 0) : run_kernel(odd_returns, 0, 0);
        check(last.vector, DONE, "odd returns end, user %d", user);
        check(last.rax, 300, "odd returns, user %d", user);
        user ? run_user(deep_returns, 0, 0) : run_kernel(deep_returns, 0, 0);
        check(last.vector, DONE, "deep returns end, user %d", user);
        check(last.rax, 200, "deep returns, user %d", user);
    }
}

/* A user's return to where the kernel would return to. */
SNIPPET(return_to, "push %rdi", "ret", "");
SNIPPET(call_nothing, "call 1f; 2: jmp 3f; 1: lea 2b(%rip), %rax; ret; 3:", "nop", "");

static void kernel_address(void)
{
    begin_group();
    run_kernel(call_nothing, 0, 0);
    word back = last.rax;
    for (unsigned i = 0; i < 10; i++) {
        run_kernel(call_nothing, 0, 0);
        run_user(return_to, back, 0);
        check_event(PF, E_P | E_U | E_I, back, "a return to the kernel's code");
    }
    end_group("a user's return to the kernel's code");
}

int main(void)
{
    write_cr4(read_cr4() | CR4_PGE);
    here = map_at(HERE, (word)frame(0), 1, GLOBAL);
    there = map_at(THERE, (word)frame(1), 1, GLOBAL);
    other_targets();
    other_callers();
    odd(false);
    odd(true);
    kernel_address();
    return 0;
}
