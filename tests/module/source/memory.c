/* Attacks on memory: addresses, page-table entries, page tables. */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "hostile.h"

SNIPPET(load); SNIPPET(load_vector); SNIPPET(walk); SNIPPET(store); SNIPPET(store_byte);
SNIPPET(store_vector); SNIPPET(exchange); SNIPPET(add); SNIPPET(exchange_16); SNIPPET(save);
SNIPPET(save_x); SNIPPET(fill); SNIPPET(fill_far); SNIPPET(fill_down); SNIPPET(copy_there);
SNIPPET(copy_here); SNIPPET(stack); SNIPPET(stack_call); SNIPPET(jump); SNIPPET(call_it);
SNIPPET(call_there); SNIPPET(flush); SNIPPET(compare); SNIPPET(sum_index); SNIPPET(sum_down);
SNIPPET(sum_up); SNIPPET(sum_both); SNIPPET(sum_short); SNIPPET(lowest); SNIPPET(highest);
SNIPPET(through_gs); SNIPPET(through_gs_back); SNIPPET(through_fs); SNIPPET(through_fs_back);
SNIPPET(set_cr3);

#define READS S(load), S(load_vector), S(walk), S(copy_here), S(compare), S(flush)
#define WRITES S(store), S(store_byte), S(store_vector), S(exchange), S(add), S(exchange_16), \
    S(save), S(save_x), S(fill), S(fill_far), S(fill_down), S(copy_there), S(stack), S(stack_call)
#define JUMPS S(jump), S(call_it), S(call_there)
#define SUMS S(sum_index), S(sum_down), S(sum_up), S(sum_both), S(sum_short), S(lowest), S(highest), \
    S(through_gs), S(through_gs_back), S(through_fs), S(through_fs_back)

static const struct snippet WAYS[] = {READS, WRITES, JUMPS, SUMS};
static const struct snippet ACCESSES[] = {READS, WRITES};

/* Where the kernel's half begins, and what is added to an address to get the mirror's (ARCHITECTURE.md,
 * How a memory access works). */
#define KERNEL_HALF 0xffff800000000000
#define MIRROR_BASE 0x7fffffe00000

enum { PRESENT = 1, WRITABLE = 2, LARGE = 1 << 7 };
#define FRAME 0xffffffffff000

u64 *entry_of(u64 address, unsigned *level)
{
    u64 *entry = NULL, table = get_cr3() & FRAME;
    for (*level = 4; *level; --*level) {
        entry = (u64 *)__va(table) + (address >> (3 + 9 * *level) & 511);
        if (!(*entry & PRESENT) || *level == 1 || (*level < 4 && *entry & LARGE))
            break;
        table = *entry & FRAME;
    }
    return entry;
}

bool is_mapped(u64 address)
{
    unsigned level;
    bool canonical = (s64)(address << 16) >> 16 == (s64)address;
    return canonical && *entry_of(address, &level) & PRESENT;
}

bool is_process(u64 address)
{
    return address - 0xfffffe8000000000 < 0x17f80000000;
}

/* Global pages too. */
void flush_all(void)
{
    u64 cr4;
    asm volatile("mov %%cr4, %0" : "=r"(cr4));
    asm volatile("mov %0, %%cr4" :: "r"(cr4 ^ 0x80) : "memory");
    asm volatile("mov %0, %%cr4" :: "r"(cr4) : "memory");
}

/* The address at which a mirror would have this address of the host's process. */
static u64 seen_through_mirror(u64 host)
{
    return host - MIRROR_BASE;
}

/* What a process has, and where: code and data, heaps, stacks, libraries, the code cache, the vDSO, the
 * vsyscall page, the ends of the mirror, and the pages around zero. */
static u64 host_address(void)
{
    static const u64 places[] = {0x7e9000000000, 0x7e9000000000, 0x7fffffe00000, 0x400000,
                                 0x200000,       0x10000,        0x555555554000, 0x7fffff000000,
                                 0x7ffff7000000, 0x2a0000000000, 0x7e7fffe00000, 0x7fffffffe000,
                                 0};
    u64 place = ANY(places);
    switch (chance(4)) {
    case 0:
        return place + chance(1 << 16);
    case 1:
        return place + (any() & 0x3fffffff);
    case 2:
        return place - chance(1 << 16);
    default:
        return any() & 0x7fffffffffff;
    }
}

u64 anywhere(void)
{
    switch (chance(8)) {
    case 0: /* Every entry of the kernel's half of the PML4. */
        return KERNEL_HALF + (chance(256) << 39) + chance(8192);
    case 1:
        return KERNEL_HALF | any() >> 17;
    case 2:
    case 3:
    case 4:
        return seen_through_mirror(host_address());
    case 5: /* Up to a page from where the address space ends and begins. */
        return chance(8192) - 4096;
    case 6:
        return odd_number() | KERNEL_HALF;
    default:
        return odd_number();
    }
}

