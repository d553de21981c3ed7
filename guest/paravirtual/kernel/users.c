/* What a paravirtual kernel finds on its stack when it is entered from user mode, and how it returns there: one line
 * of hexadecimal numbers for each trip. A trip is made several times: an engine may have more than one way to carry it
 * out. Layouts and numbers: public/xen.h, public/arch-x86/xen-x86_64.h, public/callback.h. */
#include <stddef.h>

#include "xen.h"

#define TIMES 4
#define THIS_DOMAIN 0x7ff0
#define USER_TEXT 0x400000ul
#define USER_STACK 0x500ff0ul
#define OWN_CODE 0x33ul
#define OWN_DATA 0x2bul
#define XEN_CODE 0xe033ul
#define XEN_DATA 0xe02bul
#define IF 0x202ul
#define ID 0x200000ul
#define STATUS 0x8d5ul
#define TF 0x100ul
#define RF 0x10000ul
#define KIND_SYSTEM_CALL 0x100ul
#define BY_SYSTEM_CALL 1

enum { RAX, R11, RCX, KIND, RIP, CS, FLAGS, RSP, SS };

extern u64 frame[9], came[17];
extern char user_page[], user_call[], user_ud[], user_int3[], user_int80[], user_load[], user_gs[], user_word[], user_steps[];
extern char kernel_ud[], kernel_iretq[], kernel_steps[], on_trap1[], on_system_call[], on_event[], on_failsafe[], on_trap3[], on_trap6[];
extern char on_trap11[], on_trap12[], on_trap13[], on_trap14[], on_trap128[];
extern char first_code[], second_code[];
void trip(void);
u64 call_first(void);

static u64 base;
static const u64 *mfn_list;

struct page { u64 words[512]; } __attribute__((aligned(4096)));
static struct page pages[5];
static u64 *const third = pages[0].words, *const second = pages[1].words, *const first = pages[2].words;
static u64 *const gdt = pages[3].words, *const info = pages[4].words;
static u64 entry_stack[64] __attribute__((aligned(64)));
static u64 kernel_word = 0x6b;
static uint32_t port;

static volatile unsigned char *mask_byte(void)
{
        return (unsigned char *)info + 1;
}

static void print(const char *text, size_t length)
{
        hypercall(18, 0, length, (u64)text, 0);
}

static void say(const char *name, const u64 *words, size_t count)
{
        char line[320];
        size_t end = 0;
        for (const char *from = "pv: "; *from; from++)
                line[end++] = *from;
        while (*name)
                line[end++] = *name++;
        for (size_t word = 0; word < count; word++) {
                int shift = 60;
                line[end++] = ' ';
                while (shift > 0 && !(words[word] >> shift))
                        shift -= 4;
                for (; shift >= 0; shift -= 4)
                        line[end++] = "0123456789abcdef"[words[word] >> shift & 15];
        }
        line[end++] = '\n';
        print(line, end);
}

static void say_one(const char *name, u64 value)
{
        say(name, &value, 1);
}

static u64 mfn_of(const void *address)
{
        return mfn_list[((u64)address - base) / PAGE];
}

static u64 user_address(const char *label)
{
        return USER_TEXT + (u64)(label - user_page);
}

/* Have one of the kernel's own pages read-only. */
static long protect(const void *page)
{
        return hypercall(14, (u64)page, mfn_of(page) << 12 | 1, 2, 0);
}

static long set_entry(u64 table_mfn, u64 index, u64 value)
{
        struct update update = { table_mfn * PAGE + index * 8, value };
        return hypercall(1, (u64)&update, 1, 0, THIS_DOMAIN);
}

static void map_users(const struct start_info *start)
{
        u64 root = mfn_of((void *)start->pt_base);
        struct mmuext user_root = { 15, root, 0 };
        long failed = 0;
        first[0] = mfn_of(user_page) << 12 | 5;
        second[USER_TEXT >> 21] = mfn_of(first) << 12 | 7;
        third[0] = mfn_of(second) << 12 | 7;
        gdt[OWN_DATA / 8] = 0x00cff3000000fffful;
        gdt[OWN_CODE / 8] = 0x00affb000000fffful;
        gdt[0x3b / 8] = 0x00af7b000000fffful;
        gdt[0x43 / 8] = 0x00cf73000000fffful;
        failed |= protect(third) | protect(second) | protect(first) | protect(gdt);
        failed |= set_entry(root, 0, mfn_of(third) << 12 | 7);
        u64 frames[1] = { mfn_of(gdt) };
        failed |= hypercall(2, (u64)frames, 512, 0, 0);
        failed |= hypercall(26, (u64)&user_root, 1, 0, THIS_DOMAIN);
        failed |= hypercall(14, (u64)info, start->shared_info | 3, 2, 0);
        say_one("users are mapped", failed);
}

