/* Numbers that an attacker would try, for the programs here that mean harm and for the kernel module of
 * the tests. Whoever includes it has declared `any`, a random number, and `chance`, one below its
 * argument. */
#ifndef ODD_H
#define ODD_H

/* A generator's next state (xorshift*). */
static inline u64 next_random(u64 *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1d;
}

/* Few bits, many bits, the edges of what there is. */
static inline u64 odd_number(void)
{
    u64 bit = 1ull << chance(64);
    switch (chance(8)) {
    case 0:
        return bit;
    case 1:
        return bit - 1;
    case 2:
        return -bit;
    case 3:
        return chance(256);
    case 4:
        return -chance(8192);
    case 5:
        return bit | chance(4096);
    default:
        return any();
    }
}

/* Model-specific registers of which something depends. */
#define ODD_MSRS                                                                                  \
    0x10, 0x1b, 0x3a, 0x3b, 0x174, 0x175, 0x176, 0x1d9, 0x277, 0x2ff, 0x6e0, 0xc0000080,          \
        0xc0000081, 0xc0000082, 0xc0000083, 0xc0000084, 0xc0000100, 0xc0000101, 0xc0000102,       \
        0xc0000103

#endif
