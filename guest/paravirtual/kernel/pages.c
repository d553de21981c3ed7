/* Operations on page tables, in a pool of frames.
 *
 * The pool is mapped read-only between scripts, so that any of its frames can become a table. In a value that is
 * present, the address is an index into the pool; NO_FRAME there is the frame number with all bits set. */
#include "script.h"

/* {frame, slot or level, value} each. */
enum kind { UPDATE, UPDATE_PRESERVING, PIN, UNPIN, USER_ROOT, MAP, WRITE, EXCHANGE, REPLACE, REPLACE_OTHER };

/* Flags that a comparison sets, and the one of them that says that both are equal. */
#define STATUS 0x8d5ul
#define EQUAL 0x40ul

/* Bits that Xen adds to entries of its own accord: U, G, and one for entries without U. */
#define OF_XEN (1ul << 2 | 1ul << 8 | 1ul << 52)

/* In roots it sets A, too. Scripts make roots of these frames only. */
#define IS_ROOT(frame) ((frame) % 8 == 6)
#define OF_XEN_IN_ROOTS (1ul << 5)

u64 pool[POOL][512] __attribute__((aligned(4096)));
u64 mfns[POOL];

static u64 to_machine(u64 value)
{
        u64 index = (value & ADDRESS) >> 12;
        if (!(value & 1))
                return value;
        if (index == NO_FRAME)
                return value | ADDRESS;
        return (value & ~ADDRESS) | mfns[index % POOL] << 12;
}

static u64 from_machine(u64 value)
{
        if (!(value & 1))
                return value;
        value &= ~OF_XEN;
        for (u64 index = 0; index < POOL; index++)
                if (mfns[index] == (value & ADDRESS) >> 12)
                        return (value & ~ADDRESS) | index << 12;
        return (value & ~ADDRESS) | (u64)NO_FRAME << 12;
}

/* A word of a frame, without what Xen adds. */
static u64 shown(u64 frame, u64 word)
{
        word = from_machine(word);
        return IS_ROOT(frame) && word & 1 ? word & ~OF_XEN_IN_ROOTS : word;
}

static long extended(uint32_t command, u64 frame)
{
        struct mmuext one = { command, frame, 0 };
        return hypercall(26, (u64)&one, 1, 0, 0x7ff0);
}

static long map(u64 frame, u64 flags)
{
        return map_page(pool[frame], mfns[frame] << 12 | flags);
}

/* Write a word by xchg, and say what was there. */
static long exchange(u64 frame, u64 slot, u64 value)
{
        u64 found = value;
        u64 answer = exchange_word(&pool[frame][slot], &found);
        note("found", shown(frame, found));
        return answer;
}

/* Write a word by cmpxchg that expects what is there, but for these bits; say what was found, and the flags. */
static long replace(u64 frame, u64 slot, u64 value, u64 other)
{
        u64 found = pool[frame][slot] ^ other, flags = 0;
        u64 answer = compare_word(&pool[frame][slot], &found, value, &flags);
        note("found", shown(frame, found));
        note("flags", flags & (other ? EQUAL : STATUS));
        return answer;
}

static long answer(const struct operation *at)
{
        u64 frame = at->first % POOL, slot = at->second % 512, value = to_machine(at->third);
        struct update update = { mfns[frame] << 12 | slot << 3, value };
        switch (at->kind) {
        case UPDATE_PRESERVING:
                update.pointer |= 2; /* fall through */
        case UPDATE:
                return hypercall(1, (u64)&update, 1, 0, 0x7ff0);
        case PIN:
                return extended(at->second & 3, mfns[frame]);
        case UNPIN:
                return extended(4, mfns[frame]);
        case USER_ROOT:
                return extended(15, at->third ? mfns[frame] : 0);
        case MAP:
                return map(frame, at->third ? 0x63 : 0x61);
        case WRITE:
                return write_word(&pool[frame][slot], value);
        case EXCHANGE:
                return exchange(frame, slot, value);
        case REPLACE:
                return replace(frame, slot, value, 0);
        case REPLACE_OTHER:
                return replace(frame, slot, value, 1ul << 9);
        }
        return -38;
}

void pages_carry_out(const struct operation *at)
{
        note("answer", answer(at));
}

int pages_reset(void)
{
        int failures = 0;
        extended(15, 0);
        for (u64 frame = 0; frame < POOL; frame++)
                map(frame, 0x61);
        for (u64 frame = 0; frame < POOL; frame++)
                extended(4, mfns[frame]);
        for (u64 frame = 0; frame < POOL; frame++) {
                failures += map(frame, 0x63) != 0;
                for (u64 slot = 0; slot < 512; slot++)
                        if (pool[frame][slot])
                                failures += write_word(&pool[frame][slot], 0) != ~0ul;
                failures += map(frame, 0x61) != 0;
        }
        return failures;
}

/* Slots 256 to 271 of a root are Xen's. */
void pages_show(void)
{
        for (u64 frame = 0; frame < POOL; frame++)
                for (u64 slot = 0; slot < 512; slot++) {
                        u64 word = pool[frame][slot];
                        if (!word || (slot >= 256 && slot < 272))
                                continue;
                        note("place", frame << 9 | slot);
                        note("word", shown(frame, word));
                }
}
