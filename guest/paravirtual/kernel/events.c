/* Operations on event channels, those of a kernel that takes its events, and of one that writes what it likes. */
#include "script.h"

enum kind {
        ALLOC_UNBOUND = EVENTS, /* domain, other domain */
        BIND_INTERDOMAIN, /* other domain, port */
        BIND_VIRQ, /* interrupt, vCPU */
        BIND_IPI, /* vCPU */
        CLOSE, /* port */
        SEND, /* port */
        STATUS, /* domain, port */
        BIND_VCPU, /* port, vCPU */
        UNMASK, /* port */
        RESET, /* domain */
        INIT_CONTROL, /* frame, offset, vCPU */
        EXPAND_ARRAY, /* frame */
        SET_PRIORITY, /* port, priority */
        MASK, /* port: by the kernel itself */
        TAKE, /* all events that are pending, as a kernel does */
        SCRIBBLE, /* port, word: of a FIFO's event */
        SCRIBBLE_CONTROL, /* index, word: of a FIFO's control block */
        POLL, /* port: without waiting for long */
};

#define PORTS 64
#define FIFO_PAGES 3
#define PENDING_BIT 31
#define MASKED_BIT 30
#define LINKED_BIT 29
#define LINK_MASK 0x1ffffu

struct shared_info {
        struct { uint8_t pending, mask; u64 selector, cr2, time[4]; } vcpus[32];
        volatile u64 pending[64], mask[64];
};

static struct shared_info shared __attribute__((aligned(4096)));

/* The pages that FIFOs are made from: the first for control blocks. */
static uint32_t fifo[1 + FIFO_PAGES][1024] __attribute__((aligned(4096)));
static uint32_t heads[16];
static u64 control_offset, arrays;
static uint32_t *array[FIFO_PAGES];
static int is_fifo;

static long call(long command, void *argument)
{
        return hypercall(32, command, (u64)argument, 0, 0);
}

static u64 frame_of(u64 choice)
{
        if (choice % 8 < 1 + FIFO_PAGES)
                return mfn_of(fifo[choice % 8]);
        return choice % 8 == 4 ? mfns[0] : choice % 8 == 5 ? 0xfffffffffful : 0x3fffffful;
}

/* The word of a port, if the page for it is there. */
static volatile uint32_t *word_of(u64 port)
{
        return port / 1024 < arrays ? &array[port / 1024][port % 1024] : 0;
}

static void take_fifo_queue(int queue)
{
        volatile uint32_t *control = (uint32_t *)((char *)fifo[0] + control_offset);
        for (int turn = 0; turn < PORTS; turn++) {
                if (!heads[queue])
                        heads[queue] = control[2 + queue];
                uint32_t head = heads[queue];
                volatile uint32_t *word = word_of(head);
                if (!word)
                        return;
                uint32_t old = *word;
                *word = old & ~(1u << LINKED_BIT | LINK_MASK);
                heads[queue] = old & LINK_MASK;
                if (!(old & LINK_MASK))
                        __atomic_fetch_and(control, ~(1u << queue), __ATOMIC_SEQ_CST);
                note("event", (u64)head << 32 | old);
                if (old >> PENDING_BIT & 1 && !(old >> MASKED_BIT & 1))
                        __atomic_fetch_and(word, ~(1u << PENDING_BIT), __ATOMIC_SEQ_CST);
                if (!(old & LINK_MASK))
                        return;
        }
}

static void take(void)
{
        note("upcall", shared.vcpus[0].pending);
        shared.vcpus[0].pending = 0;
        if (is_fifo) {
                volatile uint32_t *control = (uint32_t *)((char *)fifo[0] + control_offset);
                uint32_t ready = *control;
                note("ready", ready);
                for (int queue = 0; queue < 16; queue++)
                        if (ready >> queue & 1)
                                take_fifo_queue(queue);
                return;
        }
        u64 selected = shared.vcpus[0].selector;
        shared.vcpus[0].selector = 0;
        note("selected", selected);
        for (int word = 0; word < 64; word++)
                if (selected >> word & 1) {
                        u64 found = shared.pending[word] & ~shared.mask[word];
                        note("events", found);
                        shared.pending[word] &= ~found;
                }
}

static void mask(u64 port)
{
        volatile uint32_t *word = word_of(port);
        if (is_fifo && word)
                __atomic_fetch_or(word, 1u << MASKED_BIT, __ATOMIC_SEQ_CST);
        else
                shared.mask[port / 64] |= 1ul << port % 64;
}

