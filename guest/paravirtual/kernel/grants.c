/* Operations on grants: a domain grants pages to itself, maps them, and copies. */
#include "script.h"

enum kind {
        ENTRY = GRANTS, /* reference, flags and domain, frame and place: the kernel writes it */
        MAP, /* reference and domain, flags, address */
        UNMAP, /* handle, address, bus address */
        REPLACE, /* handle, address, other address */
        COPY, /* source, destination, length and flags */
        SETUP, /* frames, domain */
        QUERY, /* domain */
        SET_VERSION, /* version */
        GET_VERSION, /* domain */
        STATUS_FRAMES, /* frames, domain */
        SWAP, /* reference, reference */
        REMAP, /* window, frame, flags: by update_va_mapping */
        LIST, /* command, number of operations: none is there */
};

#define REFERENCES 24
#define GRANTED 4
#define WINDOWS 4
#define HANDLES 32
#define CONTAINS_PTE 16u

struct map { u64 address; uint32_t flags, reference; uint16_t domain; int16_t status; uint32_t handle; u64 bus; };
struct unmap { u64 address, bus; uint32_t handle; int16_t status; };
struct side { u64 page; uint16_t domain, offset; };
struct copy { struct side source, destination; uint16_t length, flags; int16_t status; };

static u64 table[2][512] __attribute__((aligned(4096)));
static u64 states[512] __attribute__((aligned(4096)));
static u64 granted[GRANTED][512] __attribute__((aligned(4096)));
static u64 windows[WINDOWS][512] __attribute__((aligned(4096)));

/* A page table, which nobody may write; what is in it can be compared. */
static u64 table_without_entries[512] __attribute__((aligned(4096)));

static uint32_t version = 1;

/* What is mapped; without flags nothing is. */
static struct { uint32_t handle, flags; u64 window, mfn; } mapped[HANDLES];

static long call(long command, void *argument, u64 count)
{
        return hypercall(20, command, (u64)argument, count, 0);
}

/* Not the page of shared_info: a copy into it would be an event without a callback. */
static u64 frame_of(u64 choice)
{
        switch (choice % 12) {
        case 8:
                return mfns[0];
        case 9:
                return mfn_of(table_without_entries);
        case 10:
                return 0x3fffffff;
        case 11:
                return mfn_of(windows[0]);
        }
        return mfn_of(granted[choice % GRANTED]);
}

/* What the frame of an entry is called in what is said. */
static u64 name_of(u64 mfn)
{
        for (u64 choice = 0; choice < 12; choice++)
                if (frame_of(choice) == mfn)
                        return choice;
        for (u64 window = 0; window < WINDOWS; window++)
                if (mfn_of(windows[window]) == mfn)
                        return 16 + window;
        return NO_FRAME;
}

static u64 pte_address(u64 window)
{
        volatile u64 *entry = entry_of(windows[window % WINDOWS]);
        return mfn_of((void *)((u64)entry & -PAGE)) << 12 | ((u64)entry & (PAGE - 1));
}

/* Where a grant is mapped: 0 nowhere, 1 to 8 a window, then what is wrong. */
static u64 address_of(u64 choice, uint32_t flags)
{
        u64 window = choice % WINDOWS, within = choice % 16 > 8 ? 4 : 0;
        if (choice % 16 == 0)
                return 0;
        if (choice % 16 == 15)
                return 0xffff800000001000ul;
        if (choice % 16 == 14)
                return 0x5000;
        if (flags & CONTAINS_PTE)
                return pte_address(window) + within;
        return (u64)windows[window] + within;
}

static void write_entry(const struct operation *at)
{
        u64 reference = at->first % REFERENCES;
        uint16_t *entry = (uint16_t *)((char *)table + reference * (version == 2 ? 16 : 8));
        entry[0] = 0;
        entry[1] = domain_of(at->second >> 16);
        if (version == 2) {
                entry[2] = at->third >> 16;
                entry[3] = at->third >> 32;
                *(u64 *)(entry + 4) = frame_of(at->third & 0xff);
        } else {
                *(uint32_t *)(entry + 2) = frame_of(at->third & 0xff);
        }
        entry[0] = at->second;
}

