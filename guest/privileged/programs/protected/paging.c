/* Two-level and PAE paging in 32-bit mode: permissions, error codes, accessed and dirty bits, large
 * pages, reserved bits (SDM 3A 4.3, 4.4, 4.6, 4.7). */
#include "harness.h"

SNIPPET(load, "nop", "mov (%edi), %eax", "");
SNIPPET(store, "nop", "mov %eax, (%edi)", "");
SNIPPET(fetch, "nop", "jmp *%edi", "");
SNIPPET(set_cr3, "nop", "mov %edi, %cr3", "");

enum { READ, WRITE, FETCH };
#define P 1u
#define W 2u
#define U 4u
#define A 0x20u
#define D 0x40u
#define PS 0x80u
#define ALL (P | W | U)
#define FRAME 0x2000000u
#define LARGE_FRAME 0x2400000u
#define ADDRESS 0x60000000u
#define LARGE 0x70000000u

static u32 *const directory = (u32 *)page_pool[0], *const table = (u32 *)page_pool[1];
static u64 *const pointers = (u64 *)page_pool[2], *const pae_directories = (u64 *)page_pool[3];
static u64 *const pae_table = (u64 *)page_pool[7];
static bool pae, nxe;

static const u32 rights[] = {ALL, ALL & ~P, ALL & ~W, ALL & ~U};
static const char *const access_names[] = {"read", "write", "fetch"};

static u64 entry_at(unsigned level)
{
    if (pae)
        return level == 2 ? pae_directories[ADDRESS >> 21] : pae_table[0];
    return level == 2 ? directory[ADDRESS >> 22] : table[0];
}

static void set_entry(unsigned level, u64 value)
{
    if (pae && level == 2)
        pae_directories[ADDRESS >> 21] = value;
    else if (pae)
        pae_table[0] = value;
    else if (level == 2)
        directory[ADDRESS >> 22] = value;
    else
        table[0] = value;
    invlpg(ADDRESS);
}

/* What the access must give: -1, or an error code. */
static int expected_error(u64 all, bool nx, bool user, unsigned access)
{
    int error =
        (access == WRITE ? 2 : 0) | (user ? 4 : 0) | (access == FETCH && pae && nxe ? 16 : 0);
    if (!(all & P))
        return error;
    bool refused = access == FETCH && nx;
    if (user)
        refused |= !(all & U) || (access == WRITE && !(all & W));
    else
        refused |= access == WRITE && !(all & W) && read_cr0() & CR0_WP;
    return refused ? error | 1 : -1;
}

static void try_access(u32 address, u64 all, bool nx, bool user, unsigned access, unsigned name)
{
    const void *code[] = {load, store, fetch};
    const void *at[] = {load_at, store_at, fetch_at};
    int error = expected_error(all, nx, user, access);
    user ? run_user(code[access], address, 0) : run_kernel(code[access], address, 0);
    if (error < 0) {
        check_done("%s, user %d, rights %x", access_names[access], user, (word)name);
        return;
    }
    check_event(PF, error, access == FETCH ? address : (word)at[access], "%s, user %d, rights %x",
                access_names[access], user, (word)name);
    check(last_cr2, address, "CR2: %s, user %d, rights %x", access_names[access], user, (word)name);
}

static void permissions(void)
{
    u64 upper = pae ? (word)pae_table : (word)table;
    for (unsigned c = 0; c < (nxe ? 64u : 16u); c++) {
        u64 high = upper | rights[c & 3] | (c & 16 ? 1ull << 63 : 0);
        u64 low = FRAME | rights[c >> 2 & 3] | (c & 32 ? 1ull << 63 : 0);
        for (unsigned user = 0; user < 2; user++) {
            for (unsigned access = READ; access <= FETCH; access++) {
                set_entry(2, high);
                set_entry(1, low);
                /* The fetch finds int $0x81 at 0x10; reads and writes stay clear of it. */
                u32 address = ADDRESS + (access == FETCH ? 0x10 : 0x100);
                try_access(address, high & low, c & 48, user, access, c);
                bool success = last.vector == DONE;
                check(!!(entry_at(1) & D), success && access == WRITE, "D, rights %x", (word)c);
                if (success)
                    check(entry_at(1) & entry_at(2) & A, A, "A, rights %x", (word)c);
                else if (!(high & P))
                    check(entry_at(1) & A, 0, "A beneath an absent entry, rights %x", (word)c);
            }
        }
    }
    set_entry(2, upper | ALL);
    set_entry(1, FRAME | ALL);
}

static void set_large(u64 value)
{
    if (pae)
        pae_directories[LARGE >> 21] = value;
    else
        directory[LARGE >> 22] = value;
    invlpg(LARGE);
}