static long init_control(const struct operation *at)
{
        struct { u64 frame; uint32_t offset, vcpu; uint8_t bits, padding[7]; } wanted =
                { frame_of(at->first % 16 < 12 ? 0 : at->first), at->second, at->third, 0, { 0 } };
        long result = call(11, &wanted);
        note("link bits", wanted.bits);
        if (result == 0) {
                is_fifo = 1;
                control_offset = at->second;
        }
        return result;
}

static long expand_array(u64 choice)
{
        u64 frame = frame_of(choice);
        long result = call(12, &frame);
        if (result == 0 && arrays < FIFO_PAGES)
                array[arrays++] = fifo[choice % 8];
        return result;
}

static long status(u64 domain, u64 port)
{
        struct { uint16_t domain; uint32_t port, status, vcpu, first, second; } asked =
                { domain_of(domain), port, 0, 0, 0, 0 };
        long result = call(5, &asked);
        if (result)
                return result;
        note("status", (u64)asked.status << 32 | asked.vcpu);
        if (asked.status == 1 || asked.status == 2)
                note("other domain", from_domain(asked.first & 0xffff));
        if (asked.status == 2)
                note("other port", asked.second);
        if (asked.status == 4)
                note("interrupt", asked.first);
        return result;
}

static long poll(u64 port)
{
        uint32_t number = port;
        struct { uint32_t *ports; uint32_t count; u64 timeout; } polled = { &number, 1, 1 };
        return hypercall(29, 3, (u64)&polled, 0, 0);
}

static long bind(long command, uint32_t a, uint32_t b)
{
        uint32_t wanted[3] = { a, b, 0 };
        long result = call(command, wanted);
        if (result == 0)
                note("port", wanted[command == 7 ? 1 : 2]);
        return result;
}

static long answer(const struct operation *at)
{
        uint32_t words[2] = { at->first, at->second };
        uint16_t domain = domain_of(at->first);
        struct { uint16_t domain, other; uint32_t port; } unbound =
                { domain, domain_of(at->second), 0 };
        long result;
        switch (at->kind) {
        case ALLOC_UNBOUND:
                result = call(6, &unbound);
                if (result == 0)
                        note("port", unbound.port);
                return result;
        case BIND_INTERDOMAIN:
                return bind(0, domain, at->second);
        case BIND_VIRQ:
                return bind(1, at->first, at->second);
        case BIND_IPI:
                return bind(7, at->first, 0);
        case CLOSE:
                return call(3, words);
        case SEND:
                return call(4, words);
        case STATUS:
                return status(at->first, at->second);
        case BIND_VCPU:
                return call(8, words);
        case UNMASK:
                return call(9, words);
        case RESET:
                result = call(10, &domain);
                if (result == 0)
                        is_fifo = arrays = 0;
                return result;
        case INIT_CONTROL:
                return init_control(at);
        case EXPAND_ARRAY:
                return expand_array(at->first);
        case SET_PRIORITY:
                return call(13, words);
        case MASK:
                mask(at->first % PORTS);
                return 0;
        case TAKE:
                take();
                return 0;
        case SCRIBBLE:
                fifo[1][at->first % PORTS] = at->second;
                return 0;
        case SCRIBBLE_CONTROL:
                fifo[0][at->first % 32] = at->second;
                return 0;
        case POLL:
                return poll(at->first);
        }
        return -38;
}

void events_carry_out(const struct operation *at)
{
        note("answer", answer(at));
}

void events_begin(void)
{
        map_page(&shared, shared_info_address | 3);
        /* No timer of the vCPU's raises anything. */
        hypercall(24, 7, 0, 0, 0);
}

int events_reset(void)
{
        uint16_t self = 0x7ff0;
        int failures = call(10, &self) != 0;
        is_fifo = arrays = 0;
        for (u64 index = 0; index < sizeof fifo / 4; index++)
                fifo[0][index] = 0;
        for (int queue = 0; queue < 16; queue++)
                heads[queue] = 0;
        for (int word = 0; word < 64; word++)
                shared.pending[word] = shared.mask[word] = 0;
        shared.vcpus[0].pending = 0;
        shared.vcpus[0].mask = 1;
        shared.vcpus[0].selector = 0;
        return failures;
}

void events_show(void)
{
        note("upcall", shared.vcpus[0].pending);
        note("masked", shared.vcpus[0].mask);
        note("selector", shared.vcpus[0].selector);
        for (int word = 0; word < 64; word++)
                if (shared.pending[word] | shared.mask[word]) {
                        note("pending", shared.pending[word]);
                        note("mask", shared.mask[word]);
                }
        for (u64 index = 0; index < sizeof fifo / 4; index++)
                if (fifo[0][index])
                        note("word of a FIFO", index << 32 | fifo[0][index]);
}
