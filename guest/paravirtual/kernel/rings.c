/* What the hostile kernel shares with back-ends and the hypervisor's services: grants, FIFOs of events, the store,
 * a disk's ring. Each is set up as a kernel does it, then used in ways that are mostly right. */
#include "hostile.h"

#define GRANT_PAGES 4
#define HEADER 64
#define REQUEST 112

static u64 grants[GRANT_PAGES][512] __attribute__((aligned(4096)));
static u64 fifo_control[512] __attribute__((aligned(4096)));
static u64 fifo_words[512] __attribute__((aligned(4096)));
static u64 disk_ring[512] __attribute__((aligned(4096)));
static u64 segments[512] __attribute__((aligned(4096)));
static uint32_t disk_port;
static volatile char *store_page;

static void grant(u64 reference, u64 mfn, uint16_t flags)
{
        volatile uint16_t *at = (uint16_t *)grants + reference * 4;
        at[1] = !any(32) ? (uint16_t)anything() : reference < 16 ? 0 : any(2);
        *(volatile uint32_t *)&at[2] = mfn;
        at[0] = flags;
}

static void notify(uint32_t port)
{
        hypercall(32, 4, (u64)&port, 0, 0);
}

/* A message on the store's ring: a path, a zero, and a value. Indices are at 2048: requests' consumer and producer,
 * and the same of answers. */
static void tell_store(uint32_t type, const char *path, const char *value)
{
        volatile char *page = store_page;
        volatile uint32_t *indices = (volatile uint32_t *)(page + 2048);
        uint32_t header[4] = { type, 7, any(16) ? 0 : (uint32_t)anything(), 1 }, at = indices[1];
        for (const char *from = path; *from; from++)
                header[3]++;
        for (const char *from = value; *from; from++)
                header[3]++;
        for (u64 byte = 0; byte < sizeof header; byte++)
                page[at++ & 1023] = ((char *)header)[byte];
        for (const char *from = path; *from; from++)
                page[at++ & 1023] = *from;
        page[at++ & 1023] = 0;
        for (const char *from = value; *from; from++)
                page[at++ & 1023] = *from;
        indices[1] = at;
        indices[2] = indices[3];
        notify(info->store_port);
}

static void decimal(char *to, u64 value)
{
        char digits[24];
        int count = 0;
        do
                digits[count++] = "0123456789"[value % 10];
        while (value /= 10);
        while (count)
                *to++ = digits[--count];
        *to = 0;
}

static void begin_grants(void)
{
        u64 frames[GRANT_PAGES];
        struct { uint16_t domain; uint32_t count; int16_t status; u64 frames; } setup = { 0x7ff0, GRANT_PAGES, 0, (u64)frames };
        if (hypercall(20, 2, (u64)&setup, 1, 0) || setup.status)
                return;
        for (int page = 0; page < GRANT_PAGES; page++) {
                hypercall(14, (u64)grants[page], frames[page] << 12 | 3, 2, 0);
                add_surface(grants[page]);
        }
        for (int index = 0; index < POOL; index++)
                grant(16 + index, mfn_of(pool[index]), 1 | any(2) * 4);
        grant(8, mfn_of(disk_ring), 1);
        grant(9, mfn_of(segments), 1);
}

static void begin_fifo(void)
{
        struct { u64 control; uint32_t offset, vcpu; uint8_t bits; } init = { mfn_of(fifo_control), 0, 0, 0 };
        struct { u64 array; } expand = { mfn_of(fifo_words) };
        if (any(2) || hypercall(32, 11, (u64)&init, 0, 0))
                return;
        hypercall(32, 12, (u64)&expand, 0, 0);
        add_surface(fifo_control);
        add_surface(fifo_words);
}

static void begin_disk(void)
{
        struct { uint16_t domain, other; uint32_t port; } unbound = { 0x7ff0, 0, 0 };
        char number[24];
        if (hypercall(32, 6, (u64)&unbound, 0, 0))
                return;
        disk_port = unbound.port;
        ((volatile uint32_t *)disk_ring)[1] = 1;
        ((volatile uint32_t *)disk_ring)[3] = 1;
        tell_store(11, "device/vbd/51712/ring-ref", "8");
        decimal(number, disk_port);
        tell_store(11, "device/vbd/51712/event-channel", number);
        tell_store(11, "device/vbd/51712/state", "3");
        tell_store(11, "device/vbd/51712/state", "4");
        add_surface(disk_ring);
        add_surface(segments);
}

void rings_begin(void)
{
        store_page = (volatile char *)page_of(info->store_mfn);
        begin_grants();
        begin_fifo();
        begin_disk();
}

