/* Segmentation in 32-bit protected mode: bases, limits, types, stacks of 16 and 32 bits, call gates
 * with parameters, gates of 16 bits, far returns between rings (SDM 3A 3.4, 5.3 to 5.8). */
#include "harness.h"

SNIPPET(load, "mov %esi, %fs", "mov %fs:(%edi), %eax", "");
SNIPPET(load_byte, "mov %esi, %fs", "movb %fs:(%edi), %al", "");
SNIPPET(store, "mov %esi, %fs", "mov %eax, %fs:(%edi)", "");
SNIPPET(load_stack, "mov %esp, %ebx; mov %esi, %ss; mov %edi, %ebp", "mov (%ebp), %eax",
        "mov $0x23, %ecx; mov %ecx, %ss; mov %ebx, %esp");
SNIPPET(push_one, "mov %esp, %ebx; mov %esi, %ss; mov %edi, %esp", "push $0x55",
        "mov %esp, %edx; mov $0x23, %ecx; mov %ecx, %ss; mov %ebx, %esp");
SNIPPET(far_jump, "nop", "ljmp *(%edi)", "");
SNIPPET(far_call, "push $0x33; push $0x22; push $0x11", "lcall *(%edi)",
        "mov %esp, %ebx; add $12, %esp");
SNIPPET(gate_entry, "mov 16(%esp), %eax; mov 8(%esp), %ecx; mov %cs, %edx", "nop", "");
SNIPPET(gate_return, "mov 16(%esp), %eax", "lretl $12", "");
SNIPPET(return_outer, "push $0x23; push %edx; push %esi; push %edi", "lretl", "");
SNIPPET(load_ds, "nop", "mov %edi, %ds", "mov %ds, %eax; mov $0x10, %ecx; mov %ecx, %ds");
SNIPPET(software, "nop", "int $0x40", "");
asm(".text; .code16; half: mov $0x1234, %ax; mov %sp, %cx; .byte 0xcd, 0x81; .code32");
extern char half[];
SNIPPET(nothing, "nop", "nop", "");
SNIPPET(enter_frame, "mov %esp, %ebx", "enter $16, $0", "mov %esp, %eax; leave; mov %esp, %ecx");
SNIPPET(enter_nested, "mov %esp, %ebx", "enter $8, $2", "mov %esp, %eax; mov %ebx, %esp");

#define S FREE_SELECTOR
static u32 data[16] = {0x11111111, 0x22222222, 0x33333333, 0x44444444};
static u8 small_stack[0x1000] __attribute__((aligned(4096)));

static void set(u32 base, u32 limit, unsigned attributes)
{
    gdt[S / 8] = descriptor(base, limit, attributes);
}

static void good(const void *code, u32 offset, const char *name)
{
    run_kernel(code, offset, S);
    check_done("%s", name);
}

static void bad(const void *code, const void *at, u32 offset, unsigned vector, const char *name)
{
    run_kernel(code, offset, S);
    check_event(vector, 0, (word)at, "%s", name);
}

