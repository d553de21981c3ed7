/* The fence: runs code that may end in any way, and goes on afterwards.
 *
 * While it runs, the processor has another interrupt table, each gate of which leads back here, on a
 * stack of its own (the seventh of the TSS, which Linux does not use). What the code may have changed of
 * the processor is put back. An interrupt that comes meanwhile ends the code too, so that no loop is for
 * ever; it is then raised again for Linux. */
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <asm/desc_defs.h>
#include <asm/fpu/api.h>
#include <asm/processor.h>

#include "hostile.h"

enum { STACK_INDEX = 7, STACK_BYTES = 16384 };
enum { NO_EXECUTE_BIT = 63 };

extern u64 fence_rsp, fence_flags, fence_cr3, fence_gs_base, fence_kernel_gs_base, fence_fs_base;
extern char fence_vectors[], fence_interrupts[];
u64 fence_enter(void *code, u64 rdi, u64 rsi, u64 rcx, u64 flags);

char *arena;
static gate_desc gates[256] __aligned(16);
static char stack[STACK_BYTES] __aligned(4096);

/* Model-specific registers that Linux needs as they were. */
static const u32 KEPT[] = {0x1b,       0x174,      0x175,      0x176,      0x1d9,      0x277,
                           0xc0000080, 0xc0000081, 0xc0000082, 0xc0000083, 0xc0000084, 0xc0000103,
                           0x4b564d00, 0x4b564d01, 0x4b564d03, 0x4b564d04, 0x4b564d05, 0x3b};

static bool get_msr(u32 msr, u64 *value)
{
    u32 low = 0, high = 0, failed = 1;
    asm volatile("1: rdmsr; xor %2, %2; 2:" _ASM_EXTABLE(1b, 2b)
                 : "=a"(low), "=d"(high), "+r"(failed) : "c"(msr));
    *value = (u64)high << 32 | low;
    return !failed;
}

static void set_msr(u32 msr, u64 value)
{
    asm volatile("1: wrmsr; 2:" _ASM_EXTABLE(1b, 2b)
                 :: "c"(msr), "a"((u32)value), "d"((u32)(value >> 32)) : "memory");
}

/* The arena's pages become writable and executable. */
static void open_arena(void)
{
    for (u64 at = 0; at < ARENA_BYTES; at += 4096) {
        unsigned level;
        u64 *entry = entry_of((u64)arena + at, &level);
        *entry = (*entry | 2) & ~(1ull << NO_EXECUTE_BIT);
        asm volatile("invlpg (%0)" :: "r"(arena + at) : "memory");
    }
}

int fence_make(void)
{
    arena = vmalloc(ARENA_BYTES);
    if (!arena)
        return -ENOMEM;
    memset(arena, 0xcc, ARENA_BYTES);
    open_arena();
    for (unsigned vector = 0; vector < 256; vector++) {
        u64 at = (u64)fence_vectors + 16 * vector;
        gates[vector] = (gate_desc){.offset_low = at, .segment = __KERNEL_CS,
            .bits = {.ist = STACK_INDEX, .type = GATE_INTERRUPT, .dpl = 3, .p = 1},
            .offset_middle = at >> 16, .offset_high = at >> 32};
    }
    return 0;
}

static void put_back(const u64 *values, u64 known, u64 cr0, u64 cr4)
{
    asm volatile("mov %0, %%dr7" :: "r"(0x400ul));
    asm volatile("mov %0, %%cr0" :: "r"(cr0));
    asm volatile("mov %0, %%cr4" :: "r"(cr4));
    asm volatile("mov %0, %%cr8" :: "r"(0ul));
    for (unsigned n = 0; n < ARRAY_SIZE(KEPT); n++) {
        u64 now;
        if (known >> n & 1 && get_msr(KEPT[n], &now) && now != values[n])
            set_msr(KEPT[n], values[n]);
    }
}

static u64 enter(void *code, u64 rdi, u64 rsi)
{
    struct desc_ptr own = {.size = sizeof(gates) - 1, .address = (u64)gates}, linux_idt, gdt;
    u64 cr0, cr4, values[ARRAY_SIZE(KEPT)], known = 0, vector, *stack_of_tss, previous;
    unsigned long flags;

    kernel_fpu_begin();
    local_irq_save(flags);
    fence_flags = flags & ~0x200ul;
    stack_of_tss = &this_cpu_ptr(&cpu_tss_rw)->x86_tss.ist[STACK_INDEX - 1];
    previous = *stack_of_tss;
    *stack_of_tss = (u64)stack + STACK_BYTES;
    asm volatile("mov %%cr0, %0" : "=r"(cr0));
    asm volatile("mov %%cr4, %0" : "=r"(cr4));
    fence_cr3 = get_cr3();
    get_msr(0xc0000100, &fence_fs_base);
    get_msr(0xc0000101, &fence_gs_base);
    get_msr(0xc0000102, &fence_kernel_gs_base);
    for (unsigned n = 0; n < ARRAY_SIZE(KEPT); n++)
        known |= (u64)get_msr(KEPT[n], &values[n]) << n;
    asm volatile("sidt %0" : "=m"(linux_idt));
    asm volatile("sgdt %0" : "=m"(gdt));
    asm volatile("lidt %0" :: "m"(own));
    vector = fence_enter(code, rdi, rsi, 1 + chance(64), 0x202);
    asm volatile("lgdt %0" :: "m"(gdt));
    asm volatile("lidt %0" :: "m"(linux_idt));
    put_back(values, known, cr0, cr4);
    *stack_of_tss = previous;
    if (vector >= 32 && vector < 256 && vector != 0x81)
        asm volatile("call *%0" :: "r"(fence_interrupts + 4 * vector) : "memory", "cc");
    local_irq_restore(flags);
    kernel_fpu_end();
    return vector;
}

/* An instruction that has once faulted may be executed in another way than one that has not: half of
 * the time it is a new one. */
u64 fenced(struct snippet snippet, u64 rdi, u64 rsi)
{
    static u64 used;
    u64 length = snippet.end - snippet.start, room = ARENA_BYTES / 2;
    u64 at = any() & 1 ? used : chance(room - length);
    if (used + length > room)
        at = used = 0;
    if (at == used)
        used += length;
    memcpy(arena + at, snippet.start, length);
    return enter(arena + at, rdi, rsi);
}
