/* Reserved bits, accessed and dirty bits of special accesses, pages crossed, non-canonical
 * addresses, and implicit supervisor accesses (SDM 3A 4.5, 4.6, 4.8; SDM 1 3.3.7.1). */
#include "paging.h"

SNIPPET(load, "nop", "mov (%rdi), %rax", "");
SNIPPET(store, "nop", "mov %rax, (%rdi)", "");
SNIPPET(add_memory, "mov $1, %eax", "add %eax, (%rdi)", "");
SNIPPET(exchange_not, "mov $1, %eax; mov $2, %ecx", "lock cmpxchg %ecx, (%rdi)", "");
SNIPPET(test_bit, "xor %eax, %eax", "bt %eax, (%rdi)", "");
SNIPPET(push_one, "mov %rdi, %rsp", "push %rax", "");
SNIPPET(call_near, "mov %rdi, %rsp", "call 1f; 1:", "");
SNIPPET(pop_one, "mov %rdi, %rsp", "pop %rax", "");
SNIPPET(copy, "mov $64, %ecx; cld", "rep movsb", "");
SNIPPET(copy_down, "mov $64, %ecx; std", "rep movsb", "cld");
SNIPPET(fill, "mov $1024, %ecx; cld", "rep stosq", "");
SNIPPET(load_vector, "nop", "movups (%rdi), %xmm0", "");
SNIPPET(store_vector, "nop", "movups %xmm0, (%rdi)", "");
SNIPPET(jump, "nop", "jmp *%rdi", "");
SNIPPET(load_es, "nop", "mov %edi, %es", "");
SNIPPET(int_ff, "nop", "int $0xff", "");
SNIPPET(prefetch, "nop", "prefetcht0 (%rdi)", "");
SNIPPET(effective, "nop", "lea (%rdi), %rax", "");
SNIPPET(nop_memory, "nop", "nopl (%rdi)", "");
SNIPPET(flush_line, "nop", "clflush (%rdi)", "");
SNIPPET(push_memory, "mov %rsi, %rsp", "push (%rdi)", "");
SNIPPET(pop_memory, "mov %rsi, %rsp", "pop (%rdi)", "");

#define FRAME (36ul << 20)
#define OTHER (38ul << 20)

static struct walk walk_of(word address, u64 frame, unsigned leaf)
{
    return map_at(address, frame, leaf, P_ALL);
}

static void clear_bits(const struct walk *walk, word address)
{
    for (unsigned level = 4; level >= walk->leaf; level--)
        *walk->entry[level] &= ~(P_A | P_D);
    invlpg(address);
}

/* Bit 9 and the bits of ignored fields are no fault; the reserved are, with their own error code.
 */
static void try_bit(const struct walk *walk, word address, unsigned level, unsigned bit,
                    bool reserved)
{
    u64 entry = *walk->entry[level];
    for (unsigned user = 0; user < 2; user++) {
        *walk->entry[level] = entry ^ 1ull << bit;
        invlpg(address);
        user ? run_user(store, address, 0) : run_kernel(store, address, 0);
        if (reserved)
            check_event(PF, E_P | E_R | E_W | (user ? E_U : 0),
                        user ? USER(store_at) : (word)store_at,
                        "bit %d of level %d, leaf %d, user %d", bit, level, walk->leaf, user);
        else
            check_done("bit %d of level %d, leaf %d, user %d", bit, level, walk->leaf, user);
        *walk->entry[level] = entry;
    }
    invlpg(address);
}

static void reserved_bits(void)
{
    unsigned physical = cpuid(0x80000008, 0).eax & 0xff;
    word address = HIGH_BASE + (8ul << 30);
    struct walk walks[4];
    walks[1] = walk_of(address, FRAME, 1);
    walks[2] = walk_of(address + (1ul << 30), FRAME, 2);
    unsigned largest = 2;
    if (has_1g_pages()) {
        walks[3] = walk_of(address + (2ul << 30), 0, 3);
        largest = 3;
    }
    begin_group();
    for (unsigned leaf = 1; leaf <= largest; leaf++) {
        word at = address + (leaf - 1) * (1ul << 30) + (leaf == 3 ? FRAME : 0);
        for (unsigned level = 4; level >= leaf; level--) {
            for (unsigned bit = physical; bit < 52; bit++)
                try_bit(&walks[leaf], at, level, bit, true);
            for (unsigned bit = 52; bit < 59; bit++)
                try_bit(&walks[leaf], at, level, bit, false);
            for (unsigned bit = 9; bit < 12; bit++)
                try_bit(&walks[leaf], at, level, bit, false);
            try_bit(&walks[leaf], at, level, 3, false);
            try_bit(&walks[leaf], at, level, 4, false);
        }
    }
    end_group("bits above the physical address, and ignored bits");
    begin_group();
    for (unsigned bit = 13; bit < 21; bit++)
        try_bit(&walks[2], address + (1ul << 30), 2, bit, true);
    for (unsigned bit = 13; largest == 3 && bit < 30; bit++)
        try_bit(&walks[3], address + (2ul << 30) + FRAME, 3, bit, true);
    end_group("bits below the frame of a large page");
    try_bit(&walks[1], address, 4, 7, true);
    if (largest == 2)
        try_bit(&walks[1], address, 3, 7, true);
}

