/* Permissions of four-level paging: every level deprived of one right in turn, in every mode, for
 * every kind of access; the error code, CR2, and the accessed and dirty bits (SDM 3A 4.6 to 4.8).
 */
#include "paging.h"

SNIPPET(load, "nop", "mov (%rdi), %al", "");
SNIPPET(store, "nop", "mov %al, (%rdi)", "");
SNIPPET(fetch, "nop", "jmp *%rdi", "");

enum { READ, WRITE, FETCH };
enum { M_WP = 1, M_SMEP = 2, M_SMAP = 4, M_AC = 8, M_NXE = 16, MODES = 32 };

static const char *const access_names[] = {"read", "write", "fetch"};
static unsigned mode;

/* Memory that is mapped: code and data apart, so that no store hits translated code. */
#define CODE_FRAME (32ul << 20)
#define DATA_FRAME (34ul << 20)

static const u64 rights[] = {P_ALL, P_ALL & ~P_P, P_ALL & ~P_W, P_ALL & ~P_U, P_ALL | P_NX};
enum { RIGHTS = 5 };

static void enter_mode(unsigned m)
{
    mode = m;
    write_cr0((read_cr0() & ~CR0_WP) | (m & M_WP ? CR0_WP : 0));
    write_cr4((read_cr4() & ~(CR4_SMEP | CR4_SMAP)) | (m & M_SMEP ? CR4_SMEP : 0) |
              (m & M_SMAP ? CR4_SMAP : 0));
    wrmsr(MSR_EFER, (rdmsr(MSR_EFER) & ~EFER_NXE) | (m & M_NXE ? EFER_NXE : 0));
}

/* The model: -1 when the access succeeds, else the error code. */
static int expected_error(const struct walk *walk, bool user, unsigned access)
{
    int error = (access == WRITE ? E_W : 0) | (user ? E_U : 0) |
                (access == FETCH && mode & (M_NXE | M_SMEP) ? E_I : 0);
    u64 all = ~0ull, any = 0;
    for (unsigned level = 4; level >= walk->leaf; level--) {
        u64 entry = *walk->entry[level];
        if (!(entry & P_P))
            return error;
        if (entry & P_NX && !(mode & M_NXE))
            return error | E_P | E_R;
        all &= entry;
        any |= entry;
    }
    bool user_page = all & P_U;
    bool refused = false;
    if (user) {
        refused = !user_page || (access == WRITE && !(all & P_W));
    } else if (access == FETCH) {
        refused = user_page && mode & M_SMEP;
    } else {
        refused = (user_page && mode & M_SMAP && !(mode & M_AC)) ||
                  (access == WRITE && !(all & P_W) && mode & M_WP);
    }
    refused |= access == FETCH && any & P_NX;
    return refused ? error | E_P : -1;
}

/* Accessed bits are set on the way to a success; nothing below an absent entry is touched; dirty
 * only in the leaf and only by a write that succeeds. */
static bool bits_are_right(const struct walk *walk, unsigned access, bool success)
{
    bool reached = true;
    for (unsigned level = 4; level >= walk->leaf; level--) {
        u64 entry = *walk->entry[level];
        bool leaf = level == walk->leaf;
        reached &= entry & P_P && !(entry & P_NX && !(mode & M_NXE));
        if (success && !(entry & P_A))
            return false;
        if (!reached && entry & P_A)
            return false;
        if (!!(entry & P_D) != (success && leaf && access == WRITE))
            return false;
    }
    return true;
}

static void try_access(const struct walk *walk, word address, bool user, unsigned access,
                       unsigned combination)
{
    const void *code[] = {load, store, fetch};
    const void *where[] = {load_at, store_at, fetch_at};
    for (unsigned level = 4; level >= walk->leaf; level--)
        *walk->entry[level] &= ~(P_A | P_D);
    invlpg(address);
    int error = expected_error(walk, user, access);
    struct event start = user ? user_state(code[access]) : kernel_state(code[access]);
    start.rdi = address;
    if (!user && mode & M_AC)
        start.rflags |= F_AC;
    run(&start);
    if (error < 0) {
        check_done("%s by user %d, rights %x, mode %x", access_names[access], user,
                   (word)combination, (word)mode);
    } else {
        word rip = access == FETCH ? address : user ? USER(where[access]) : (word)where[access];
        check_event(PF, error, rip, "%s by user %d, rights %x, mode %x", access_names[access], user,
                    (word)combination, (word)mode);
        check(last_cr2, address, "CR2 after %s by user %d, rights %x, mode %x",
              access_names[access], user, (word)combination, (word)mode);
    }
    check(bits_are_right(walk, access, error < 0), true,
          "A and D after %s by user %d, rights %x, mode %x", access_names[access], user,
          (word)combination, (word)mode);
}

