/* I/O privilege: IOPL, the flags it guards, and the I/O permission bitmap (SDM 1 19.5; SDM 2B,
 * POPF; SDM 3A 7.7). */
#include "harness.h"

SNIPPET(set_flags, "push %rdi", "popfq", "pushfq; pop %rax");
SNIPPET(set_flags_16, "push %rdi", "popfw", "pushfq; pop %rax");
SNIPPET(clear_if, "nop", "cli", "pushfq; pop %rax");
SNIPPET(set_if, "nop", "sti", "pushfq; pop %rax; cli");
SNIPPET(out_byte, "mov %edi, %edx; mov %esi, %eax", "outb %al, %dx", "");
SNIPPET(in_byte, "mov %edi, %edx", "inb %dx, %al", "");
SNIPPET(in_word, "mov %edi, %edx", "inw %dx, %ax", "");
SNIPPET(in_long, "mov %edi, %edx", "inl %dx, %eax", "");
SNIPPET(in_string, "mov %edi, %edx; lea -256(%rsp), %rdi; cld; mov $2, %ecx", "rep insb", "");
SNIPPET(iret_flags,
        "mov %rsp, %rax; mov %ss, %ecx; push %rcx; push %rax; push %rdi; mov %cs, %ecx; push %rcx;"
        "lea 1f(%rip), %rax; push %rax",
        "iretq", "1: pushfq; pop %rax");

static struct event with_iopl(const void *code, unsigned iopl, word rdi)
{
    struct event start = user_state(code);
    start.rflags = 2 | (word)iopl << 12;
    start.rdi = rdi;
    return start;
}

#define ALL_FLAGS (0xfd5ul | F_NT | F_AC | 1ul << 21 | F_IOPL)

static void flags(void)
{
    for (unsigned iopl = 0; iopl < 4; iopl++) {
        word io = (word)iopl << 12, may = iopl == 3 ? F_IF : 0;
        struct event start = with_iopl(set_flags, iopl, ALL_FLAGS & ~F_TF);
        run(&start);
        check(last.rax, 2 | (ALL_FLAGS & ~(F_TF | F_IF | F_IOPL)) | io | may, "popf, IOPL %d",
              iopl);
        start = with_iopl(set_flags, iopl, 2);
        start.rflags |= F_IF;
        run(&start);
        check(last.rax, 2 | io | (F_IF ^ may), "popf of nothing, IOPL %d", iopl);
        start = with_iopl(set_flags_16, iopl, 0x7ed5);
        run(&start);
        check(last.rax, 2 | 0x4cd5 | io | may, "popfw, IOPL %d", iopl);
        start = with_iopl(iret_flags, iopl, ALL_FLAGS & ~F_TF & ~F_NT);
        run(&start);
        check(last.rax, 2 | (ALL_FLAGS & ~(F_TF | F_IF | F_IOPL | F_NT)) | io | may,
              "iret, IOPL %d", iopl);
        start = with_iopl(clear_if, iopl, 0);
        start.rflags |= F_IF;
        run(&start);
        if (iopl == 3)
            check(last.rax & F_IF, 0, "cli, IOPL 3");
        else
            check_event(GP, 0, USER(clear_if_at), "cli, IOPL %d", iopl);
        start = with_iopl(set_if, iopl, 0);
        run(&start);
        if (iopl == 3)
            check(last.rax & F_IF, F_IF, "sti, IOPL 3");
        else
            check_event(GP, 0, USER(set_if_at), "sti, IOPL %d", iopl);
        start = with_iopl(out_byte, iopl, 0x80);
        run(&start);
        if (iopl == 3)
            check_done("out, IOPL 3");
        else
            check_event(GP, 0, USER(out_byte_at), "out, IOPL %d", iopl);
    }
    run_kernel(set_flags, ALL_FLAGS & ~F_TF & ~F_IF & ~F_NT, 0);
    check(last.rax, 2 | (ALL_FLAGS & ~F_TF & ~F_IF & ~F_NT), "popf in ring 0 sets IOPL");
}

static void reload(u32 limit)
{
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, limit, 0x89);
    asm volatile("ltr %w0" ::"r"(TSS_SELECTOR));
}

static void allow(unsigned port, bool yes)
{
    if (yes)
        tss.io_bits[port / 8] &= ~(1 << port % 8);
    else
        tss.io_bits[port / 8] |= 1 << port % 8;
}

static void port_case(const void *code, const void *at, unsigned port, bool allowed,
                      const char *name)
{
    run_user(code, port, 0);
    if (allowed)
        check_done("%s", name);
    else
        check_event(GP, 0, USER(at), "%s", name);
}

#define PORT(code, port, allowed, name) port_case(code, code##_at, port, allowed, name)

static void bitmap(void)
{
    memset(tss.io_bits, 0xff, sizeof(tss.io_bits));
    tss.io_map = offsetof(struct tss64, io_bits);
    reload(sizeof(tss) - 1);
    PORT(in_byte, 0x80, false, "no port allowed");
    allow(0x80, true);
    PORT(in_byte, 0x80, true, "one port allowed");
    PORT(out_byte, 0x80, true, "one port allowed, out");
    PORT(in_byte, 0x81, false, "its neighbour is not");
    PORT(in_word, 0x80, false, "two bytes, the second not allowed");
    allow(0x81, true);
    PORT(in_word, 0x80, true, "two bytes allowed");
    PORT(in_long, 0x80, false, "four bytes, two not allowed");
    allow(0x82, true), allow(0x83, true);
    PORT(in_long, 0x80, true, "four bytes allowed");
    PORT(in_string, 0x80, true, "rep insb allowed");
    PORT(in_string, 0x84, false, "rep insb not allowed");
    allow(0x87, true), allow(0x88, true);
    PORT(in_word, 0x87, true, "two bytes across bytes of the bitmap");
    allow(0x88, false);
    PORT(in_word, 0x87, false, "two bytes across, the second not allowed");
    allow(0xffff, true);
    PORT(in_byte, 0xffff, true, "the last port");
    allow(0, true);
    PORT(in_byte, 0, true, "port 0");
    allow(0x80, false);
    PORT(in_byte, 0x80, false, "a bit that is set again");
    allow(0x80, true);
    reload(0x68 + 0x80 / 8);
    PORT(in_byte, 0x80, false, "the second byte that is read lies beyond the limit");
    reload(0x68 + 0x80 / 8 + 1);
    PORT(in_byte, 0x80, true, "both lie within");
    tss.io_map = 0xffff;
    PORT(in_byte, 0x80, false, "a bitmap beyond the limit");
    tss.io_map = offsetof(struct tss64, io_bits);
    struct event start = compat_state(in_byte);
    start.rdi = 0x80;
    run(&start);
    check(last.vector, DONE, "allowed in compatibility mode too");
}

int main(void)
{
    flags();
    bitmap();
    return 0;
}
