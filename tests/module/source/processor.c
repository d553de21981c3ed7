/* Attacks on the processor: registers, control transfers, code that changes itself, ports. */
#include <linux/kernel.h>
#include <linux/printk.h>

#include "hostile.h"

SNIPPET(through_gs); SNIPPET(through_gs_index); SNIPPET(through_gs_back); SNIPPET(through_fs);
SNIPPET(through_fs_back); SNIPPET(swap); SNIPPET(read_bases); SNIPPET(write_msr); SNIPPET(read_msr);
SNIPPET(set_cr0); SNIPPET(set_cr4); SNIPPET(set_cr8); SNIPPET(set_debug); SNIPPET(set_flags);
SNIPPET(set_states); SNIPPET(set_selectors); SNIPPET(set_gs); SNIPPET(set_stack_selector);
SNIPPET(set_task); SNIPPET(set_local); SNIPPET(set_idt); SNIPPET(set_gdt); SNIPPET(return_system);
SNIPPET(exit_system); SNIPPET(enter_system); SNIPPET(enter_other); SNIPPET(flush_other);
SNIPPET(any_interrupt); SNIPPET(stand_still); SNIPPET(any_return); SNIPPET(far_return);
SNIPPET(far_jump); SNIPPET(in_1); SNIPPET(in_2); SNIPPET(in_4); SNIPPET(out_1); SNIPPET(out_2);
SNIPPET(out_4); SNIPPET(in_many); SNIPPET(out_many); SNIPPET(in_there); SNIPPET(rewrite_next);
SNIPPET(rewrite_alias); SNIPPET(rewrite_jump); SNIPPET(rewrite_all); SNIPPET(jump);
SNIPPET(call_it); SNIPPET(store); SNIPPET(load);

/* The bases of FS and GS by register and by instruction, and what is reached through them. */
static void bases(void)
{
    static const struct snippet ways[] = {S(through_gs), S(through_gs_index), S(through_gs_back),
                                          S(through_fs), S(through_fs_back),  S(swap),
                                          S(read_bases)};
    static const u32 msrs[] = {0xc0000100, 0xc0000101, 0xc0000102};
    u64 base = any() & 1 ? anywhere() : odd_number();
    if (any() & 1)
        fenced((struct snippet)S(write_msr), ANY(msrs), base);
    else if (lethal || !(is_mapped(base) || is_process(base)))
        fenced(ANY(ways), base, any() & 1 ? anywhere() : chance(4096));
}

/* Registers of which a kernel keeps its life, if the attack is not lethal. */
static bool is_vital(u32 msr)
{
    return msr == 0xc0000080 || msr == 0x1b || msr - 0x800 < 0x100 || msr == 0x6e0 || msr == 0x10 ||
           msr == 0x3b || msr - 0x11 < 2 || msr - 0x4b564d00 < 2;
}

static u32 any_msr(void)
{
    static const u32 known[] = {ODD_MSRS,   0x808,      0x80b,      0x80f,      0x830,      0x838,
                                0x4b564d00, 0x4b564d01, 0x4b564d02, 0x4b564d03, 0x4b564d04};
    u32 msr = chance(4) ? ANY(known) : chance(0x2000) + (any() & 1 ? 0xc0000000 : 0);
    return lethal || !is_vital(msr) ? msr : 0xc0000100 + chance(3);
}

static void registers(void)
{
    static const struct snippet ways[] = {
        S(set_cr8), S(set_debug), S(set_flags), S(set_states), S(set_selectors), S(set_gs),
        S(set_stack_selector), S(set_task), S(set_local), S(flush_other), S(any_interrupt),
        S(enter_system), S(enter_other), S(return_system), S(exit_system)};
    static const struct snippet deadly[] = {S(set_cr0), S(set_cr4), S(set_idt), S(set_gdt)};
    switch (chance(4)) {
    case 0:
        fenced((struct snippet)S(read_msr), any_msr(), 0);
        break;
    case 1:
        fenced((struct snippet)S(write_msr), any_msr(), odd_number());
        break;
    case 2:
        if (lethal && !chance(16)) {
            fenced(ANY(deadly), odd_number(), odd_number());
            break;
        }
        fallthrough;
    default:
        fenced(ANY(ways), odd_number(), odd_number());
    }
}