static u64 get_large(void) { return pae ? pae_directories[LARGE >> 21] : directory[LARGE >> 22]; }

static void large_pages(void)
{
    for (unsigned c = 0; c < 4; c++)
        for (unsigned user = 0; user < 2; user++)
            for (unsigned access = READ; access <= WRITE; access++) {
                set_large(LARGE_FRAME | rights[c] | PS);
                try_access(LARGE + 0x12345, rights[c], false, user, access, c);
                check(!!(get_large() & D), last.vector == DONE && access == WRITE,
                      "D of a large page, rights %x", (word)c);
            }
    set_large(LARGE_FRAME | ALL | PS);
    *(u32 *)(LARGE_FRAME + 0x100000) = 0xabcdef01;
    run_kernel(load, LARGE + 0x100000, 0);
    check(last.rax, 0xabcdef01, "contents of a large page");
    set_large(LARGE_FRAME | ALL | PS | (pae ? 1u << 13 : 1u << 21));
    run_kernel(load, LARGE, 0);
    check_event(PF, 9, (word)load_at, "a reserved bit of a large page");
    set_large(0);
}

/* Bits above the frame, and NX without EFER.NXE. */
static void reserved_bits(void)
{
    unsigned physical = cpuid(0x80000008, 0).eax & 0xff;
    for (unsigned level = 1; level <= 2; level++) {
        u64 entry = entry_at(level);
        for (unsigned bit = physical; bit < (nxe ? 63u : 64u); bit++) {
            set_entry(level, entry | 1ull << bit);
            run_user(load, ADDRESS, 0);
            check_event(PF, 0xd, (word)load_at, "bit %d of level %d", bit, level);
        }
        set_entry(level, entry);
    }
    static const unsigned bits[] = {1, 2, 5, 6, 7, 8};
    u64 good = pointers[3];
    for (unsigned i = 0; i < 6; i++) {
        pointers[3] = good | 1u << bits[i];
        run_kernel(set_cr3, (word)pointers, 0);
        check_event(GP, 0, (word)set_cr3_at, "mov to CR3 with bit %d of a PDPTE", bits[i]);
    }
    pointers[3] = good;
    run_kernel(set_cr3, (word)pointers, 0);
    check_done("mov to CR3 with good PDPTEs");
}

static void two_levels(void)
{
    for (unsigned i = 0; i < 1024; i++)
        directory[i] = i < 256 || i >= 1000 ? i << 22 | ALL | PS : 0;
    directory[ADDRESS >> 22] = (word)table | ALL;
    table[0] = FRAME | ALL;
    write_cr4(read_cr4() | CR4_PSE);
    write_cr3((word)directory);
    write_cr0(read_cr0() | CR0_PG);
    for (unsigned wp = 0; wp < 2; wp++) {
        write_cr0((read_cr0() & ~CR0_WP) | (wp ? CR0_WP : 0));
        begin_group();
        permissions();
        end_group(wp ? "two levels, WP" : "two levels");
        begin_group();
        large_pages();
        end_group(wp ? "4 MiB pages, WP" : "4 MiB pages");
    }
    write_cr0(read_cr0() & ~CR0_PG);
    check(read_cr0() & CR0_PG, 0, "paging is off again");
}

static void three_levels(void)
{
    pae = true;
    for (unsigned i = 0; i < 2048; i++)
        pae_directories[i] = i < 512 || i >= 2000 ? (u64)i << 21 | ALL | PS : 0;
    for (unsigned i = 0; i < 4; i++)
        pointers[i] = (word)&pae_directories[512 * i] | P;
    pae_directories[ADDRESS >> 21] = (word)pae_table | ALL;
    pae_table[0] = FRAME | ALL;
    write_cr4(read_cr4() | CR4_PAE);
    write_cr3((word)pointers);
    write_cr0(read_cr0() | CR0_PG | CR0_WP);
    for (unsigned i = 0; i < 2; i++) {
        nxe = i;
        wrmsr(MSR_EFER, nxe ? EFER_NXE : 0);
        begin_group();
        permissions();
        end_group(nxe ? "PAE, NXE" : "PAE");
        begin_group();
        large_pages();
        end_group(nxe ? "2 MiB pages, NXE" : "2 MiB pages");
        begin_group();
        reserved_bits();
        end_group(nxe ? "PAE: reserved bits, NXE" : "PAE: reserved bits");
    }
    write_cr0(read_cr0() & ~CR0_PG);
    wrmsr(MSR_EFER, 0);
    write_cr4(read_cr4() & ~CR4_PAE);
}

int main(void)
{
    static const u8 end[] = {0xcd, 0x81};
    memcpy((void *)(FRAME + 0x10), end, sizeof(end));
    two_levels();
    three_levels();
    return 0;
}