static long map(const struct operation *at)
{
        uint32_t flags = at->second;
        struct map one = { address_of(at->third, flags), flags, at->first & 0xffff,
                           domain_of(at->first >> 16), 99, 77, 0 };
        long result = call(0, &one, 1);
        note("status", (u64)one.status);
        if (one.status)
                return result;
        note("handle", one.handle);
        note("bus", name_of(one.bus >> 12));
        for (int index = 0; index < HANDLES; index++)
                if (!mapped[index].flags) {
                        mapped[index].handle = one.handle;
                        mapped[index].flags = flags;
                        mapped[index].window = at->third % WINDOWS;
                        mapped[index].mfn = one.bus >> 12;
                        break;
                }
        return result;
}

/* Forget a mapping if its handle is bad now. */
static void forget(int index)
{
        struct unmap one = { 0, 0, mapped[index].handle, 99 };
        call(1, &one, 1);
        note("left", (u64)one.status);
        if (one.status == -4)
                mapped[index].flags = 0;
}

static long unmap(const struct operation *at, int replaces)
{
        int index = at->first % HANDLES;
        uint32_t flags = mapped[index].flags, handle = flags ? mapped[index].handle : at->first;
        struct unmap one = { address_of(at->second, flags), 0, handle, 99 };
        if (replaces)
                one.bus = address_of(at->third, 0);
        else
                one.bus = at->third % 8 == 7 ? 0x1000 : at->third % 8 ? mapped[index].mfn << 12 : 0;
        long result = call(replaces ? 7 : 1, &one, 1);
        note("status", (u64)one.status);
        if (flags)
                forget(index);
        return result;
}

static struct side side_of(u64 what, int is_reference)
{
        u64 page = is_reference ? what & 0xff : frame_of(what & 0xff);
        struct side side = { page, domain_of(what >> 8), what >> 16 };
        return side;
}

static long copy(const struct operation *at)
{
        uint16_t flags = at->third >> 16;
        struct copy one = { side_of(at->first, flags & 1), side_of(at->second, flags & 2),
                            at->third, flags, 99 };
        long result = call(5, &one, 1);
        note("status", (u64)one.status);
        return result;
}

static long setup(u64 count, u64 domain)
{
        u64 frames[64];
        struct { uint16_t domain; uint32_t count; int16_t status; u64 *frames; } one =
                { domain_of(domain), count, 99, frames };
        for (int index = 0; index < 64; index++)
                frames[index] = 0;
        long result = call(2, &one, 1);
        note("status", (u64)one.status);
        for (int index = 0; index < 64; index++)
                note("frame", frames[index] != 0);
        if (result == 0 && one.status == 0)
                for (u64 index = 0; index < count && index < 2; index++)
                        map_page(table[index], frames[index] << 12 | 0x63);
        return result;
}

static long status_frames(u64 count, u64 domain)
{
        u64 frames[16];
        struct { uint32_t count; uint16_t domain; int16_t status; u64 *frames; } one =
                { count, domain_of(domain), 99, frames };
        for (int index = 0; index < 16; index++)
                frames[index] = 0;
        long result = count > 16 ? 0 : call(9, &one, 1);
        note("status", (u64)one.status);
        for (int index = 0; index < 16; index++)
                note("frame", frames[index] != 0);
        if (result == 0 && one.status == 0 && count > 0)
                map_page(states, frames[0] << 12 | 0x63);
        return result;
}

static long set_version(uint32_t wanted)
{
        struct { uint32_t version; } one = { wanted };
        /* A mapping of the frames that go away would hold them. */
        map_page(states, mfn_of(states) << 12 | 0x63);
        long result = call(8, &one, 0);
        note("version", one.version);
        version = one.version;
        return result;
}

static long get(long command, u64 domain)
{
        struct { uint16_t domain; uint32_t first, second; int16_t status; } one =
                { domain_of(domain), 55, 0, 99 };
        long result = call(command, &one, 1);
        note("first", one.first);
        note("second", one.second);
        note("status", (u64)one.status);
        return result;
}

