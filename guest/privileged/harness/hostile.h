/* What programs share that mean harm: random numbers from a seed on the command line, and code of
 * which nothing is expected but that it ends. Whatever they do, they may end their own machine; they
 * come to their end or not. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "apic.h"
#include "paging.h"

static inline u64 any(void);
static inline u64 chance(u64 below);
#include "odd.h"

enum { GIVE_UP = 0x50 };

static u64 random_state;

static inline u64 random(void) { return next_random(&random_state) >> 3; }
static inline u64 any(void) { return random() << 3 ^ random(); }
static inline u64 chance(u64 below) { return random() % below; }

/* NAME=NUMBER on the Multiboot command line. */
static inline u64 argument(const char *name)
{
    const struct {
        u32 flags, memory_lower, memory_upper, boot_device, command_line;
    } *info = (void *)boot_info;
    u64 number = 0;
    for (const char *at = (char *)(word)info->command_line; *at; at++) {
        unsigned length = 0;
        while (name[length] && at[length] == name[length])
            length++;
        if (name[length] || at[length] != '=')
            continue;
        for (at += length + 1; *at >= '0' && *at <= '9'; at++)
            number = number * 10 + *at - '0';
        return number;
    }
    return 0;
}

/* Breakpoints and single steps that have been set somewhere. */
static inline bool defuse(struct event *event)
{
    write_dr7(0);
    event->rflags &= ~F_TF;
    return true;
}

/* Read the command line; events have a stack that is there wherever RSP points; whatever runs for long is interrupted. */
static inline u64 begin(void)
{
    random_state = argument("seed") * 0x9e3779b97f4a7c15 | 1;
    for (unsigned n = 0; n < 8; n++)
        random();
    for (unsigned v = 0; v < 256; v++)
        set_gate(v, (word)vector_stubs + 16 * v, KERNEL_CS, GATE_INTERRUPT | GATE_DPL3, 1);
    apic_enable();
    hooks[GIVE_UP] = acknowledge_and_stop;
    hooks[DB] = defuse;
    print("ok begin\n");
    return argument("rounds");
}

/* Run a snippet in ring 0 until it ends in any way. */
static inline void attempt(const void *code, word rdi, word rsi)
{
    struct event start = kernel_state(code);
    start.rdi = rdi;
    start.rsi = rsi;
    start.rcx = 1 + random() % 64;
    start.rflags |= F_IF;
    apic_timer(GIVE_UP, 0, 400000);
    run(&start);
    apic_timer_off();
}

/* Whether the process around this machine may have something there (QUIRKS.md): what a kernel writes there may do
 * anything to the process. */
static inline bool is_process(word address)
{
    return address + 4096 - 0xfffffe8000000000 < 0x17f80000000 + 4096;
}

/* Whether the program itself is there, seen at its place or at one of the aliases of boot64.S. */
static inline bool is_own(word address)
{
    word low = address - 65536;
    return low < 0xc0000000 || low - DIRECT_ALIAS < 1ul << 30 || address >= HIGH_ALIAS - 65536 ||
           address - DIRECT_ALIAS < 1ul << 30 || address < 65536;
}

#endif
