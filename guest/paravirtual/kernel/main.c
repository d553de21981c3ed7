/* What a paravirtual kernel finds, one line each. Layouts and numbers: public/xen.h of Xen. */
#include <stddef.h>

#include "xen.h"

#define PRESENT 1ul
#define WRITABLE 2ul
#define FRAME(entry) (((entry) & 0x000ffffffffff000ul) >> 12)

static u64 base;
static const u64 *mfn_list;

/* Pages whose mappings are changed. */
static u64 table[512] __attribute__((aligned(4096)));
static u64 window[512] __attribute__((aligned(4096)));

static void print(const char *text)
{
        u64 length = 0;
        while (text[length])
                length++;
        hypercall(18, 0, length, (u64)text, 0);
}

/* "pv: NAME NUMBER" */
static void say(const char *name, long value)
{
        char line[96], digits[24];
        size_t end = 0, count = 0;
        u64 rest = value < 0 ? -(u64)value : (u64)value;
        for (const char *from = "pv: "; *from; from++)
                line[end++] = *from;
        for (; *name; name++)
                line[end++] = *name;
        line[end++] = ' ';
        if (value < 0)
                line[end++] = '-';
        do {
                digits[count++] = "0123456789"[rest % 10];
                rest /= 10;
        } while (rest);
        while (count)
                line[end++] = digits[--count];
        line[end++] = '\n';
        line[end] = 0;
        print(line);
}

static u64 mfn_of(const void *address)
{
        return mfn_list[((u64)address - base) / PAGE];
}

/* The address of the page that has this machine frame, or of none. */
static u64 *page_of(u64 mfn, u64 pages)
{
        for (u64 pfn = 0; pfn < pages; pfn++)
                if (mfn_list[pfn] == mfn)
                        return (u64 *)(base + pfn * PAGE);
        return NULL;
}

/* The place of the entry that maps an address, through the initial tables. */
static u64 *entry_of(const struct start_info *info, const void *address)
{
        u64 *at = (u64 *)info->pt_base;
        for (int shift = 39; shift > 12; shift -= 9) {
                u64 entry = at[(u64)address >> shift & 511];
                if (!(entry & PRESENT))
                        return NULL;
                at = page_of(FRAME(entry), info->pages);
                if (!at)
                        return NULL;
        }
        return &at[(u64)address >> 12 & 511];
}

static int begins_with(const char *text, const char *start)
{
        while (*start)
                if (*text++ != *start++)
                        return 0;
        return 1;
}

static void at_the_entry(const struct start_info *info)
{
        uint16_t cs, ss, ds;
        __asm__("mov %%cs, %0; mov %%ss, %1; mov %%ds, %2" : "=r"(cs), "=r"(ss), "=r"(ds));
        say("magic", begins_with(info->magic, "xen-3.0-x86_64"));
        say("cs", cs);
        say("ss", ss);
        say("ds", ds);
        say("interrupts", entry_rflags >> 9 & 1);
        say("stack after tables", entry_rsp == info->pt_base + (info->pt_frames + 1) * PAGE);
        say("start info below tables", (u64)info < info->pt_base);
}

static void page_tables(const struct start_info *info)
{
        u64 *root = entry_of(info, (void *)info->pt_base), *own = entry_of(info, window);
        u64 writable = 0, outside = 0;
        for (u64 index = 0; index < info->pt_frames; index++)
                writable += *entry_of(info, (void *)(info->pt_base + index * PAGE)) >> 1 & 1;
        for (int slot = 272; slot < 511; slot++)
                outside += ((u64 *)info->pt_base)[slot] & PRESENT;
        say("own page writable", *own >> 1 & 1);
        say("writable tables", writable);
        say("other slots", outside);
        say("root maps itself", FRAME(*root) == mfn_of((void *)info->pt_base));
}

static void versions(void)
{
        struct { uint32_t index, map; } features = { 0, 0 };
        say("version is 4", hypercall(17, 0, 0, 0, 0) >> 16);
        say("features", hypercall(17, 6, (u64)&features, 0, 0));
        say("preserves accessed and dirty", features.map >> 5 & 1);
        say("available bits of grants", features.map >> 7 & 1);
        say("writable page tables", features.map & 1);
        features.index = 1;
        say("features of submap 1", hypercall(17, 6, (u64)&features, 0, 0));
        say("unknown hypercall", hypercall(60, 0, 0, 0, 0));
        say("unknown assist", hypercall(21, 0, 30, 0, 0));
        say("bad address", hypercall(17, 6, 0xffff800000000000ul, 0, 0));
}

static void faults(const struct start_info *info)
{
        struct trap traps[2] = { { 14, 0, 0xe033, (u64)page_fault }, { 0, 0, 0, 0 } };
        u64 *root = (u64 *)info->pt_base;
        say("set_trap_table", hypercall(0, (u64)traps, 0, 0, 0));
        say("map shared info", hypercall(14, (u64)window, info->shared_info | 3, 2, 0));
        say("write to own page", try_write(table));
        say("write to a table", try_write(root));
        say("fault's cs", fault_cs & 0xffff);
        say("fault's address", window[2] == (u64)root);
}

static void updates(const struct start_info *info)
{
        u64 *entry = entry_of(info, table), before = *entry, none = 0;
        u64 place = mfn_of((void *)((u64)entry & -PAGE)) * PAGE + ((u64)entry & (PAGE - 1));
        struct update update = { place, before & ~WRITABLE };
        struct mmuext pin = { 0, mfn_of(table), 0 }, unpin = { 4, mfn_of(table), 0 };
        u64 root = *entry_of(info, (void *)info->pt_base);
        say("pin a writable page", hypercall(26, (u64)&pin, 1, 0, 0x7ff0));
        say("map it read-only", hypercall(1, (u64)&update, 1, 0, 0x7ff0));
        say("pin it", hypercall(26, (u64)&pin, 1, 0, 0x7ff0));
        say("pin it again", hypercall(26, (u64)&pin, 1, 0, 0x7ff0));
        update.value = before;
        say("map it writable", hypercall(1, (u64)&update, 1, 0, 0x7ff0));
        say("unpin it", hypercall(26, (u64)&unpin, 1, 0, 0x7ff0));
        say("unpin it again", hypercall(26, (u64)&unpin, 1, 0, 0x7ff0));
        say("map it writable now", hypercall(1, (u64)&update, 1, 0, 0x7ff0));
        say("and write", try_write(table));
        say("map a table writable", hypercall(14, info->pt_base, root | WRITABLE, 2, 0));
        update = (struct update){ mfn_of((void *)info->pt_base) * PAGE + 256 * 8, 0 };
        say("write a slot of Xen's", hypercall(1, (u64)&update, 1, 0, 0x7ff0));
        update = (struct update){ place, ~0ul };
        say("map no frame", hypercall(1, (u64)&update, 1, 0, 0x7ff0));
        say("the entry is as it was", (*entry & ~0x60ul) == (before & ~0x60ul));
        say("clear an entry", hypercall(14, (u64)window, none, 2, 0));
        say("touch it", try_write(window));
}

void main(const struct start_info *info)
{
        uint32_t reboot = 1;
        base = 0xffffffff80000000ul;
        mfn_list = (const u64 *)info->mfn_list;
        at_the_entry(info);
        page_tables(info);
        versions();
        faults(info);
        updates(info);
        print("pv: end\n");
        hypercall(29, 2, (u64)&reboot, 0, 0);
}
