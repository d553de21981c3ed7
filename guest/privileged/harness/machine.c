/* Descriptor tables, events, and the running of snippets. */
#include "harness.h"

struct event last;
word last_cr2, last_frame;
hook hooks[256];
struct event event_log[256];
unsigned event_count;
u8 snippet_stack[16384] __attribute__((aligned(4096)));
u8 user_stack[16384] __attribute__((aligned(4096)));
u8 ring0_stack[16384] __attribute__((aligned(4096)));
u8 ist_stack[7][4096] __attribute__((aligned(4096)));
u8 page_pool[512][4096] __attribute__((aligned(4096)));
u8 boot_pic_masks[2];
static bool inside_snippet;

void enter_snippet(const struct event *start);
void leave_snippet(void) __attribute__((noreturn));

u64 descriptor(u32 base, u32 limit, unsigned attributes)
{
    return (limit & 0xffff) | (u64)(base & 0xffffff) << 16 | (u64)(attributes & 0xf0ff) << 40 |
           (u64)(limit & 0xf0000) << 32 | (u64)(base >> 24) << 56;
}

#ifdef __x86_64__
struct gate {
    u16 low, selector, attributes, middle;
    u32 high, reserved;
};
static struct gate idt[256] __attribute__((aligned(16)));
struct tss64 tss __attribute__((aligned(16)));

void set_gate(unsigned vector, word handler, unsigned selector, unsigned attributes, unsigned ist)
{
    idt[vector] =
        (struct gate){handler, selector, attributes | ist, handler >> 16, handler >> 32, 0};
}

static void set_up_tables(void)
{
    for (unsigned v = 0; v < 256; v++) {
        bool user = v == BP || v == OF || v == 0x80 || v == DONE;
        set_gate(v, (word)vector_stubs + 16 * v, KERNEL_CS, GATE_INTERRUPT | (user ? GATE_DPL3 : 0),
                 0);
    }
    tss.rsp[0] = STACK_END(ring0_stack);
    for (unsigned i = 0; i < 7; i++)
        tss.ist[i] = STACK_END(ist_stack[i]);
    tss.io_map = sizeof(tss);
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, 0x67, 0x89);
}
#else
struct gate {
    u16 low, selector, attributes, high;
};
static struct gate idt[256] __attribute__((aligned(8)));
struct tss32 tss __attribute__((aligned(128)));

void set_gate(unsigned vector, word handler, unsigned selector, unsigned attributes)
{
    idt[vector] = (struct gate){handler, selector, attributes, handler >> 16};
}

static void set_up_tables(void)
{
    for (unsigned v = 0; v < 256; v++) {
        bool user = v == BP || v == OF || v == 0x80 || v == DONE;
        set_gate(v, (word)vector_stubs + 16 * v, KERNEL_CS,
                 GATE_INTERRUPT | (user ? GATE_DPL3 : 0));
    }
    tss.esp0 = STACK_END(ring0_stack);
    tss.ss0 = KERNEL_DS;
    tss.io_map = sizeof(tss);
    gdt[TSS_SELECTOR / 8] = descriptor((word)&tss, sizeof(tss) - 1, 0x89);
}
#endif

/* What user code is started with beyond `kernel_state`. */
static word user_flags;

#ifdef __x86_64__
/* With these words on a Multiboot command line, programs start as on Linux: user code with
 * interrupts enabled, and all extended state and the instructions for segment bases switched on. */
static const char as_linux_has_it[] = "user=linux";

static bool is_wanted(const char *words)
{
    const struct {
        u32 flags, memory_lower, memory_upper, boot_device, command_line;
    } *info = (void *)boot_info;
    if (boot_kind != 1 || !(info->flags & 4))
        return false;
    for (const char *at = (char *)(word)info->command_line; *at; at++) {
        unsigned length = 0;
        while (words[length] && at[length] == words[length])
            length++;
        if (!words[length])
            return true;
    }
    return false;
}

static void set_up_user_code(void)
{
    if (!is_wanted(as_linux_has_it))
        return;
    struct cpuid states = cpuid(13, 0);
    write_cr4(read_cr4() | CR4_FSGSBASE | CR4_OSXSAVE);
    asm volatile("xsetbv" ::"a"(states.eax), "d"(states.edx), "c"(0));
    user_flags = F_IF;
}
#endif

