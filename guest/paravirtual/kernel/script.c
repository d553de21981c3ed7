/* Carries out scripts: operations on page tables (pages.c), event channels (events.c) and grants (grants.c), and says
 * what each script has come to. Layouts and numbers: public/xen.h of Xen.
 *
 * The script file: two words {scripts, number of the own domain}; each script is two words {operations, details}, then
 * operations of four words (`struct operation`). Of each script its number and a sum are said: of all answers, and of
 * what is in memory at its end. With details, the terms of the sum are said, too. No script sees what one before has
 * left, but for the size of the grant table. */
#include "script.h"

u64 own_domain, shared_info_address;

static const struct start_info *info;
static u64 sum, details;

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

void note(const char *what, u64 value)
{
        static u64 count;
        sum = (sum ^ value) * 0x100000001b3ul;
        sum ^= sum >> 29;
        if (details)
                say(what, count++, value);
}

u64 domain_of(u64 choice)
{
        return choice % 4 == 3 ? 77 : choice % 4 == 2 ? own_domain : 0x7ff0;
}

u64 from_domain(u64 domain)
{
        return domain == own_domain ? 0x7ff0 : domain;
}

u64 mfn_of(const void *address)
{
        return ((const u64 *)info->mfn_list)[((u64)address - 0xffffffff80000000ul) / PAGE];
}

/* The page of the initial tables that has this machine frame. */
static u64 *table_of(u64 mfn)
{
        for (u64 index = 0; index < info->pt_frames; index++)
                if (mfn_of((void *)(info->pt_base + index * PAGE)) == mfn)
                        return (u64 *)(info->pt_base + index * PAGE);
        return (u64 *)info->pt_base;
}

volatile u64 *entry_of(const void *address)
{
        u64 *at = (u64 *)info->pt_base;
        for (int shift = 39; shift > 12; shift -= 9)
                at = table_of((at[(u64)address >> shift & 511] & ADDRESS) >> 12);
        return &at[(u64)address >> 12 & 511];
}

long map_page(const void *address, u64 machine_address_and_flags)
{
        return hypercall(14, (u64)address, machine_address_and_flags, 2, 0);
}

static void carry_out(const struct operation *at)
{
        if (details)
                say("kind", at->kind, at->first);
        if (at->kind >= GRANTS)
                grants_carry_out(at);
        else if (at->kind >= EVENTS)
                events_carry_out(at);
        else
                pages_carry_out(at);
}

static const u64 *run(u64 number, const u64 *script)
{
        u64 count = script[0];
        const struct operation *operations = (const struct operation *)(script + 2);
        int failures = events_reset() + grants_reset() + pages_reset();
        details = script[1];
        sum = 0;
        if (failures)
                say("not reset", number, failures);
        for (u64 index = 0; index < count; index++)
                carry_out(&operations[index]);
        events_show();
        grants_show();
        pages_show();
        details = 0;
        say("script", number, sum);
        return (const u64 *)(operations + count);
}

void main(const struct start_info *start)
{
        struct trap traps[2] = { { 14, 0, 0xe033, (u64)page_fault }, { 0, 0, 0, 0 } };
        uint32_t reboot = 1;
        const u64 *script = (const u64 *)start->mod_start;
        info = start;
        shared_info_address = start->shared_info;
        u64 count = *script++;
        own_domain = *script++;
        for (u64 frame = 0; frame < POOL; frame++)
                mfns[frame] = mfn_of(pool[frame]);
        hypercall(0, (u64)traps, 0, 0, 0);
        events_begin();
        grants_begin();
        for (u64 number = 0; number < count; number++)
                script = run(number, script);
        say("end", count, 0);
        hypercall(29, 2, (u64)&reboot, 0, 0);
}