static bool is_read(struct snippet way)
{
    return way.start == load || way.start == load_vector || way.start == walk || way.start == flush;
}

/* Accesses of a few bytes at RDI that cannot have succeeded where nothing is. */
static bool is_exact(struct snippet way)
{
    return way.start == load || way.start == store || way.start == exchange || way.start == add ||
           way.start == store_byte;
}

/* An access, fenced, at an address where nothing is: it must fault. What is mapped, and what the process
 * has, is for attacks that are lethal. (Another processor may map it meanwhile.) */
static void try_hole(struct snippet way, u64 address)
{
    bool was_mapped = is_mapped(address) || is_mapped(address + 7);
    if (!lethal && (was_mapped || (is_process(address) && !is_read(way))))
        return;
    if (fenced(way, address, odd_number()) == RETURNED && is_exact(way) && !was_mapped &&
        !is_process(address) && !is_mapped(address))
        reached("an access", address);
}

static u64 stride_at = KERNEL_HALF;

/* Page by page through the kernel's half, in strides that find each of the larger entries. */
static u64 next_stride(void)
{
    static const u64 strides[] = {4096, 1 << 21, 1 << 30, 1ull << 39};
    stride_at += ANY(strides) + 4096;
    if (stride_at < KERNEL_HALF)
        stride_at += KERNEL_HALF;
    return (stride_at & ~4095ull) + (any() & 1 ? chance(4096) : 0);
}

static void holes(void)
{
    try_hole(ANY(ACCESSES), next_stride());
}

/* As copy_to_kernel_nofault does: Linux takes the fault, and finds the instruction in a table. */
static void probes(void)
{
    u64 address = any() & 1 ? next_stride() : anywhere(), value = any();
    bool was_mapped = is_mapped(address) || is_mapped(address + 7);
    if (was_mapped && !lethal)
        return;
    /* Others would be told of a user's address by an oops. */
    if (address < KERNEL_HALF)
        address |= KERNEL_HALF;
    pagefault_disable();
    if (any() & 1)
        __put_kernel_nofault((u64 *)address, &value, u64, failed);
    else
        __get_kernel_nofault(&value, (u64 *)address, u64, failed);
    if (!was_mapped && !is_mapped(address))
        reached("a probe", address);
failed:
    pagefault_enable();
}

/* What the process has, through a mirror that would wrap; sums that pass the end. */
static void wrap(void)
{
    try_hole(ANY(WAYS), seen_through_mirror(host_address()));
}

static void addresses(void)
{
    try_hole(ANY(WAYS), anywhere());
}

/* The machine's memory, through the kernel's own mapping of it, and what is behind its end. */
static void direct_map(void)
{
    u64 bytes = (u64)totalram_pages() << 12;
    u64 address = PAGE_OFFSET + chance(any() & 1 ? bytes : 64ull << 30);
    if (is_mapped(address) && lethal)
        fenced(ANY(ACCESSES), address, any());
    else
        try_hole(ANY(ACCESSES), address);
}

/* No fence: Linux says oops, and another thread goes on. */
static void oopses(void)
{
    u64 address = anywhere();
    if (is_process(address) || (!lethal && is_mapped(address)))
        return;
    if (any() & 1)
        *(volatile u64 *)address = any();
    else
        asm volatile("call *%0" :: "r"(address) : "memory");
}

/* Addresses that Linux does not use: where its sanitizer's shadow would be, and a user's. */
#define HIGH_REGION 0xffffec0000000000
#define LOW_REGION 0x200000000000

/* A page map of three levels for the region, in pages that are kept. */
static u64 *region(u64 base, unsigned wanted)
{
    static struct {
        u64 base, *tables[3];
    } made[2];
    unsigned which = base == LOW_REGION;
    u64 *root = (u64 *)__va(get_cr3() & FRAME) + (base >> 39 & 511);
    if (!made[which].base) {
        for (unsigned n = 0; n < 3; n++)
            made[which].tables[n] = (u64 *)get_zeroed_page(GFP_KERNEL);
        made[which].base = base;
    }
    *root = __pa(made[which].tables[2]) | 7;
    made[which].tables[2][0] = __pa(made[which].tables[1]) | 7;
    made[which].tables[1][0] = __pa(made[which].tables[0]) | 7;
    made[which].tables[0][0] = page_to_phys(vmalloc_to_page(arena + ARENA_BYTES / 2)) | 7;
    return wanted == 4 ? root : &made[which].tables[wanted - 1][0];
}

/* Memory that is none, devices, the ends of what there is. */
static u64 any_frame(void)
{
    static const u64 places[] = {0xfee00000, 0xfec00000, 0xfed00000, 0xe0000,      0xa0000,
                                 0xfff00000, 0xc0000000, 0x40000000, 0x100000000, 0xfd000000};
    u64 near = chance(4) << 12;
    switch (chance(4)) {
    case 0:
        return FRAME - near;
    case 1:
        return any() & FRAME & ~0xfffffffull;
    case 2:
        return lethal ? any() & 0xfffff000 : ANY(places) + near;
    default:
        return ANY(places) + near;
    }
}