/* One request of a disk's (struct blkif_request), or of an indirect one. */
static void disk_request(void)
{
        volatile uint32_t *indices = (volatile uint32_t *)disk_ring;
        volatile uint8_t *at = (volatile uint8_t *)disk_ring + HEADER + indices[0] % 32 * REQUEST;
        uint8_t operation = any(8) ? (uint8_t[]){ 0, 1, 2, 3, 5, 6 }[any(6)] : any(256);
        at[0] = operation;
        at[1] = any(8) ? any(12) : any(256);
        *(volatile u64 *)(at + 8) = any(64);
        *(volatile u64 *)(at + 16) = any(8) ? any(2048) : anything();
        for (int segment = 0; segment < 11; segment++) {
                volatile uint8_t *one = at + 24 + 8 * segment;
                *(volatile uint32_t *)one = any(8) ? 16 + any(POOL) : (uint32_t)anything();
                one[4] = any(8) ? any(4) : any(256);
                one[5] = any(8) ? 4 + any(4) : any(256);
        }
        if (operation == 6) {
                at[1] = any(8) ? any(2) : any(256);
                *(volatile uint16_t *)(at + 2) = any(8) ? any(64) : any(1 << 16);
                *(volatile uint32_t *)(at + 32) = any(8) ? 9 : (uint32_t)anything();
        }
        indices[0] += any(16) ? 1 : any(100);
        if (any(8))
                notify(disk_port);
}

static void store_message(void)
{
        static const char *const paths[] = {
                "device/vbd/51712/state", "device/vbd/51712/ring-ref", "device/vbd/51712/event-channel", "device",
                "/", "", "control/shutdown", "memory/target", "data/one", "data/two", "/local/domain/0/backend/vbd/1/51712/state",
                "device/console/1/state", "data/@releaseDomain", "@introduceDomain", "device/vbd/51712", "//", "data/one/two/three",
        };
        static const char *const values[] = { "1", "2", "3", "4", "5", "6", "8", "", "token", "4294967295", "-1", "n1" };
        u64 path = any(sizeof(paths) / sizeof(*paths)), value = any(sizeof(values) / sizeof(*values));
        tell_store(any(8) ? 1 + any(22) : (uint32_t)anything(), paths[path], values[value]);
}

static void event(void)
{
        uint32_t words[6] = { 0 };
        for (int word = 0; word < 6; word++)
                words[word] = any(4) ? any(12) : (uint32_t)anything();
        if (any(2))
                words[0] = 0x7ff0;
        hypercall(32, any(8) ? any(14) : anything(), (u64)words, 0, 0);
}

/* Maps what it has granted to itself, at an address or by an entry of a table, gives it up, and copies (struct
 * gnttab_map_grant_ref, gnttab_unmap_grant_ref, gnttab_copy). Handles and references are small numbers. */
static void use_grants(void)
{
        u64 words[8] = { 0 };
        uint32_t *halves = (uint32_t *)words;
        u64 page = any(POOL), command = any(8) ? (u64) "\0\0\1\5"[any(4)] : any(16);
        u64 entry = mfn_of(pool[any(POOL)]) << 12 | any(512) << 3;
        words[0] = any(16) ? any(4) ? (u64)pool[page] : entry : anything();
        switch (command) {
        case 0:
                halves[2] = any(8) ? 2 + any(2) * 4 + (words[0] == entry) * 16 : (uint32_t)anything();
                halves[3] = any(8) ? 16 + any(POOL) : (uint32_t)anything();
                halves[4] = any(16) ? 1 : any(3);
                break;
        case 1:
                halves[4] = any(8) ? any(16) : (uint32_t)anything();
                break;
        default:
                for (int side = 0; side < 2; side++) {
                        u64 *at = words + 2 * side;
                        at[0] = any(2) ? 16 + any(POOL) : own_frame();
                        at[1] = (any(16) ? 0x7ff0 : any(3)) | any(4096) << 16;
                }
                halves[8] = any(4096) | any(4) << 16;
        }
        hypercall(20, command, (u64)words, any(16) ? 1 : any(4), 0);
        if (any(2))
                grant(16 + page, mfn_of(pool[page]), 1 | any(2) * 4);
}

void ring_turn(void)
{
        static const uint16_t flags[] = { 0, 1, 5, 2, 3, 9, 0x19, 0x8001 };
        switch (any(6)) {
        case 0:
        case 1:
                return disk_request();
        case 4:
                return use_grants();
        case 2:
                return store_message();
        case 3:
                return event();
        default:
                grant(any(8) ? 8 + any(POOL + 8) : any(2048), own_frame(), flags[any(8)]);
        }
}