/* All combinations of one missing right per level; digit L of `combination` is that of level L. */
static void try_rights(word base, unsigned leaf, unsigned access)
{
    u64 frame = access == FETCH ? CODE_FRAME : DATA_FRAME;
    word address = base + 0x40000000ul * (access == FETCH) + (leaf == 3 ? frame : 0);
    struct walk walk = map_at(address, leaf == 3 ? 0 : frame, leaf, P_ALL);
    /* All combinations in the modes that systems run in, else those with at most two rights gone.
     */
    bool is_full = mode == 0 || mode == (M_WP | M_NXE) || mode == MODES - 1;
    unsigned combinations = 1;
    for (unsigned level = 4; level >= leaf; level--)
        combinations *= RIGHTS;
    for (unsigned c = 0; c < combinations; c++) {
        unsigned rest = c, digits = 0, missing = 0;
        for (; rest; rest /= RIGHTS)
            missing += rest % RIGHTS != 0;
        if (missing > (is_full ? 4 : 2))
            continue;
        rest = c;
        for (unsigned level = 4; level >= leaf; level--, rest /= RIGHTS) {
            u64 entry = *walk.entry[level];
            *walk.entry[level] = (entry & ~(P_ALL | P_NX)) | rights[rest % RIGHTS];
            digits = digits << 4 | rest % RIGHTS;
        }
        for (unsigned user = 0; user < 2; user++)
            try_access(&walk, address + 0x10, user, access, digits);
    }
    for (unsigned level = 4; level >= leaf; level--)
        *walk.entry[level] |= P_P;
    *walk.entry[leaf] = 0;
    for (unsigned level = 4; level > leaf; level--)
        *walk.entry[level] = (*walk.entry[level] & P_FRAME) | P_ALL;
}

static void try_mode(unsigned m, word base, unsigned leaf, const char *name)
{
    begin_group();
    enter_mode(m);
    for (unsigned access = READ; access <= FETCH; access++)
        try_rights(base, leaf, access);
    enter_mode(M_WP | M_NXE);
    end_group(name);
}

/* Put the name of a mode together: "NXE, mode 17, 4 KiB pages, lower half". */
static char *append(char *to, const char *text)
{
    while (*text)
        *to++ = *text++;
    *to = 0;
    return to;
}

static void name_and_try(unsigned m, word base, unsigned leaf, const char *what)
{
    char name[64], digits[3] = {'0' + m / 10, '0' + m % 10, 0};
    char *at = append(name, m & M_NXE ? "NXE, mode " : "no NXE, mode ");
    at = append(at, digits);
    at = append(at, ", ");
    append(at, what);
    try_mode(m, base, leaf, name);
}

int main(void)
{
    static const u8 end[] = {0xcd, 0x81};
    memcpy((void *)(CODE_FRAME + 0x10), end, sizeof(end));
    unsigned available = MODES - 1;
    if (!has_smep())
        available &= ~M_SMEP;
    if (!has_smap())
        available &= ~(M_SMAP | M_AC);
    for (unsigned m = 0; m < MODES; m++) {
        if (m & ~available)
            continue;
        name_and_try(m, LOW_BASE, 1, "4 KiB pages, lower half");
        name_and_try(m, HIGH_BASE, 1, "4 KiB pages, upper half");
        name_and_try(m, HIGH_BASE + (2ul << 30), 2, "2 MiB pages");
        if (has_1g_pages())
            name_and_try(m, HIGH_BASE + (4ul << 30), 3, "1 GiB pages");
    }
    return 0;
}