static long swap(uint32_t first, uint32_t second)
{
        struct { uint32_t first, second; int16_t status; } one = { first, second, 99 };
        long result = call(11, &one, 1);
        note("status", (u64)one.status);
        return result;
}

static long answer(const struct operation *at)
{
        struct map none = { 0, 0, 0, 0, 0, 0, 0 };
        switch (at->kind) {
        case ENTRY:
                write_entry(at);
                return 0;
        case MAP:
                return map(at);
        case UNMAP:
                return unmap(at, 0);
        case REPLACE:
                return unmap(at, 1);
        case COPY:
                return copy(at);
        case SETUP:
                return setup(at->first, at->second);
        case QUERY:
                return get(6, at->first);
        case SET_VERSION:
                return set_version(at->first);
        case GET_VERSION:
                return get(10, at->first);
        case STATUS_FRAMES:
                return status_frames(at->first, at->second);
        case SWAP:
                return swap(at->first, at->second);
        case REMAP:
                return map_page(windows[at->first % WINDOWS],
                                frame_of(at->second) << 12 | (at->third & 3));
        case LIST:
                return call(at->first, &none, at->second);
        }
        return -38;
}

void grants_carry_out(const struct operation *at)
{
        note("answer", answer(at));
}

void grants_begin(void)
{
        struct mmuext pin = { 0, mfn_of(table_without_entries), 0 };
        map_page(table_without_entries, mfn_of(table_without_entries) << 12 | 0x61);
        hypercall(26, (u64)&pin, 1, 0, 0x7ff0);
        setup(1, 0);
}

/* Whatever has become of the entries that a mapping made, it can be unmapped through one that is like it. */
static int end_mapping(int index)
{
        u64 window = mapped[index].window, mfn = mapped[index].mfn;
        uint32_t flags = mapped[index].flags;
        for (int turn = 0; turn < 3; turn++) {
                struct unmap one = { 0, mfn << 12, mapped[index].handle, 99 };
                if (flags & 2) {
                        map_page(windows[window], mfn << 12 | (flags & 4 ? 0x61 : 0x63));
                        one.address = flags & CONTAINS_PTE ? pte_address(window) : (u64)windows[window];
                }
                call(1, &one, 1);
                if (one.status == -4)
                        return 0;
        }
        return 1;
}

int grants_reset(void)
{
        int failures = 0;
        for (int index = 0; index < HANDLES; index++) {
                if (mapped[index].flags)
                        failures += end_mapping(index);
                mapped[index].flags = 0;
        }
        for (u64 window = 0; window < WINDOWS; window++)
                failures += map_page(windows[window], mfn_of(windows[window]) << 12 | 0x63) != 0;
        for (u64 word = 0; word < 512; word++) {
                table[0][word] = 0;
                for (u64 page = 0; page < GRANTED; page++)
                        granted[page][word] = page << 32 | word;
        }
        failures += version != 1 && set_version(1) != 0;
        return failures;
}

void grants_show(void)
{
        for (u64 index = 0; index < WINDOWS; index++) {
                u64 entry = *entry_of(windows[index]) & ~(1ul << 2 | 1ul << 8 | 1ul << 52);
                note("window", (entry & ~ADDRESS) | name_of((entry & ADDRESS) >> 12) << 12);
        }
        for (u64 reference = 0; reference < REFERENCES; reference++) {
                uint16_t *entry = (uint16_t *)((char *)table + reference * (version == 2 ? 16 : 8));
                note("entry", entry[0] ? (u64)entry[0] << 16 | from_domain(entry[1]) : 0);
                note("of frame", name_of(version == 2 ? *(u64 *)(entry + 4) : *(uint32_t *)(entry + 2)));
                note("state", version == 2 ? ((uint16_t *)states)[reference] : 0);
        }
        for (u64 page = 0; page < GRANTED; page++) {
                u64 mixed = 0;
                for (u64 word = 0; word < 512; word++)
                        mixed = (mixed ^ granted[page][word]) * 0x100000001b3ul;
                note("content", mixed);
        }
}