void load_idt(void)
{
    struct {
        u16 limit;
        word base;
    } __attribute__((packed)) pointer = {sizeof(idt) - 1, (word)idt};
    asm volatile("lidt %0" ::"m"(pointer));
}

void set_up_machine(void)
{
    set_up_tables();
    load_idt();
    asm volatile("lldt %w0; ltr %w1" ::"r"(0), "r"(TSS_SELECTOR));
    boot_pic_masks[0] = in8(0x21);
    boot_pic_masks[1] = in8(0xa1);
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
#ifdef __x86_64__
    set_up_user_code();
#endif
}

void handle_event(struct event *event)
{
    hook hook = hooks[event->vector & 0xff];
    if (hook && hook(event))
        return;
    last = *event;
#ifndef __x86_64__
    if (!(event->cs & 3) && !(event->rflags & F_VM)) {
        /* Nothing but EFLAGS, CS and EIP has been pushed. */
        last.rsp = (word)&event->rsp;
        asm volatile("mov %%ss, %0" : "=r"(last.ss));
    }
#endif
    last_cr2 = read_cr2();
    last_frame = (word)event;
    if (!inside_snippet) {
        /* Not even this can be said. */
        static bool failing;
        if (failing)
            out32(0xf4, 3);
        failing = true;
        print("FAIL harness: vector %d error %x at %x, cr2 %x\n", (unsigned)event->vector,
              (word)event->error, (word)event->rip, last_cr2);
        out32(0xf4, 2);
    }
    inside_snippet = false;
    leave_snippet();
}

bool log_and_resume(struct event *event)
{
    if (event_count < sizeof(event_log) / sizeof(event_log[0]))
        event_log[event_count++] = *event;
    return true;
}

struct event kernel_state(const void *code)
{
    return (struct event){.rip = (word)code,
                          .cs = KERNEL_CS,
                          .rflags = 2,
                          .rsp = STACK_END(snippet_stack) - 1024,
                          .ss = KERNEL_DS};
}

struct event user_state(const void *code)
{
    struct event start = kernel_state(code);
    start.rip = USER(code);
    start.rsp = USER(STACK_END(user_stack) - 1024);
    start.ss = USER_DS;
    start.rflags |= user_flags;
#ifdef __x86_64__
    start.cs = USER_CS64;
#else
    start.cs = USER_CS32;
#endif
    return start;
}

#ifdef __x86_64__
struct event compat_state(const void *code)
{
    struct event start = user_state(code);
    start.cs = USER_CS32;
    return start;
}

const struct event *run_compat(const void *code, word rdi, word rsi)
{
    struct event start = compat_state(code);
    start.rdi = rdi;
    start.rsi = rsi;
    return run(&start);
}
#endif

const struct event *run(const struct event *start)
{
    inside_snippet = true;
    event_count = 0;
    enter_snippet(start);
    return &last;
}

const struct event *run_kernel(const void *code, word rdi, word rsi)
{
    struct event start = kernel_state(code);
    start.rdi = rdi;
    start.rsi = rsi;
    return run(&start);
}

const struct event *run_user(const void *code, word rdi, word rsi)
{
    struct event start = user_state(code);
    start.rdi = rdi;
    start.rsi = rsi;
    return run(&start);
}

bool has_smep(void) { return cpuid(7, 0).ebx >> 7 & 1; }
bool has_smap(void) { return cpuid(7, 0).ebx >> 20 & 1; }
bool has_umip(void) { return cpuid(7, 0).ecx >> 2 & 1; }
bool has_pcid(void) { return cpuid(1, 0).ecx >> 17 & 1; }
bool has_invpcid(void) { return cpuid(7, 0).ebx >> 10 & 1; }
bool has_1g_pages(void) { return cpuid(0x80000001, 0).edx >> 26 & 1; }
bool is_intel(void) { return cpuid(0, 0).ebx == 0x756e6547; }
bool is_tcg(void) { return cpuid(0x40000000, 0).ebx == 0x54474354; }
