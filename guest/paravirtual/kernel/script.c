/* Carries out scripts of page-table operations. Layouts and numbers: public/xen.h of Xen.
 *
 * The script file: a word with the number of scripts; each script is two words {operations, details}, then operations of
 * four words {kind, frame, slot or level, value}. The frame is an index into the pool. The address in a value that is
 * present is an index into the pool, too; NO_FRAME there is the frame number with all bits set.
 *
 * The pool is mapped read-only between scripts, so that any of its frames can become a table. */
#include "xen.h"

#define POOL 40
#define NO_FRAME 0xfffful
#define ADDRESS 0x000ffffffffff000ul

enum kind { UPDATE, UPDATE_PRESERVING, PIN, UNPIN, USER_ROOT, MAP, WRITE };

struct operation { u64 kind, frame, slot, value; };

static u64 pool[POOL][512] __attribute__((aligned(4096)));
static u64 mfns[POOL];

static void say(const char *name, u64 number, u64 value)
{
        char line[80];
        u64 end = 0, words[2] = { number, value };
        for (const char *from = "xs: "; *from; from++)
                line[end++] = *from;
        while (*name)
                line[end++] = *name++;
        for (int word = 0; word < 2; word++) {
                line[end++] = ' ';
                for (int shift = 60; shift >= 0; shift -= 4)
                        line[end++] = "0123456789abcdef"[words[word] >> shift & 15];
        }
        line[end++] = '\n';
        hypercall(18, 0, end, (u64)line, 0);
}

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
        for (u64 index = 0; index < POOL; index++)
                if (mfns[index] == (value & ADDRESS) >> 12)
                        return (value & ~ADDRESS) | index << 12;
        return (value & ~ADDRESS) | NO_FRAME << 12;
}

static long extended(uint32_t command, u64 frame)
{
        struct mmuext one = { command, frame, 0 };
        return hypercall(26, (u64)&one, 1, 0, 0x7ff0);
}

static long map(u64 frame, u64 flags)
{
        return hypercall(14, (u64)pool[frame], mfns[frame] << 12 | flags, 2, 0);
}

static long carry_out(const struct operation *at)
{
        u64 frame = at->frame % POOL, slot = at->slot % 512, value = to_machine(at->value);
        struct update update = { mfns[frame] << 12 | slot << 3, value };
        switch (at->kind) {
        case UPDATE_PRESERVING:
                update.pointer |= 2; /* fall through */
        case UPDATE:
                return hypercall(1, (u64)&update, 1, 0, 0x7ff0);
        case PIN:
                return extended(at->slot & 3, mfns[frame]);
        case UNPIN:
                return extended(4, mfns[frame]);
        case USER_ROOT:
                return extended(15, at->value ? mfns[frame] : 0);
        case MAP:
                return map(frame, at->value ? 0x63 : 0x61);
        case WRITE:
                return write_word(&pool[frame][slot], value);
        }
        return -38;
}

static int reset(void)
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

static u64 hash(u64 sum, u64 word)
{
        return (sum ^ word) * 0x100000001b3ul ^ (sum >> 29);
}

static const u64 *run(u64 number, const u64 *script)
{
        u64 count = script[0], details = script[1], sum = reset();
        const struct operation *operations = (const struct operation *)(script + 2);
        if (sum)
                say("not reset", number, sum);
        for (u64 index = 0; index < count; index++) {
                u64 answer = carry_out(&operations[index]);
                sum = hash(sum, answer);
                if (details)
                        say("answer", index, answer);
        }
        for (u64 frame = 0; frame < POOL; frame++)
                for (u64 slot = 0; slot < 512; slot++) {
                        u64 word = from_machine(pool[frame][slot]);
                        if (!word)
                                continue;
                        sum = hash(hash(sum, frame << 9 | slot), word);
                        if (details)
                                say("word", frame << 9 | slot, word);
                }
        say("script", number, sum);
        return (const u64 *)(operations + count);
}

void main(const struct start_info *info)
{
        struct trap traps[2] = { { 14, 0, 0xe033, (u64)page_fault }, { 0, 0, 0, 0 } };
        uint32_t reboot = 1;
        const u64 *mfn_list = (const u64 *)info->mfn_list, *script = (const u64 *)info->mod_start;
        for (u64 frame = 0; frame < POOL; frame++)
                mfns[frame] = mfn_list[((u64)pool[frame] - 0xffffffff80000000ul) / PAGE];
        hypercall(0, (u64)traps, 0, 0, 0);
        u64 count = *script++;
        for (u64 number = 0; number < count; number++)
                script = run(number, script);
        say("end", count, 0);
        hypercall(29, 2, (u64)&reboot, 0, 0);
}