static void set_callback(uint16_t kind, uint16_t flags, const char *address)
{
        struct { uint16_t kind, flags; u64 address; } callback = { kind, flags, (u64)address };
        if (hypercall(30, 0, (u64)&callback, 0, 0))
                say_one("no callback of kind", kind);
}

static void set_entries(void)
{
        struct trap traps[] = {
                { 1, 0, XEN_CODE, (u64)on_trap1 },        { 3, 3, XEN_CODE, (u64)on_trap3 },        { 6, 0, XEN_CODE, (u64)on_trap6 },
                { 11, 0, XEN_CODE, (u64)on_trap11 },      { 12, 0, XEN_CODE, (u64)on_trap12 },
                { 13, 4, XEN_CODE, (u64)on_trap13 },      { 14, 4, XEN_CODE, (u64)on_trap14 },
                { 0x80, 3, XEN_CODE, (u64)on_trap128 },   { 0, 0, 0, 0 },
        };
        struct { uint32_t vcpu, port; } ipi = { 0, 0 };
        u64 failed = hypercall(0, (u64)traps, 0, 0, 0);
        set_callback(0, 0, on_event);
        set_callback(1, 0, on_failsafe);
        set_callback(2, 1, on_system_call);
        failed |= hypercall(3, XEN_DATA, (u64)&entry_stack[62], 0, 0);
        failed |= hypercall(25, 2, (u64)&kernel_word, 0, 0);
        failed |= hypercall(25, 1, user_address(user_word), 0, 0);
        failed |= hypercall(32, 7, (u64)&ipi, 0, 0);
        port = ipi.port;
        info[2560 / 8 + port / 64] &= ~(1ul << port % 64);
        say_one("entries are set", failed);
}

static void to(u64 rip, u64 cs, u64 ss, u64 flags)
{
        u64 words[9] = { 0xa, 0x11, 0xc, 0, rip, cs, flags, USER_STACK, ss };
        for (int word = 0; word < 9; word++)
                frame[word] = words[word];
}

/* Make a trip several times, and say what was found: who was entered, RAX, flags, CS, SS, the word of GS, the mask, how
 * much of the stack was used, words of the stack; with addresses relative to where the trip led. */
static void go(const char *name, int words)
{
        u64 said[24], kind = frame[KIND], different = 0;
        for (int turn = 0; turn < TIMES; turn++) {
                u64 now[24];
                size_t count = 0;
                *mask_byte() = 1;
                frame[KIND] = kind;
                trip();
                for (int place = 0; place < 6; place++)
                        now[count++] = came[place];
                if (now[0] == BY_SYSTEM_CALL)
                        now[2] &= ~(STATUS | ID); /* Xen changes some of them. */
                now[count++] = *mask_byte();
                now[count++] = (u64)&entry_stack[62] - came[6];
                for (int word = 0; word < words; word++)
                        now[count++] = came[7 + word];
                for (size_t word = 0; word < count; word++) {
                        if (now[word] - frame[RIP] < 32)
                                now[word] = now[word] - frame[RIP] + 0xff000;
                        if (now[word] - (u64)entry_stack < sizeof(entry_stack))
                                now[word] = now[word] - (u64)entry_stack + 0xee000;
                        different |= turn > 1 && now[word] != said[word];
                        said[word] = now[word];
                }
        }
        *mask_byte() = 1;
        say(name, said, 8 + words);
        if (different)
                say_one("but not each time", different);
}

