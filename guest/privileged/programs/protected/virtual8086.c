/* Virtual-8086 mode: real-mode code at CPL 3 under a 32-bit kernel (SDM 3A 20.2, 20.3). */
#include "harness.h"

#define CODE16(name, before, at, after) \
    SNIPPET(name, ".code16\n" before, at, after "\nint $0x81\n.code32\n")

CODE16(state, "mov %cs, %ax; mov %ss, %bx; mov %ds, %cx; mov %sp, %dx", "nop", "");
CODE16(through_segment, "mov $0x700, %ax; mov %ax, %ds", "mov (0x10), %ax", "mov %ds, %bx");
CODE16(wide, "mov $0x12345678, %eax; push %eax; pop %ebx", "nop", "");
CODE16(word_wrap, "mov $0xffff, %si", "mov (%si), %ax", "");
CODE16(stack_wrap, "mov $0xffff, %bp", "mov (%bp), %ax", "");
CODE16(divide, "xor %dx, %dx; mov $1, %ax; xor %cx, %cx", "div %cx", "");
CODE16(breakpoint, "nop", "int3", "");
CODE16(invalid, "nop", "ud2", "");
CODE16(software, "nop", "int $0x80", "");
CODE16(halt, "nop", "hlt", "");
CODE16(clear_if, "nop", "cli", "pushf; pop %ax");
CODE16(push_flags, "nop", "pushf", "pop %ax");
CODE16(pop_flags, "push $0x7ed7", "popf", "pushf; pop %ax");
CODE16(interrupt_return, "pushf; push %cs; call 1f; jmp 2f; 1:", "iret", "2: nop");
CODE16(read_cr0_v, "nop", "mov %cr0, %eax", "");
CODE16(load_ldt, "xor %ax, %ax", "lldt %ax", "");
CODE16(raise_rpl, "nop", "arpl %cx, %ax", "");
CODE16(in_port, "nop", "inb $0x80, %al", "");
CODE16(far_jump, "nop", "ljmp $0x7ff, $(1f - far_jump + 0x10)", "nop; 1: mov %cs, %ax");

#define SEGMENT 0x800
static const u32 iopl3 = 3 << 12;

/* Run the copy of a snippet at SEGMENT:0. */
static const struct event *go(const char *code, const char *end, u32 flags)
{
    memcpy((void *)(SEGMENT * 16), code, end - code + 32);
    struct event start = {
        .rip = 0, .cs = SEGMENT, .ss = 0x900, .rsp = 0x800, .rflags = 2 | F_VM | flags};
    return run(&start);
}

#define GO(name, flags) go(name, name##_after, flags)

#define RAISES(name, flags, vector, error)                                                       \
    do {                                                                                         \
        GO(name, flags);                                                                         \
        check_event(vector, error, (word)(name##_at - name), #name ", flags %x", (word)(flags)); \
        check(last.cs, SEGMENT, #name ": CS");                                                   \
    } while (0)

static void states(void)
{
    GO(state, iopl3);
    check(last.vector, DONE, "int from virtual-8086 mode, IOPL 3");
    check(last.rax & 0xffff, SEGMENT, "CS is a paragraph");
    check(last.rbx & 0xffff, 0x900, "SS is a paragraph");
    check(last.rcx & 0xffff, 0, "DS comes from the frame");
    check(last.rdx & 0xffff, 0x800, "SP comes from the frame");
    check(last.rflags & F_VM, F_VM, "VM is saved");
    check(last.ss, 0x900, "SS is saved");
    check(last.rsp, 0x800, "ESP is saved");
    u32 *frame = (u32 *)tss.esp0;
    check(frame[-9], (word)(state_after - state) + 2, "the frame has nine words");
    *(u16 *)0x7010 = 0x4321;
    GO(through_segment, iopl3);
    check(last.rax & 0xffff, 0x4321, "load through DS");
    check(last.rbx & 0xffff, 0x700, "DS reads back");
    check(frame[-3], 0x700, "DS is saved in the frame");
    GO(wide, iopl3);
    check(last.rbx, 0x12345678, "operands of 32 bits");
    GO(far_jump, iopl3);
    check(last.vector, DONE, "jmp far");
    check(last.rax & 0xffff, 0x7ff, "jmp far: CS");
}

static void faults(void)
{
    for (unsigned i = 0; i < 2; i++) {
        u32 flags = i ? iopl3 : 0;
        RAISES(divide, flags, DE, 0);
        RAISES(invalid, flags, UD, 0);
        RAISES(halt, flags, GP, 0);
        RAISES(read_cr0_v, flags, GP, 0);
        RAISES(load_ldt, flags, UD, 0);
        RAISES(raise_rpl, flags, UD, 0);
        RAISES(in_port, flags, GP, 0);
        RAISES(word_wrap, flags, GP, 0);
        RAISES(stack_wrap, flags, SS, 0);
        GO(breakpoint, flags);
        check(last.vector, BP, "int3 does not ask for IOPL, flags %x", (word)flags);
    }
}

static void sensitive(void)
{
    RAISES(software, 0, GP, 0);
    RAISES(clear_if, 0, GP, 0);
    RAISES(push_flags, 0, GP, 0);
    RAISES(pop_flags, 0, GP, 0);
    GO(clear_if, iopl3 | F_IF);
    check(last.rax & F_IF, 0, "cli, IOPL 3");
    GO(push_flags, iopl3);
    check(last.rax & 0xffff, 2 | iopl3, "pushf, IOPL 3");
    GO(pop_flags, iopl3);
    check(last.rax & 0xffff, 0x7ed7, "popf, IOPL 3");
    GO(interrupt_return, iopl3);
    check(last.vector, DONE, "iret, IOPL 3");
    GO(software, iopl3);
    check(last.vector, 0x80, "int 0x80, IOPL 3");
    check(last.rip, (word)(software_after - software), "int 0x80, IOPL 3: IP");
}

int main(void)
{
    states();
    faults();
    sensitive();
    return 0;
}
