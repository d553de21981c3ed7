/* String instructions over several pages, wherever those are: in the kernel's half, in the lower
 * half, the user's; absent, read-only, full of code (SDM 2B "REP", 3A 6.15 "page fault"). */
#include "paging.h"

SNIPPET(movs_1, "mov %rdx, %rcx; cld", "rep movsb", "");
SNIPPET(movs_2, "mov %rdx, %rcx; cld", "rep movsw", "");
SNIPPET(movs_4, "mov %rdx, %rcx; cld", "rep movsl", "");
SNIPPET(movs_8, "mov %rdx, %rcx; cld", "rep movsq", "");
SNIPPET(stos_1, "mov %rdx, %rcx; cld", "rep stosb", "");
SNIPPET(stos_2, "mov %rdx, %rcx; cld", "rep stosw", "");
SNIPPET(stos_4, "mov %rdx, %rcx; cld", "rep stosl", "");
SNIPPET(stos_8, "mov %rdx, %rcx; cld", "rep stosq", "");

static const struct {
    const char *copy, *copy_at, *fill, *fill_at;
    unsigned size;
} kinds[] = {
    {movs_1, movs_1_at, stos_1, stos_1_at, 1},
    {movs_2, movs_2_at, stos_2, stos_2_at, 2},
    {movs_4, movs_4_at, stos_4, stos_4_at, 4},
    {movs_8, movs_8_at, stos_8, stos_8_at, 8},
};

#define PAGES 6
#define FRAMES (52ul << 20)
/* The same pages in an order of their own at two places in each half. */
static const word places[] = {
    LOW_BASE + (70ul << 30), LOW_BASE + (71ul << 30) + 0x5000,
    HIGH_BASE + (70ul << 30), HIGH_BASE + (71ul << 30) + 0x5000,
};
static struct walk walks[4][PAGES];

static u8 *frame(unsigned place, unsigned page)
{
    /* Neighbours are no neighbours. */
    return (u8 *)(FRAMES + 0x1000ul * (place * 16 + page * 5 % PAGES * 2));
}

static void map_page(unsigned place, unsigned page, u64 bits)
{
    *walks[place][page].entry[1] = bits & P_P ? (word)frame(place, page) | bits : 0;
    invlpg(places[place] + 0x1000ul * page);
}

static u8 *byte_of(unsigned place, unsigned at) { return frame(place, at >> 12) + (at & 4095); }

static u8 pattern(unsigned place, unsigned at) { return at * 7 + (at >> 8) * 13 + place * 101 + 1; }

static void fill_patterns(void)
{
    for (unsigned place = 0; place < 4; place++)
        for (unsigned at = 0; at < PAGES * 4096; at++)
            *byte_of(place, at) = pattern(place, at);
}

/* The first byte of a place that is not what it is to be, PAGES * 4096 if none: `length` bytes at
 * `to` are to be those of `source` at `from` (4: bytes of `fill`), all others the pattern. */
static unsigned first_wrong(unsigned place, unsigned to, unsigned length, unsigned source,
                            unsigned from, u64 fill)
{
    for (unsigned at = 0; at < PAGES * 4096; at++) {
        u8 wanted = pattern(place, at);
        if (at - to < length)
            wanted = source < 4 ? pattern(source, at - to + from)
                                : (u8)(fill >> (at - to) % 8 * 8);
        if (*byte_of(place, at) != wanted)
            return at;
    }
    return PAGES * 4096;
}

static void start_at(const char *code, bool user, word to, word from, word count)
{
    struct event start = user ? user_state(code) : kernel_state(code);
    start.rdi = to;
    start.rsi = from;
    start.rdx = count;
    start.rax = 0x8877665544332211;
    run(&start);
}

/* All pairs of places, aligned and not. */
static void copies(bool user)
{
    static const unsigned offsets[][2] = {{0, 0}, {1, 0}, {4090, 3}, {8, 4095}, {0x1ff8, 0x11}};
    for (unsigned kind = 0; kind < 4; kind++) {
        unsigned size = kinds[kind].size, bytes = 0x2c40, count = bytes / size;
        begin_group();
        for (unsigned pair = 0; pair < 16; pair++) {
            unsigned to = pair / 4, from = pair % 4;
            if (to == from)
                continue;
            for (unsigned o = 0; o < 5; o++) {
                unsigned d = offsets[o][0], s = offsets[o][1];
                fill_patterns();
                start_at(kinds[kind].copy, user, places[to] + d, places[from] + s, count);
                check(last.vector, DONE, "copy from %d to %d ends, case %d", from, to, o);
                check(last.rcx, 0, "nothing is left");
                check(last.rdi, places[to] + d + bytes, "destination");
                check(last.rsi, places[from] + s + bytes, "source");
                check(first_wrong(to, d, bytes, from, s, 0), PAGES * 4096,
                      "what has come from %d to %d, case %d", from, to, o);
            }
        }
        for (unsigned to = 0; to < 4; to++) {
            fill_patterns();
            start_at(kinds[kind].fill, user, places[to] + 0xff8, 0, count);
            check(last.vector, DONE, "fill of %d ends", to);
            check(last.rdi, places[to] + 0xff8 + bytes, "where it ends");
            u64 value = 0x8877665544332211;
            u64 fill = size == 1 ? 0x1111111111111111 : size == 2 ? 0x2211221122112211
                       : size == 4 ? 0x4433221144332211 : value;
            check(first_wrong(to, 0xff8, bytes, 4, 0, fill), PAGES * 4096, "what is in %d", to);
        }
        end_group(user ? "long string instructions, ring 3" : "long string instructions, ring 0");
    }
}

