/* What must be seen after each way to invalidate translations; stale entries are allowed before
 * (SDM 3A 4.10). Every change is tried by reads, writes and fetches of user and supervisor. */
#include "paging.h"

SNIPPET(load, "nop", "mov (%rdi), %eax", "");
SNIPPET(store, "mov $0x77, %eax", "mov %eax, 64(%rdi)", "");
SNIPPET(execute, "nop", "call *%rdi", "");
SNIPPET(invalidate_pcid, "nop", "invpcid (%rdi), %rsi", "");
SNIPPET(invalidate, "nop", "invlpg (%rdi)", "");
SNIPPET(set_cr3, "nop", "mov %rdi, %cr3", "");
SNIPPET(set_cr4, "nop", "mov %rdi, %cr4", "");

#define FRAME_A (40ul << 20)
#define FRAME_B (42ul << 20)
#define ADDRESS (HIGH_BASE + (28ul << 30))

struct descriptor128 {
    u64 pcid, address;
};

static void by_invlpg(word address) { invlpg(address); }
static void by_invlpg_inside(word address) { invlpg(address | 0xabc); }
static void by_cr3(word address) { (void)address, flush_tlb(); }
static void by_pge(word address)
{
    (void)address;
    word cr4 = read_cr4();
    write_cr4(cr4 ^ CR4_PGE);
    write_cr4(cr4);
}
static void invpcid(u64 type, u64 pcid, word address)
{
    struct descriptor128 d = {pcid, address};
    asm volatile("invpcid %0, %1" ::"m"(d), "r"(type) : "memory");
}
static void by_invpcid_address(word address) { invpcid(0, read_cr3() & 0xfff, address); }
static void by_invpcid_single(word address) { invpcid(1, read_cr3() & 0xfff, address); }
static void by_invpcid_all_global(word address) { invpcid(2, 0, address); }
static void by_invpcid_all(word address) { invpcid(3, 0, address); }

struct method {
    const char *name;
    void (*flush)(word address);
    const char *global_name;
    bool global, needs_invpcid;
};
static const struct method methods[] = {
    {"invlpg", by_invlpg, "invlpg, global page", true, false},
    {"invlpg within the page", by_invlpg_inside, "invlpg within the page, global page", true,
     false},
    {"mov cr3", by_cr3, 0, false, false},
    {"CR4.PGE", by_pge, "CR4.PGE, global page", true, false},
    {"invpcid of an address", by_invpcid_address, 0, false, true},
    {"invpcid of a PCID", by_invpcid_single, 0, false, true},
    {"invpcid of all, with global", by_invpcid_all_global,
     "invpcid of all, with global, global page", true, true},
    {"invpcid of all", by_invpcid_all, 0, false, true},
};

/* mov $value, %eax; ret */
static void put_function(word frame, u32 value)
{
    u8 *code = (u8 *)frame;
    code[0] = 0xb8;
    memcpy(code + 1, &value, 4);
    code[5] = 0xc3;
}

static u32 read_through(word address, bool user)
{
    user ? run_user(load, address, 0) : run_kernel(load, address, 0);
    return last.vector == DONE ? last.rax : 0xffffff00 | last.vector;
}

static u32 call_through(word address, bool user)
{
    user ? run_user(execute, address, 0) : run_kernel(execute, address, 0);
    return last.vector == DONE ? last.rax : 0xffffff00 | last.vector;
}

static u32 write_through(word address, bool user)
{
    *(u32 *)(FRAME_A + 64) = *(u32 *)(FRAME_B + 64) = 0;
    user ? run_user(store, address, 0) : run_kernel(store, address, 0);
    if (last.vector != DONE)
        return 0xffffff00 | last.vector;
    return (*(u32 *)(FRAME_A + 64) == 0x77) | (*(u32 *)(FRAME_B + 64) == 0x77) << 1;
}

static void touch(word address)
{
    for (unsigned user = 0; user < 2; user++) {
        read_through(address, user);
        call_through(address, user);
        write_through(address, user);
    }
}