static void limits(void)
{
    set((word)data, 15, 0x4093);
    good(load, 0, "base: load at 0");
    check(last.rax, 0x11111111, "base: value");
    good(load, 12, "limit: the last word is within");
    good(load_byte, 15, "limit: the last byte is within");
    bad(load, load_at, 13, GP, "limit: a word across it");
    bad(load_byte, load_byte_at, 16, GP, "limit: a byte beyond it");
    bad(load, load_at, 0xffffffff, GP, "limit: a word that wraps");
    bad(load, load_at, 0xfffffffc, GP, "limit: far beyond");
    set((word)data, 0, 0xc093);
    good(load, 0xffc, "limit: of pages, the last word");
    bad(load, load_at, 0xffd, GP, "limit: of pages, across it");
    set((word)data - 0x1000, 0xfff, 0x4097);
    good(load, 0x1000, "limit: expand-down, just above");
    bad(load, load_at, 0xfff, GP, "limit: expand-down, across it");
    bad(load, load_at, 0, GP, "limit: expand-down, below");
    set((word)data - 0x1000, 0xfff, 0x0097);
    good(load, 0x1000, "limit: expand-down of 16 bits, just above");
    bad(load, load_at, 0xffff, GP, "limit: expand-down of 16 bits, across ffff");
    set((word)data - 0xfffffff0, 0xfffff, 0xc093);
    good(load, 0xfffffff4, "base: base and offset wrap at 4 GiB");
    check(last.rax, 0x22222222, "base: value after the wrap");
    set((word)data, 15, 0x4091);
    bad(store, store_at, 0, GP, "type: store to read-only data");
    set((word)data, 0xfffff, 0xc099);
    run_kernel(load, 0, S);
    check(last.vector, GP, "load of execute-only code into FS");
    set((word)data, 0xfffff, 0xc09b);
    good(load, 0, "type: load from readable code");
    bad(store, store_at, 0, GP, "type: store to code");
    run_kernel(load, 0, 0);
    check_event(GP, 0, (word)load_at, "type: load through null");
}

/* In ring 3: the handler has a stack of its own. */
static void stacks(void)
{
    set((word)small_stack, 0x7ff, 0x40f3);
    run_user(load_stack, 0x7fc, S | 3);
    check_done("limit: stack, the last word");
    run_user(load_stack, 0x7fd, S | 3);
    check_event(SS, 0, (word)load_stack_at, "limit: stack, across it");
    run_user(push_one, 0x800, S | 3);
    check_done("push at the limit");
    check(*(u32 *)(small_stack + 0x7fc), 0x55, "push is relative to the base of SS");
    run_user(push_one, 0x804, S | 3);
    check_event(SS, 0, (word)push_one_at, "limit: push beyond it");
    check(last.rsp, 0x804, "a push that faults leaves ESP");
    set((word)small_stack, 0xffff, 0x00f3);
    memset(small_stack, 0, sizeof(small_stack));
    run_user(push_one, 0x12340800, S | 3);
    check_done("a 16-bit stack uses SP");
    check(*(u32 *)(small_stack + 0x7fc), 0x55, "a 16-bit stack: value");
    check(last.rdx, 0x123407fc, "a 16-bit stack leaves the upper half of ESP");
    run_kernel(enter_frame, 0, 0);
    check(last.rbx - last.rax, 20, "enter makes room");
    check(last.rcx, last.rbx, "leave undoes enter");
    run_kernel(enter_nested, 0, 0);
    check(last.rbx - last.rax, 4 + 8 + 8, "enter of level 2 makes room for the display");
}

struct far {
    u32 offset;
    u16 selector;
} __attribute__((packed));

static void code_segments(void)
{
    static struct far pointer;
    set((word)half, 0xff, 0x009b);
    pointer = (struct far){0, S};
    run_kernel(far_jump, (word)&pointer, 0);
    check(last.vector, DONE, "jmp far to 16-bit code with a base");
    check(last.rax & 0xffff, 0x1234, "16-bit code has run");
    check(last.rip, 8 - 1, "16-bit code: IP is relative to the base");
    set(0, 0xfff, 0x409b);
    pointer = (struct far){(word)nothing, S};
    run_kernel(far_jump, (word)&pointer, 0);
    check_event(GP, 0, (word)far_jump_at, "limit: jmp far beyond it");
    set(0, 0xfffff, 0xc01b);
    run_kernel(far_jump, (word)&pointer, 0);
    check_event(NP, S, (word)far_jump_at, "jmp far to code that is not present");
    set(0, 0xfffff, 0xc09f);
    run_user(far_jump, (word)&pointer, 0);
    check_done("jmp far to conforming code from ring 3");
    check(last.cs, S | 3, "conforming code runs at CPL 3");
    set(0, 0xfffff, 0xc09b);
    run_user(far_jump, (word)&pointer, 0);
    check_event(GP, S, (word)far_jump_at, "jmp far to ring 0 from ring 3");
}