/* One entry at a time that nobody should make. */
static void entries(void)
{
    u64 base = any() & 1 ? HIGH_REGION : LOW_REGION;
    u64 bits = any() & 0xfff, *entry, old;
    if (chance(8))
        bits |= PRESENT;
    if (!chance(4))
        bits |= 1ull << 63;
    if (!chance(16))
        bits |= any() & 0x7ff0000000000000;
    entry = region(base, 1 + chance(4));
    old = *entry;
    *entry = any_frame() | bits;
    flush_all();
    for (unsigned n = 0; n < 4; n++)
        fenced(ANY(WAYS), base + chance(8192), odd_number());
    *entry = old;
    flush_all();
    *region(base, 4) = 0;
    flush_all();
}

/* The page tables map themselves, and one page everywhere; that is written, executed, unmapped. */
static void aliases(void)
{
    u64 base = any() & 1 ? HIGH_REGION : LOW_REGION;
    unsigned level = 1 + chance(4);
    u64 *entry = region(base, level), old = *entry;
    u64 frame = page_to_phys(vmalloc_to_page(arena + chance(ARENA_BYTES)));
    u64 *table = (u64 *)((u64)entry & ~4095ull);
    u64 at = base + chance(1 << 21);
    if (level == 4 || any() & 1) {
        /* The table is its own: reads and writes of the region are of the table, in all its pages. */
        *entry = __pa(table) | (level == 4 && !lethal ? 5 : 7);
        flush_all();
        fenced(ANY(SNIPPETS(S(load), S(walk), S(copy_here))), at, any());
        if (level < 4)
            fenced(ANY(ACCESSES), base + 4096 + chance((1 << 21) - 4096), any() & ~1ull);
    } else if (level == 1) {
        for (unsigned n = 0; n < 512; n++)
            table[n] = frame | 7;
        flush_all();
        fenced(ANY(WAYS), at, any());
        fenced((struct snippet)S(jump), at, 0);
        for (unsigned n = 0; n < 512; n++)
            table[n] = 0;
    } else {
        for (unsigned n = 0; n < 512; n++)
            table[n] = old;
        flush_all();
        fenced(ANY(WAYS), base + (any() & 0x7fffffffff), any());
    }
    memset(table, 0, level == 4 ? 0 : 4096);
    *region(base, 4) = 0;
    flush_all();
}

/* Any CR3: the kernel's own page tables with something else in their lower half, or anything. */
static void roots(void)
{
    static u64 *copy;
    u64 *own = __va(get_cr3() & FRAME), odd = any();
    if (!copy)
        copy = (u64 *)get_zeroed_page(GFP_KERNEL);
    memcpy(copy, own, 4096);
    for (unsigned n = 0; n < 8; n++)
        copy[chance(256)] = any_frame() | (any() & 0xfff);
    odd = chance(4) ? __pa(copy) | (any() & 0x8000000000000fff) : (odd | 1ull << (52 + chance(11)));
    fenced((struct snippet)S(set_cr3), lethal && !chance(64) ? odd_number() : odd,
           chance(1ull << 47));
}

/* A mapped page of the kernel's half, found from the root of the page tables down. */
static u64 mapped_address(void)
{
    for (;;) {
        u64 address = 0, table = get_cr3() & FRAME, entry = 0;
        unsigned level = 4, tries = 0;
        for (; level; level--) {
            u64 *entries = (u64 *)__va(table), index;
            do
                index = level == 4 ? 256 + chance(256) : chance(512);
            while (!((entry = entries[index]) & PRESENT) && ++tries < 10000);
            address |= index << (3 + 9 * level);
            table = entry & FRAME;
            if (!(entry & PRESENT) || (level < 4 && entry & LARGE))
                break;
        }
        if (entry & PRESENT)
            return (s64)(address << 16) >> 16 | chance(4096);
    }
}

/* All that the kernel has. */
static void everything(void)
{
    if (lethal)
        fenced(ANY(ACCESSES), mapped_address(), any());
}

/* What the process has, page by page: its code and data, and the heap behind them. It need not survive
 * that. */
static void process(void)
{
    static u64 page;
    u64 address = seen_through_mirror(0x7e9000000000) + (page++ % 16384 << 12);
    if (lethal)
        fenced(ANY(SNIPPETS(S(store), S(fill), S(add), S(save))), address + chance(4096), any());
}

const struct attack MEMORY_ATTACKS[] = {
    {"holes", holes},     {"probes", probes},         {"wrap", wrap},
    {"addresses", addresses}, {"direct_map", direct_map}, {"oopses", oopses},
    {"entries", entries}, {"aliases", aliases},       {"roots", roots},
    {"everything", everything}, {"process", process}, {}};