static void system_calls(void)
{
        static const u64 flags[] = { IF, IF | 0x8d5, IF | 0x400, IF | 0x40000, IF | 0x200000, IF | 0x4000, IF | 0x3000, IF | 0x10000, 2, 0x8d7 };
        u64 call = user_address(user_call);
        for (size_t index = 0; index < sizeof(flags) / sizeof(*flags); index++) {
                to(call, OWN_CODE, OWN_DATA, flags[index]);
                go("system call", 7);
        }
        to(call, XEN_CODE, XEN_DATA, IF);
        go("from xen's selectors", 7);
        to(call, XEN_CODE, OWN_DATA, IF);
        go("from mixed selectors", 7);
        to(call, OWN_CODE | 0xdead0000, OWN_DATA | 0xbeef0000, IF);
        go("with more in the selectors", 7);
        set_callback(2, 0, on_system_call);
        to(call, OWN_CODE, OWN_DATA, IF);
        go("to a callback that leaves the mask", 7);
        set_callback(2, 1, on_system_call);
        to(user_address(user_gs), OWN_CODE, OWN_DATA, IF);
        go("with the user's gs", 7);
        hypercall(3, XEN_DATA, (u64)&entry_stack[61], 0, 0);
        to(call, OWN_CODE, OWN_DATA, IF);
        go("on a stack that is not aligned", 7);
        hypercall(3, XEN_DATA, (u64)&entry_stack[62], 0, 0);
}

static void returns(void)
{
        u64 ud = user_address(user_ud);
        to(ud, OWN_CODE, OWN_DATA, IF);
        go("undefined", 7);
        to(ud, OWN_CODE, OWN_DATA, IF | 0x40000);
        go("undefined with ac", 7);
        to(ud, OWN_CODE, OWN_DATA, IF);
        frame[KIND] = KIND_SYSTEM_CALL;
        go("undefined behind a system call", 7);
        to(ud, OWN_CODE, OWN_DATA, IF | 0x40d5);
        frame[KIND] = KIND_SYSTEM_CALL;
        go("and with more flags", 7);
        to(0x800000000000ul, OWN_CODE, OWN_DATA, IF);
        frame[KIND] = KIND_SYSTEM_CALL;
        go("a bad target behind a system call", 9);
        to(user_address(user_int3), OWN_CODE, OWN_DATA, IF);
        go("int3", 7);
        to(user_address(user_int80), OWN_CODE, OWN_DATA, IF);
        go("int 0x80", 7);
        to(user_address(user_load), OWN_CODE, OWN_DATA, IF);
        go("page fault", 8);
        say_one("at", info[2]);
        to((u64)kernel_ud, XEN_CODE & ~3ul, XEN_DATA, IF);
        frame[RSP] = (u64)&entry_stack[62];
        go("undefined in the kernel", 7);
        to((u64)kernel_ud, XEN_CODE & ~3ul, XEN_DATA, 0x8d7);
        frame[RSP] = (u64)&entry_stack[62];
        go("the same with events masked", 7);
}

/* `iretq` by the kernel to itself, without the hypervisor. */
static void own_return(const char *name, u64 rip, u64 cs, u64 flags)
{
        static u64 own[5];
        u64 words[5] = { rip, cs, flags, (u64)&entry_stack[62], XEN_DATA };
        for (int word = 0; word < 5; word++)
                own[word] = words[word];
        to((u64)kernel_iretq, XEN_CODE & ~3ul, XEN_DATA, IF | 1);
        frame[RSP] = (u64)own;
        go(name, 7);
}

static void own_returns(void)
{
        static const u64 flags[] = { IF, 2, IF | 0x8d4, IF | 0x400, IF | 0x40000, IF | 0x200000, IF | 0x4000, IF | 0x3000, IF | 0x10000 };
        for (size_t index = 0; index < sizeof(flags) / sizeof(*flags); index++)
                own_return("own return", (u64)kernel_ud, XEN_CODE, flags[index]);
        own_return("with more in the selector", (u64)kernel_ud, XEN_CODE | 0xdead0000, IF);
        own_return("to another page", user_address(user_ud), XEN_CODE, IF);
}