/* Change the entry at `level` in several ways; each must be seen once flushed. */
static void changes(const struct method *method, unsigned leaf, bool global)
{
    word address = ADDRESS + leaf * (1ul << 30);
    u64 bits = P_ALL | (global ? P_G : 0);
    struct walk walk = map_at(address, FRAME_A, leaf, bits);
    u64 size = leaf > 1 ? P_PS : 0;
    u64 *entry = walk.entry[leaf];
    put_function(FRAME_A, 0xaaaa);
    put_function(FRAME_B, 0xbbbb);
    u32 word_b = *(u32 *)FRAME_B;
    for (unsigned user = 0; user < 2; user++) {
        *entry = FRAME_A | bits | size;
        method->flush(address);
        touch(address);
        *entry = FRAME_B | bits | size;
        method->flush(address);
        check(read_through(address, user), word_b, "other frame read, user %d, leaf %d", user,
              leaf);
        check(call_through(address, user), 0xbbbb, "other frame executed, user %d, leaf %d", user,
              leaf);
        check(write_through(address, user), 2, "other frame written, user %d, leaf %d", user, leaf);
        *entry &= ~P_W;
        method->flush(address);
        check(write_through(address, user), 0xffffff00 | PF, "write taken, user %d, leaf %d", user,
              leaf);
        check(read_through(address, user), word_b, "read left, user %d, leaf %d", user, leaf);
        *entry |= P_W | P_NX;
        method->flush(address);
        check(call_through(address, user), 0xffffff00 | PF, "execution taken, user %d, leaf %d",
              user, leaf);
        check(write_through(address, user), 2, "write given, user %d, leaf %d", user, leaf);
        *entry &= ~(P_NX | P_U);
        method->flush(address);
        check(read_through(address, 1), 0xffffff00 | PF, "user taken, leaf %d", leaf);
        check(call_through(address, 1), 0xffffff00 | PF, "user execution taken, leaf %d", leaf);
        *entry = (*entry | P_U) & ~P_P;
        method->flush(address);
        check(read_through(address, user), 0xffffff00 | PF, "page taken, user %d, leaf %d", user,
              leaf);
        check(call_through(address, user), 0xffffff00 | PF, "code taken, user %d, leaf %d", user,
              leaf);
        /* An absent page is not cached: no flush (SDM 3A 4.10.2.3). */
        *entry |= P_P;
        check(read_through(address, user), word_b, "page given, user %d, leaf %d", user, leaf);
        *entry &= ~(P_A | P_D);
        method->flush(address);
        read_through(address, user);
        check(*entry & (P_A | P_D), P_A, "accessed set again, user %d, leaf %d", user, leaf);
        write_through(address, user);
        check(*entry & (P_A | P_D), P_A | P_D, "dirty set again, user %d, leaf %d", user, leaf);
    }
    *entry = 0;
    invlpg(address);
}

/* A table entry above the leaf changes: the whole subtree is another. */
static void upper_levels(const struct method *method)
{
    word address = ADDRESS + (10ul << 30), other = address + (1ul << 30);
    struct walk walk = map_at(address, FRAME_A, 1, P_ALL);
    struct walk away = map_at(other, FRAME_B, 1, P_ALL);
    for (unsigned level = 2; level <= 3; level++) {
        u64 entry = *walk.entry[level];
        touch(address);
        *walk.entry[level] = *away.entry[level];
        method->flush(address);
        check(call_through(address, false), 0xbbbb, "other table at level %d", level);
        *walk.entry[level] = entry & ~P_W;
        method->flush(address);
        check(write_through(address, false), 0xffffff00 | PF, "write taken at level %d", level);
        *walk.entry[level] = entry & ~P_P;
        method->flush(address);
        check(read_through(address, true), 0xffffff00 | PF, "table taken at level %d", level);
        *walk.entry[level] = entry;
        method->flush(address);
        check(call_through(address, true), 0xaaaa, "table given back at level %d", level);
    }
}

