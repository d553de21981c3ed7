/* Address spaces changed at random and used at random, against a model: frames that hold data and
 * code, pages with random rights, flushes of every kind, two spaces, stores through aliases. */
#include "paging.h"

SNIPPET(load, "nop", "mov (%rdi), %eax", "");
SNIPPET(store, "mov %rsi, %rax", "mov %eax, (%rdi)", "");
SNIPPET(call_it, "nop", "call *%rdi", "");

enum { PAGES = 24, FRAMES = 10, SPACES = 2, STEPS = 6000, SEEDS = 3 };
#define FRAME(n) ((60ul << 20) + (n)*4096ul)
#define LOW_PAGES (LOW_BASE + (80ul << 30))
#define HIGH_PAGES (HIGH_BASE + (80ul << 30))
/* In every frame: a function that returns its number, and a word. */
#define CODE_OFFSET 0x40
#define DATA_OFFSET 0x800

static u32 state;
static u64 *spaces[SPACES], *entries[SPACES][PAGES];
static u64 model[SPACES][PAGES];
static u32 words[FRAMES], functions[FRAMES];
static unsigned current;

static u32 random(u32 below)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % below;
}

static word address_of(unsigned page)
{
    /* Half of the pages in each half, some of them in tables of their own. */
    word base = page & 1 ? HIGH_PAGES : LOW_PAGES;
    return base + (page >> 1) * 4096ul + (page & 4 ? 1ul << 21 : 0) + (page & 8 ? 1ul << 30 : 0);
}

static unsigned frame_of(u64 entry) { return ((entry & P_FRAME) - FRAME(0)) / 4096; }

static void put_function(unsigned frame, word view, u32 value)
{
    /* mov $value, %eax; ret */
    volatile u8 *code = (u8 *)(view + CODE_OFFSET);
    code[0] = 0xb8;
    *(volatile u32 *)(code + 1) = value;
    code[5] = 0xc3;
    functions[frame] = value;
}

static void switch_to(unsigned space)
{
    write_cr3((word)spaces[space]);
    current = space;
}

static void build(void)
{
    for (unsigned s = 0; s < SPACES; s++) {
        u64 *top = new_table();
        memcpy(top, pml4, 4096);
        u64 kept_low = pml4[LOW_PAGES >> 39 & 511], kept_high = pml4[HIGH_PAGES >> 39 & 511];
        pml4[LOW_PAGES >> 39 & 511] = pml4[HIGH_PAGES >> 39 & 511] = 0;
        for (unsigned p = 0; p < PAGES; p++) {
            struct walk walk = map_at(address_of(p), FRAME(0), 1, P_ALL);
            entries[s][p] = walk.entry[1];
            *entries[s][p] = model[s][p] = 0;
        }
        top[LOW_PAGES >> 39 & 511] = pml4[LOW_PAGES >> 39 & 511];
        top[HIGH_PAGES >> 39 & 511] = pml4[HIGH_PAGES >> 39 & 511];
        pml4[LOW_PAGES >> 39 & 511] = kept_low;
        pml4[HIGH_PAGES >> 39 & 511] = kept_high;
        spaces[s] = top;
    }
    for (unsigned f = 0; f < FRAMES; f++) {
        words[f] = *(volatile u32 *)(FRAME(f) + DATA_OFFSET) = 1000 + f;
        put_function(f, FRAME(f), 2000 + f);
    }
    switch_to(0);
}

/* Change a page of the current space, or of the other one, and flush as that needs. */
static void change(void)
{
    unsigned space = random(4) ? current : random(SPACES), page = random(PAGES);
    static const u64 rights[] = {P_ALL, P_ALL, P_P, P_P | P_W, P_P | P_U, P_ALL | P_NX, 0};
    u64 entry = FRAME(random(FRAMES)) | rights[random(7)];
    *(volatile u64 *)entries[space][page] = model[space][page] = entry;
    if (space != current)
        return; /* mov cr3 comes before its next use */
    if (random(4)) {
        invlpg(address_of(page));
    } else if (random(2)) {
        switch_to(current);
    } else {
        write_cr4(read_cr4() ^ CR4_PGE);
    }
}

static void use(void)
{
    unsigned page = random(PAGES), kind = random(3);
    bool user = random(2);
    u64 entry = model[current][page];
    word address = address_of(page) + (kind == 2 ? CODE_OFFSET : DATA_OFFSET);
    u32 value = random(1000000);
    const void *code = kind == 0 ? load : kind == 1 ? store : call_it;
    user ? run_user(code, address, value) : run_kernel(code, address, value);
    bool good = entry & P_P && !(user && !(entry & P_U)) && !(kind == 1 && !(entry & P_W)) &&
                !(kind == 2 && entry & P_NX);
    unsigned error =
        (entry & P_P ? E_P : 0) | (kind == 1 ? E_W : 0) | (user ? E_U : 0) | (kind == 2 ? E_I : 0);
    if (!good) {
        check(last.vector << 8 | last.error, PF << 8 | error, "page %d, kind %d, user %d", page,
              kind, user);
        check(last_cr2, address, "CR2: page %d, kind %d, user %d", page, kind, user);
        return;
    }
    check(last.vector, DONE, "page %d, kind %d, user %d, CR2 %x", page, kind, user, last_cr2);
    unsigned frame = frame_of(entry);
    if (kind == 1)
        words[frame] = value;
    else
        check(last.rax, kind == 0 ? words[frame] : functions[frame], "page %d, kind %d, user %d",
              page, kind, user);
    check(*(volatile u32 *)(FRAME(frame) + DATA_OFFSET), words[frame], "word of frame %d", frame);
}

/* Write a function, through physical memory, the user's alias, or a page that may be written. */
static void rewrite(void)
{
    unsigned page = random(PAGES);
    u64 entry = model[current][page];
    if ((entry & (P_P | P_W)) == (P_P | P_W)) {
        put_function(frame_of(entry), address_of(page), random(1000000));
        return;
    }
    unsigned frame = random(FRAMES);
    put_function(frame, FRAME(frame) + (random(2) ? USER_ALIAS : DIRECT_ALIAS), random(1000000));
}

int main(void)
{
    static const char *const names[SEEDS] = {"seed 1", "seed 2", "seed 3"};
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        state = 0x2545f491 + seed;
        build();
        begin_group();
        for (unsigned step = 0; step < STEPS; step++) {
            unsigned what = random(16);
            if (what == 0)
                switch_to(random(SPACES));
            else if (what < 5)
                change();
            else if (what < 7)
                rewrite();
            else
                use();
        }
        write_cr3((word)pml4);
        end_group(names[seed]);
    }
    return 0;
}