static void expect_bits(const struct walk *walk, bool accessed, bool dirty, const char *name)
{
    bool all = true, leaf_dirty = *walk->entry[walk->leaf] & P_D, other_dirty = false;
    for (unsigned level = 4; level >= walk->leaf; level--) {
        all &= !!(*walk->entry[level] & P_A);
        other_dirty |= level != walk->leaf && *walk->entry[level] & P_D;
    }
    check(all | leaf_dirty << 1 | other_dirty << 2, accessed | dirty << 1, "A and D: %s", name);
}

static void accessed_and_dirty(void)
{
    word address = LOW_BASE + (3ul << 30);
    struct walk walk = walk_of(address, FRAME, 1);
    static const struct {
        const char *name;
        const void *code;
        word offset;
        bool accessed, dirty;
    } cases[] = {
        {"load", load, 0, true, false},
        {"store", store, 0, true, true},
        {"add to memory", add_memory, 0, true, true},
        {"cmpxchg that fails", exchange_not, 0, true, true},
        {"bt", test_bit, 0, true, false},
        {"push", push_one, 2048, true, true},
        {"call", call_near, 2048, true, true},
        {"pop", pop_one, 2048, true, false},
        {"load of a vector", load_vector, 0, true, false},
        {"store of a vector", store_vector, 0, true, true},
        {"lea", effective, 0, false, false},
        {"long nop", nop_memory, 0, false, false},
        {"push of memory", push_memory, 0, true, false},
        {"pop to memory", pop_memory, 0, true, true},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        clear_bits(&walk, address);
        *(u64 *)FRAME = 7;
        run_kernel(cases[i].code, address + cases[i].offset, kernel_state(0).rsp);
        check_done("%s", cases[i].name);
        if (cases[i].accessed) {
            expect_bits(&walk, cases[i].accessed, cases[i].dirty, cases[i].name);
        } else {
            check(*walk.entry[1] & (P_A | P_D), 0, "A and D: %s", cases[i].name);
        }
    }
    clear_bits(&walk, address);
    *(u16 *)FRAME = 0x81cd;
    run_kernel(jump, address, 0);
    check(last.vector, DONE, "fetch");
    expect_bits(&walk, true, false, "fetch");
    clear_bits(&walk, address);
    run_kernel(load, address, 0);
    expect_bits(&walk, true, false, "load before a store");
    run_kernel(store, address, 0);
    expect_bits(&walk, true, true, "store after a load");
    clear_bits(&walk, address);
    run_user(store, address, 0);
    expect_bits(&walk, true, true, "store by user");
    *walk.entry[1] &= ~(P_W | P_D);
    invlpg(address);
    run_user(store, address, 0);
    check_event(PF, E_P | E_W | E_U, USER(store_at), "store to a read-only page");
    check(*walk.entry[1] & P_D, 0, "a store that faults leaves D clear");
    write_cr0(read_cr0() & ~CR0_WP);
    run_kernel(store, address, 0);
    check_done("store to a read-only page without WP");
    check(*walk.entry[1] & P_D, P_D, "a store without WP sets D");
    write_cr0(read_cr0() | CR0_WP);
    run_kernel(store, address, 0);
    check_event(PF, E_P | E_W, (word)store_at, "WP set again, no flush needed");
    run_kernel(add_memory, address, 0);
    check_event(PF, E_P | E_W, (word)add_memory_at, "read-modify-write of a read-only page");
    run_kernel(exchange_not, address, 0);
    check_event(PF, E_P | E_W, (word)exchange_not_at, "cmpxchg that fails on a read-only page");
    *walk.entry[1] = 0;
    invlpg(address);
    run_kernel(add_memory, address, 0);
    check(last.vector, PF, "read-modify-write of an absent page");
    run_kernel(prefetch, address, 0);
    check_done("prefetch of an absent page");
    run_kernel(flush_line, address, 0);
    check_event(PF, 0, (word)flush_line_at, "clflush of an absent page");
}