/* Two address spaces with different pages at the same address. */
static void address_spaces(u64 first_pcid, u64 second_pcid, u64 no_flush)
{
    word address = ADDRESS + (14ul << 30);
    struct walk walk = map_at(address, FRAME_A, 1, P_ALL);
    u64 *other_pml4 = new_table();
    memcpy(other_pml4, pml4, 4096);
    u64 *tables[4] = {0, new_table(), new_table(), new_table()};
    tables[1][address >> 12 & 511] = FRAME_B | P_ALL;
    tables[2][address >> 21 & 511] = (word)tables[1] | P_ALL;
    tables[3][address >> 30 & 511] = (word)tables[2] | P_ALL;
    other_pml4[address >> 39 & 511] = (word)tables[3] | P_ALL;
    begin_group();
    for (unsigned i = 0; i < 20; i++) {
        write_cr3((word)pml4 | first_pcid | (i ? no_flush : 0));
        check(call_through(address, i & 1), 0xaaaa, "first space");
        write_cr3((word)other_pml4 | second_pcid | (i ? no_flush : 0));
        check(call_through(address, i & 1), 0xbbbb, "second space");
    }
    /* A change made while the other PCID was current is seen after a flushing load. */
    *walk.entry[1] = FRAME_B | P_ALL;
    write_cr3((word)pml4 | first_pcid);
    check(call_through(address, 0), 0xbbbb, "changed from the other space, user 0");
    check(call_through(address, 1), 0xbbbb, "changed from the other space, user 1");
    write_cr3((word)pml4);
    end_group(first_pcid ? "address spaces with PCIDs" : "address spaces");
}

static void pcids(void)
{
    if (!has_pcid()) {
        skip("PCID", "not announced");
        return;
    }
    word cr4 = read_cr4();
    write_cr3((word)pml4 | 0x18);
    run_kernel(set_cr4, cr4 | CR4_PCIDE, 0);
    check_event(GP, 0, (word)set_cr4_at, "CR4.PCIDE with CR3[11:0] not 0");
    write_cr3((word)pml4);
    run_kernel(set_cr4, cr4 | CR4_PCIDE, 0);
    check_done("CR4.PCIDE");
    address_spaces(1, 2, 1ul << 63);
    write_cr3((word)pml4 | 5);
    check(read_cr3(), (word)pml4 | 5, "PCID in CR3");
    write_cr3((word)pml4 | 5 | 1ul << 63);
    check(read_cr3(), (word)pml4 | 5, "CR3[63] reads as 0");
    write_cr3((word)pml4);
    write_cr4(cr4);
    run_kernel(set_cr3, (word)pml4 | 1ul << 63, 0);
    check_event(GP, 0, (word)set_cr3_at, "CR3[63] without PCIDE");
}

static void invpcid_faults(void)
{
    if (!has_invpcid()) {
        skip("invpcid", "not announced");
        return;
    }
    static struct descriptor128 d;
    run_kernel(invalidate_pcid, (word)&d, 4);
    check_event(GP, 0, (word)invalidate_pcid_at, "invpcid of an unknown type");
    d.pcid = 0x1000;
    run_kernel(invalidate_pcid, (word)&d, 1);
    check_event(GP, 0, (word)invalidate_pcid_at, "invpcid with reserved bits");
    d.pcid = 1;
    run_kernel(invalidate_pcid, (word)&d, 1);
    check_event(GP, 0, (word)invalidate_pcid_at, "invpcid of a PCID without PCIDE");
    d = (struct descriptor128){0, 0x800000000000};
    run_kernel(invalidate_pcid, (word)&d, 0);
    check_event(GP, 0, (word)invalidate_pcid_at, "invpcid of a non-canonical address");
    run_user(invalidate_pcid, USER(&d), 3);
    check_event(GP, 0, USER(invalidate_pcid_at), "invpcid in ring 3");
}

int main(void)
{
    write_cr4(read_cr4() | CR4_PGE);
    for (unsigned i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (methods[i].needs_invpcid && !has_invpcid()) {
            skip(methods[i].name, "not announced");
            continue;
        }
        for (unsigned global = 0; global <= methods[i].global; global++) {
            begin_group();
            changes(&methods[i], 1, global);
            changes(&methods[i], 2, global);
            upper_levels(&methods[i]);
            end_group(global ? methods[i].global_name : methods[i].name);
        }
    }
    address_spaces(0, 0, 0);
    pcids();
    invpcid_faults();
    run_kernel(invalidate, 0x800000000000, 0);
    check_done("invlpg of a non-canonical address does nothing");
    return 0;
}