static void bad_frames(void)
{
        u64 call = user_address(user_call);
        to(call, 0x53, OWN_DATA, IF);
        go("a bad code selector", 9);
        to(call, OWN_CODE, 0x5b, IF);
        go("a bad stack selector", 9);
        to(0x800000000000ul, OWN_CODE, OWN_DATA, IF);
        go("a bad target", 9);
        to(0x800000000000ul, XEN_CODE & ~3ul, XEN_DATA, IF);
        frame[RSP] = (u64)&entry_stack[62];
        go("a bad target in the kernel", 9);
        to(call, OWN_CODE, 0, IF);
        go("a null stack selector", 9);
        to(call, 3, OWN_DATA, IF);
        go("a null code selector", 9);
        to(call, 0x3b, OWN_DATA, IF);
        go("a code selector that is not present", 9);
        to(call, OWN_DATA, OWN_DATA, IF);
        go("data for code", 9);
        to(call, OWN_CODE, 0x43, IF);
        go("a stack selector that is not present", 9);
        to(call, OWN_CODE, OWN_CODE, IF);
        go("code for a stack", 9);
        to(call, 0x2003, OWN_DATA, IF);
        go("a code selector of no frame", 9);
}

/* Single steps, and breakpoints of instructions. */
static void steps(void)
{
        static const u64 flags[] = { IF, IF | TF, IF | RF, IF | RF | TF };
        u64 user = user_address(user_steps);
        for (size_t index = 0; index < 8; index++) {
                u64 wanted = flags[index % 4];
                if (index == 4 && (hypercall(8, 0, user, 0, 0) || hypercall(8, 7, 1, 0, 0)))
                        say_one("no breakpoint", 0);
                to(user, OWN_CODE, OWN_DATA, wanted);
                go("steps", 7);
                frame[KIND] = KIND_SYSTEM_CALL;
                go("steps behind a system call", 7);
        }
        to(user + 2, OWN_CODE, OWN_DATA, IF | TF);
        go("a step that is a system call", 7);
        for (size_t index = 0; index < 8; index++) {
                if (index == 4 && hypercall(8, 0, (u64)kernel_steps, 0, 0))
                        say_one("no breakpoint", 1);
                to((u64)kernel_steps, XEN_CODE & ~3ul, XEN_DATA, flags[index % 4]);
                frame[RSP] = (u64)&entry_stack[62];
                go("steps in the kernel", 7);
                own_return("steps behind an own return", (u64)kernel_steps, XEN_CODE, flags[index % 4]);
        }
        hypercall(8, 7, 0, 0, 0);
}

static void pend(void)
{
        struct { uint32_t port; } event = { port };
        *mask_byte() = 1;
        info[0] &= ~0xfful;
        info[1] = 0;
        info[2048 / 8 + port / 64] = 0;
        if (hypercall(32, 4, (u64)&event, 0, 0))
                say_one("no event at port", port);
}

/* An event that is pending is taken before the next instruction, if it is not masked. */
static void events(void)
{
        static const u64 targets[][4] = {
                { 0, OWN_CODE, OWN_DATA, IF }, { 0, OWN_CODE, OWN_DATA, 2 },
                { 1, XEN_CODE & ~3ul, XEN_DATA, IF }, { 1, XEN_CODE & ~3ul, XEN_DATA, 2 },
        };
        for (size_t index = 0; index < 4; index++) {
                const u64 *target = targets[index];
                u64 rip = target[0] ? (u64)kernel_ud : user_address(user_ud);
                for (int turn = 0; turn < 2; turn++) {
                        to(rip, target[1], target[2], target[3]);
                        frame[RSP] = target[0] ? (u64)&entry_stack[62] : USER_STACK;
                        pend();
                        trip();
                        u64 said[] = { came[0], came[9] - rip, came[10], came[11], *mask_byte(), info[0] & 0xff };
                        say("with an event", said, 6);
                }
        }
        pend();
        info[0] &= ~0xfful;
}

/* Code is what is mapped where it is called, from the flush on. */
static void code(void)
{
        u64 sums[3] = { 0, 0, 0 };
        const char *shown[3] = { first_code, second_code, first_code };
        for (int turn = 0; turn < 3; turn++) {
                hypercall(14, (u64)first_code, mfn_of(shown[turn]) << 12 | 1, 2, 0);
                for (int call = 0; call < 100; call++)
                        sums[turn] += call_first();
        }
        say("called", sums, 3);
}

void main(const struct start_info *start)
{
        uint32_t reboot = 1;
        base = 0xffffffff80000000ul;
        mfn_list = (const u64 *)start->mfn_list;
        map_users(start);
        set_entries();
        system_calls();
        returns();
        own_returns();
        bad_frames();
        steps();
        events();
        code();
        say_one("end", 0);
        hypercall(29, 2, (u64)&reboot, 0, 0);
}