/* Two pages, the second absent: CR2 is the first byte that faults, and nothing has been written. */
static void crossing(void)
{
    word address = HIGH_BASE + (12ul << 30);
    struct walk first = walk_of(address, FRAME, 1);
    struct walk second = walk_of(address + 4096, OTHER, 1);
    static u64 *const tail = (u64 *)(FRAME + 4088);
    for (unsigned missing = 0; missing < 2; missing++) {
        *first.entry[1] = missing == 0 ? 0 : FRAME | P_ALL;
        *second.entry[1] = missing == 1 ? 0 : OTHER | P_ALL;
        invlpg(address);
        invlpg(address + 4096);
        for (unsigned offset = 1; offset < 8; offset++) {
            word cr2 = missing ? address + 4096 : address + 4096 - offset;
            *tail = 0x1122334455667788;
            run_kernel(load, address + 4096 - offset, 0);
            check_event(PF, 0, (word)load_at, "load %d before the end, page %d absent", offset,
                        missing);
            check(last_cr2, cr2, "CR2 of a load %d before the end, page %d absent", offset,
                  missing);
            run_kernel(store, address + 4096 - offset, 0);
            check_event(PF, E_W, (word)store_at, "store %d before the end, page %d absent", offset,
                        missing);
            check(last_cr2, cr2, "CR2 of a store %d before the end, page %d absent", offset,
                  missing);
            check(*tail, 0x1122334455667788,
                  "a store that faults %d before the end writes nothing, page %d absent", offset,
                  missing);
        }
        run_kernel(store_vector, address + 4096 - 4, 0);
        check(last_cr2, missing ? address + 4096 : address + 4092,
              "CR2 of a vector, page %d absent", missing);
        check(*tail, 0x1122334455667788, "a vector that faults writes nothing, page %d absent",
              missing);
    }
    *second.entry[1] = OTHER | P_P | P_U;
    invlpg(address + 4096);
    *first.entry[1] = FRAME | P_ALL;
    invlpg(address);
    *tail = 0x1122334455667788;
    run_kernel(store, address + 4092, 0);
    check_event(PF, E_P | E_W, (word)store_at, "store into a read-only second page");
    check(*tail, 0x1122334455667788, "a store that faults in a read-only page writes nothing");
    *second.entry[1] = OTHER | P_ALL;
    invlpg(address + 4096);
    run_kernel(store, address + 4092, 0);
    check_done("store across two pages");
    check(*tail >> 32 | (u64) * (u32 *)OTHER << 32, 0,
          "a store across two pages writes both frames");
    check(*first.entry[1] & *second.entry[1] & P_D, P_D, "a store across two pages dirties both");
}

/* String instructions stop at the fault with RCX, RSI and RDI where they are (SDM 2B, REP). */
static void strings(void)
{
    word address = HIGH_BASE + (16ul << 30);
    walk_of(address, FRAME, 1);
    struct walk second = walk_of(address + 4096, OTHER, 1);
    *second.entry[1] = 0;
    invlpg(address + 4096);
    struct event start = kernel_state(copy);
    start.rdi = address + 4096 - 16;
    start.rsi = (word)snippet_stack;
    run(&start);
    check_event(PF, E_W, (word)copy_at, "rep movsb into an absent page");
    check(last_cr2, address + 4096, "rep movsb: CR2");
    check(last.rcx, 48, "rep movsb: RCX");
    check(last.rdi, address + 4096, "rep movsb: RDI");
    check(last.rsi, start.rsi + 16, "rep movsb: RSI");
    start.rdi = (word)snippet_stack;
    start.rsi = address + 4096 - 16;
    run(&start);
    check_event(PF, 0, (word)copy_at, "rep movsb from an absent page");
    check(last.rcx, 48, "rep movsb from: RCX");
    check(last.rsi, address + 4096, "rep movsb from: RSI");
    start = kernel_state(copy_down);
    start.rdi = address + 4096 + 15;
    start.rsi = (word)snippet_stack + 100;
    run(&start);
    check_event(PF, E_W, (word)copy_down_at, "rep movsb downwards into an absent page");
    check(last.rcx, 64, "rep movsb downwards: RCX");
    run_kernel(fill, address + 4, 0);
    check_event(PF, E_W, (word)fill_at, "rep stosq across into an absent page");
    check(last.rcx, 1024 - 511, "rep stosq: RCX");
    check(last.rdi, address + 4 + 511 * 8, "rep stosq: RDI");
    check(last_cr2, address + 4096, "rep stosq: CR2");
}

static void canonical(void)
{
    walk_of(0x7ffffffff000, FRAME, 1);
    walk_of(0xffff800000000000, FRAME, 1);
    run_kernel(load, 0x0000800000000000 - 8, 0);
    check_done("a load that ends the lower half");
    run_kernel(load, 0xffff800000000000, 0);
    check_done("a load that starts the upper half");
    run_kernel(load, 0x0000800000000000 - 1, 0);
    check_event(GP, 0, (word)load_at, "a load that ends beyond the lower half");
    run_kernel(load, 0xffff800000000000 - 1, 0);
    check_event(GP, 0, (word)load_at, "a load that starts below the upper half");
    run_kernel(push_one, 0x0000800000001008, 0);
    check(last.vector, DF, "push at a non-canonical RSP: no stack for #SS either");
}