/* A page in the middle is missing or read-only: as much is done as there can be. */
static void faults(bool user)
{
    u64 rights = user ? P_ALL : P_P | P_W;
    word bad_bit = user ? E_U : 0;
    for (unsigned kind = 0; kind < 4; kind++) {
        unsigned size = kinds[kind].size, bytes = 0x2400, count = bytes / size;
        begin_group();
        for (unsigned pair = 0; pair < 16; pair++) {
            unsigned to = pair / 4, from = pair % 4;
            if (to == from)
                continue;
            for (unsigned which = 0; which < 3; which++) {
                /* Source absent, destination absent, destination read-only. */
                unsigned place = which ? to : from;
                fill_patterns();
                map_page(place, 2, which == 2 ? rights & ~P_W : 0);
                unsigned d = 0x800, s = 0x400, done = which ? 0x1800 : 0x1c00;
                start_at(kinds[kind].copy, user, places[to] + d, places[from] + s, count);
                check_event(PF, bad_bit | (which ? E_W : 0) | (which == 2 ? E_P : 0),
                            (word)kinds[kind].copy_at + (user ? USER_ALIAS : 0),
                            "case %d, from %d to %d", which, from, to);
                check(last_cr2, places[place] + 0x2000, "where");
                check(last.rcx, count - done / size, "how much is left");
                check(last.rdi, places[to] + d + done, "destination");
                check(last.rsi, places[from] + s + done, "source");
                map_page(place, 2, rights);
                check(first_wrong(to, d, done, from, s, 0), PAGES * 4096, "what has come");
            }
        }
        end_group(user ? "faults on the way, ring 3" : "faults on the way, ring 0");
    }
}

/* An element that lies in two pages, of which the second is absent. */
static void split_element(void)
{
    for (unsigned to = 0; to < 4; to++) {
        map_page(to, 1, 0);
        start_at(movs_8, false, places[to] + 0xff4, places[(to + 1) % 4], 3);
        check(last.vector, PF, "an element in two pages faults, %d", to);
        check(last_cr2, places[to] + 0x1000, "where");
        check(last.rcx, 2, "how much is left");
        map_page(to, 1, P_P | P_W);
    }
}

/* Overlapping copies have the meaning of one element after the other. */
static void overlaps(void)
{
    for (unsigned place = 0; place < 4; place++) {
        fill_patterns();
        start_at(movs_1, false, places[place] + 0xf01, places[place] + 0xf00, 0x2000);
        unsigned wrong = 0;
        for (unsigned at = 0xf01; at < 0x2f01; at++)
            wrong += *byte_of(place, at) != pattern(place, 0xf00);
        check(wrong, 0, "a copy that fills, place %d", place);
        fill_patterns();
        start_at(movs_8, false, places[place] + 0xf00, places[place] + 0xf10, 0x400);
        wrong = 0;
        for (unsigned at = 0xf00; at < 0x2f00; at++)
            wrong += *byte_of(place, at) != pattern(place, at + 0x10);
        check(wrong, 0, "a copy downwards, place %d", place);
    }
}

SNIPPET(call_rbx, "nop", "call *%rbx", "");

/* Code in the way of a copy is forgotten. */
static void over_code(void)
{
    begin_group();
    for (unsigned place = 0; place < 4; place++) {
        for (unsigned round = 0; round < 3; round++) {
            /* mov $value, %eax; ret */
            u64 code = 0xb8 | (u64)(0x50 + round) << 8 | 0x9090c3ull << 40;
            for (unsigned i = 0; i < 8; i++) {
                *byte_of(place, 0x1100 + i) = code >> i * 8;
                *byte_of((place + 1) % 4, 0x1100 + i) = (code + 0x10000 * 0x100) >> i * 8;
            }
            struct event start = kernel_state(call_rbx);
            start.rbx = places[place] + 0x1100;
            run(&start);
            check(last.rax, 0x50 + round, "before a copy over code, place %d", place);
            start_at(movs_8, false, places[place] + 0x800, places[(place + 1) % 4] + 0x800, 0x300);
            check(last.vector, DONE, "a copy over code ends, place %d", place);
            run(&start);
            check(last.rax, 0x50 + round + 0x10000, "after a copy over code, place %d", place);
        }
    }
    end_group("copies over code");
}

/* Counts that no memory could hold, and none. */
static void counts(void)
{
    start_at(movs_1, false, places[2], places[3], 0);
    check(last.vector, DONE, "no element");
    check(last.rdi, places[2], "goes nowhere");
    for (unsigned to = 0; to < 4; to += 2) {
        start_at(stos_1, false, places[to], 0, ~0ul);
        check(last.vector, PF, "2^64 - 1 elements fault, place %d", to);
        check(last_cr2, places[to] + PAGES * 4096, "where");
        check(last.rcx, ~0ul - PAGES * 4096, "how much is left");
    }
}

int main(void)
{
    for (unsigned place = 0; place < 4; place++)
        for (unsigned page = 0; page < PAGES; page++)
            walks[place][page] = map_at(places[place] + 0x1000ul * page,
                                        (word)frame(place, page), 1, P_P | P_W);
    copies(false);
    faults(false);
    split_element();
    overlaps();
    over_code();
    counts();
    for (unsigned place = 0; place < 4; place++)
        for (unsigned page = 0; page < PAGES; page++)
            map_page(place, page, P_ALL);
    copies(true);
    faults(true);
    return 0;
}