/* Frames for IRET and far pointers with chosen parts: selectors of the kernel, of users, of nobody;
 * code and stacks of the kernel, of users, in holes. */
static void frames(void)
{
    static const u16 selectors[] = {0x10, 0x18, 0x23, 0x2b, 0x33, 0x40, 0x43, 0, 3, 8, 0x7b};
    static const struct snippet ways[] = {S(any_return), S(any_return), S(far_return), S(far_jump)};
    u64 *frame = (u64 *)(arena + ARENA_BYTES - 4096 + (chance(256) << 3));
    u64 flags = any() & 0x3f7fd5;
    frame[0] = chance(4) ? anywhere() : (u64)arena + ARENA_BYTES / 2;
    frame[1] = chance(8) ? ANY(selectors) : any();
    /* With interrupts, so that what it returns to comes to an end; NT takes IRET elsewhere. */
    frame[2] = chance(8) ? (flags | 0x200) & ~0x4000ull : any();
    frame[3] = chance(2) ? anywhere() : (u64)arena + ARENA_BYTES - 8192;
    frame[4] = chance(8) ? ANY(selectors) : any();
    if (is_mapped(frame[0]) && frame[0] - (u64)arena >= ARENA_BYTES && !lethal)
        return;
    fenced(ANY(ways), (u64)frame, 0);
}

/* To any place in the kernel's text, into the middle of instructions too. */
static void jumps(void)
{
    u64 text = (u64)_printk & ~0x3fffffull;
    fenced(any() & 1 ? (struct snippet)S(jump) : (struct snippet)S(call_it),
           text - (8 << 20) + chance(24 << 20), any());
}

/* Code that changes itself, in its own page and through others, and loops until it is interrupted. */
static void rewriting(void)
{
    static const struct snippet ways[] = {S(rewrite_next), S(rewrite_alias), S(rewrite_jump),
                                          S(rewrite_all), S(stand_still)};
    struct snippet way = ANY(ways);
    /* Half of a page of bytes that mean anything, now and then; interrupts end what does not. */
    if (!chance(16)) {
        u64 *code = (u64 *)(arena + ARENA_BYTES / 2);
        for (unsigned n = 0; n < 256; n++)
            code[n] = any();
        if (lethal)
            fenced((struct snippet)S(jump), (u64)code + chance(1024), 0);
    }
    fenced(way, odd_number(), 0);
}

/* Ports that end the machine, as they should. */
static bool is_end(u16 port)
{
    return port == 0x92 || port == 0x64 || port == 0x60 || (port >= 0xcf6 && port <= 0xcf9) ||
           (port >= 0x5fc && port <= 0x610) || (port >= 0xf0 && port <= 0xf4);
}

/* Each port in turn, in every width; those that the kernel needs for itself are lethal. */
static void ports(void)
{
    static const struct snippet ways[] = {S(in_1),  S(in_2),  S(in_4),    S(out_1),   S(out_2),
                                          S(out_4), S(in_many), S(out_many), S(in_there)};
    static u32 turn;
    u16 port = chance(4) ? turn++ : chance(0x1000);
    if (!is_end(port) || lethal)
        fenced(ANY(ways), port, any() & 1 ? any() : (u64)arena + ARENA_BYTES / 2);
}

const struct attack PROCESSOR_ATTACKS[] = {
    {"bases", bases}, {"registers", registers}, {"frames", frames},
    {"jumps", jumps}, {"rewriting", rewriting}, {"ports", ports}, {}};