struct table_register {
    u16 limit;
    u64 base;
} __attribute__((packed));

static void load_es_case(unsigned selector, int error, word cr2, const char *name)
{
    for (unsigned user = 0; user < 2; user++) {
        struct event start = user ? user_state(load_es) : kernel_state(load_es);
        start.rdi = selector;
        start.rflags |= F_AC;
        run(&start);
        if (error < 0) {
            check_done("%s, user %d", name, user);
            continue;
        }
        check_event(PF, error, user ? USER(load_es_at) : (word)load_es_at, "%s, user %d", name,
                    user);
        check(last_cr2 & ~7ul, cr2, "CR2: %s, user %d", name, user);
    }
}

/* Accesses that the processor makes by itself are supervisor accesses, whatever CPL is, and AC
 * does not open user pages to them (SDM 3A 4.6.1). */
static void implicit_gdt(void)
{
    enum { SELECTOR = 0x1003 };
    word address = HIGH_BASE + (20ul << 30);
    map_at(address, FRAME, 1, P_P | P_W);
    struct walk second = walk_of(address + 4096, OTHER, 1);
    struct table_register old, moved = {0x1fff, address};
    memcpy((void *)FRAME, gdt, sizeof(gdt));
    memset((void *)OTHER, 0, 4096);
    u64 *entry = (u64 *)OTHER;
    *entry = descriptor(0, 0xfffff, 0xc0f3);
    asm volatile("sgdt %0" : "=m"(old));
    asm volatile("lgdt %0" ::"m"(moved));
    load_es_case(SELECTOR, -1, 0, "load of ES from a second page of the GDT");
    *second.entry[1] = 0;
    invlpg(address + 4096);
    load_es_case(SELECTOR, 0, address + 4096, "load of ES, GDT absent");
    *second.entry[1] = OTHER | P_P | P_W;
    invlpg(address + 4096);
    load_es_case(SELECTOR, -1, 0, "load of ES, GDT in a supervisor page");
    *second.entry[1] = OTHER | P_P;
    *entry = descriptor(0, 0xfffff, 0xc0f2);
    invlpg(address + 4096);
    load_es_case(SELECTOR, E_P | E_W, address + 4096, "load of ES sets accessed, GDT read-only");
    *entry = descriptor(0, 0xfffff, 0xc0f3);
    load_es_case(SELECTOR, -1, 0, "load of ES, accessed already, GDT read-only");
    if (has_smap()) {
        *second.entry[1] = OTHER | P_ALL;
        invlpg(address + 4096);
        write_cr4(read_cr4() | CR4_SMAP);
        load_es_case(SELECTOR, E_P, address + 4096, "load of ES, SMAP, GDT in a user page");
        write_cr4(read_cr4() & ~CR4_SMAP);
    }
    asm volatile("lgdt %0" ::"m"(old));
}

static void implicit_idt(void)
{
    word address = HIGH_BASE + (24ul << 30);
    struct table_register old, moved = {0xfff, address + 0x800};
    asm volatile("sidt %0" : "=m"(old));
    memcpy((void *)(FRAME + 0x800), (void *)old.base, 0x800);
    walk_of(address, FRAME, 1);
    asm volatile("lidt %0" ::"m"(moved));
    set_gate(0xff, 0, 0, 0, 0);
    for (unsigned user = 0; user < 2; user++) {
        /* Vector 0x81 lies in the second page too: the snippet must not come to its end. */
        user ? run_user(int_ff, 0, 0) : run_kernel(int_ff, 0, 0);
        check_event(PF, 0, user ? USER(int_ff_at) : (word)int_ff_at, "int, IDT absent, user %d",
                    user);
        check(last_cr2 & ~15ul, address + 0x800 + 0xff0, "CR2: int, IDT absent, user %d", user);
    }
    asm volatile("lidt %0" ::"m"(old));
}

int main(void)
{
    /* Events have a stack of their own: the stack pointer points into the pages under test. */
    set_gate(PF, (word)vector_stubs + 16 * PF, KERNEL_CS, GATE_INTERRUPT, 2);
    set_gate(DONE, (word)vector_stubs + 16 * DONE, KERNEL_CS, GATE_INTERRUPT | GATE_DPL3, 2);
    set_gate(DF, (word)vector_stubs + 16 * DF, KERNEL_CS, GATE_INTERRUPT, 1);
    reserved_bits();
    accessed_and_dirty();
    crossing();
    strings();
    canonical();
    implicit_gdt();
    implicit_idt();
    return 0;
}