static void call_gates(void)
{
    static struct far pointer = {0, S | 3};
    gdt[S / 8] = ((word)gate_entry & 0xffff) | KERNEL_CS << 16 |
                 (u64)(GATE_CALL | GATE_DPL3 | 3) << 32 | (u64)((word)gate_entry >> 16) << 48;
    run_user(far_call, (word)&pointer, 0);
    check(last.vector, DONE, "call gate from ring 3");
    check(last.rdx, KERNEL_CS, "call gate: CS");
    check(last.rcx | last.rax << 8, 0x3311, "call gate: three parameters are copied");
    u32 *stack = (u32 *)(tss.esp0 - 28);
    check(stack[1], USER_CS32, "call gate: CS pushed");
    check(stack[6], USER_DS, "call gate: SS pushed");
    gdt[S / 8] = ((word)gate_return & 0xffff) | KERNEL_CS << 16 |
                 (u64)(GATE_CALL | GATE_DPL3 | 3) << 32 | (u64)((word)gate_return >> 16) << 48;
    run_user(far_call, (word)&pointer, 0);
    check_done("call gate and lret");
    check(last.cs, USER_CS32, "lret: CS");
    check(last.rax, 0x33, "call gate: the last parameter");
    check(last.rbx, user_state(0).rsp, "lret 12 releases the parameters of both stacks");
    struct event start = kernel_state(return_outer);
    start.rdi = (word)nothing;
    start.rsi = USER_CS32;
    start.rdx = user_state(0).rsp;
    run(&start);
    check_done("lret to ring 3");
    check(last.cs, USER_CS32, "lret to ring 3: CS");
    check(last.rsp, user_state(0).rsp, "lret to ring 3: ESP");
}

static void loads(void)
{
    run_kernel(load_ds, 0, 0);
    check_done("null DS");
    run_kernel(load_ds, KERNEL_DS | 3, 0);
    check_event(GP, KERNEL_DS, (word)load_ds_at, "DS with an RPL above its DPL");
    run_kernel(load_ds, 0xfff8, 0);
    check_event(GP, 0xfff8, (word)load_ds_at, "DS beyond the GDT");
    set(0, 0xfffff, 0xc013);
    run_kernel(load_ds, S, 0);
    check_event(NP, S, (word)load_ds_at, "DS not present");
    set(0, 0xfffff, 0xc092);
    run_kernel(load_ds, S, 0);
    check(gdt[S / 8] >> 40 & 1, 1, "a load sets accessed");
}

/* A trap gate of 16 bits pushes words. */
static u16 frame16[3];
asm(".text; gate_16: popw frame16; popw frame16 + 2; popw frame16 + 4; int $0x81");
extern char gate_16[];

static void half_gates(void)
{
    set_gate(0x40, (word)gate_16 & 0xffff, KERNEL_CS, 0x8600);
    /* A 16-bit gate holds no more than 16 bits of offset: a segment with a base reaches the code.
     */
    set((word)gate_16, 0xfffff, 0xc09b);
    set_gate(0x40, 0, S, 0x8600);
    run_kernel(software, 0, 0);
    check(last.vector, DONE, "interrupt gate of 16 bits");
    check(frame16[0], (word)software_after & 0xffff, "interrupt gate of 16 bits: IP");
    check(frame16[1], KERNEL_CS, "interrupt gate of 16 bits: CS");
    check(frame16[2] & 2, 2, "interrupt gate of 16 bits: FLAGS");
    check(last.rsp, kernel_state(0).rsp, "interrupt gate of 16 bits: three words are gone again");
}

int main(void)
{
    limits();
    stacks();
    code_segments();
    call_gates();
    loads();
    half_gates();
    return 0;
}
