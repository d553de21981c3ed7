/* What every program is written with: snippets of assembly, the events they end in, and checks.
 *
 * A snippet is a few instructions with a label on the one that matters. `run` executes it at any
 * privilege level until an event (exception, interrupt, or `int DONE` at its end) that no hook
 * resumes; the event, with all registers, is then in `last`.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "layout.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef unsigned long word;

/* Exception vectors (SDM 3A table 6-1). */
enum { DE, DB, NMI, BP, OF, BR, UD, NM, DF, CSO, TS, NP, SS, GP, PF, MF = 16, AC, MC, XM };

/* RFLAGS, CR0, CR4, EFER. */
#define F_CF (1ul << 0)
#define F_ZF (1ul << 6)
#define F_TF (1ul << 8)
#define F_IF (1ul << 9)
#define F_DF (1ul << 10)
#define F_IOPL (3ul << 12)
#define F_NT (1ul << 14)
#define F_RF (1ul << 16)
#define F_VM (1ul << 17)
#define F_AC (1ul << 18)
#define CR0_MP (1ul << 1)
#define CR0_EM (1ul << 2)
#define CR0_TS (1ul << 3)
#define CR0_NE (1ul << 5)
#define CR0_WP (1ul << 16)
#define CR0_AM (1ul << 18)
#define CR0_PG (1ul << 31)
#define CR4_TSD (1ul << 2)
#define CR4_DE (1ul << 3)
#define CR4_PSE (1ul << 4)
#define CR4_PAE (1ul << 5)
#define CR4_PGE (1ul << 7)
#define CR4_PCE (1ul << 8)
#define CR4_OSFXSR (1ul << 9)
#define CR4_OSXMMEXCPT (1ul << 10)
#define CR4_UMIP (1ul << 11)
#define CR4_FSGSBASE (1ul << 16)
#define CR4_PCIDE (1ul << 17)
#define CR4_OSXSAVE (1ul << 18)
#define CR4_SMEP (1ul << 20)
#define CR4_SMAP (1ul << 21)
#define EFER_SCE (1ul << 0)
#define EFER_LME (1ul << 8)
#define EFER_LMA (1ul << 10)
#define EFER_NXE (1ul << 11)

/* Model-specific registers. */
#define MSR_APIC_BASE 0x1b
#define MSR_SYSENTER_CS 0x174
#define MSR_SYSENTER_ESP 0x175
#define MSR_SYSENTER_EIP 0x176
#define MSR_TSC_DEADLINE 0x6e0
#define MSR_EFER 0xc0000080
#define MSR_STAR 0xc0000081
#define MSR_LSTAR 0xc0000082
#define MSR_CSTAR 0xc0000083
#define MSR_SFMASK 0xc0000084
#define MSR_FS_BASE 0xc0000100
#define MSR_GS_BASE 0xc0000101
#define MSR_KERNEL_GS_BASE 0xc0000102

/* Registers as the vector stubs push them, and the frame of the processor above. */
struct event {
#ifdef __x86_64__
    u64 r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
    u64 vector, error, rip, cs, rflags, rsp, ss;
#else
    u32 rdi, rsi, rbp, unused, rbx, rdx, rcx, rax;
    u32 vector, error, rip, cs, rflags, rsp, ss;
#endif
};

/* The last event that ended a snippet, CR2 then, and where its frame lay. */
extern struct event last;
extern word last_cr2;
extern word last_frame;

/* A hook returns true to resume after the event, which it may change, and false to end the
 * snippet. */
typedef bool (*hook)(struct event *event);
extern hook hooks[256];

/* Events that a logging hook has seen. */
extern struct event event_log[256];
extern unsigned event_count;
bool log_and_resume(struct event *event);

/* A snippet: `NAME` starts it, `NAME_at` is the instruction that matters, `NAME_after` the next
 * one, and then it is done. Snippets must not refer to absolute addresses. */
#define SNIPPET(name, before, at, after)                                            \
    asm(".pushsection .text\n" #name ":\n" before "\n" #name "_at:\n" at "\n" #name \
        "_after:\n" after "\nint $0x81\n.popsection\n");                            \
    extern char name[], name##_at[], name##_after[]

#define SNIPPET32(name, before, at, after) \
    SNIPPET(name, ".code32\n" before, at, after "\nint $0x81\n.code64\n")

/* Addresses of a snippet or an object as user code sees it. */
#define USER(address) ((word)(address) + USER_ALIAS)

/* The state in which a snippet starts; change it before `run`. */
struct event kernel_state(const void *code);
struct event user_state(const void *code);
const struct event *run(const struct event *start);
/* The `iret` that enters a snippet: the RIP of an event when the start itself is at fault. */
extern char enter_iret[];
const struct event *run_kernel(const void *code, word rdi, word rsi);
const struct event *run_user(const void *code, word rdi, word rsi);
#ifdef __x86_64__
struct event compat_state(const void *code);
const struct event *run_compat(const void *code, word rdi, word rsi);
#endif
extern u8 snippet_stack[16384], user_stack[16384], ring0_stack[16384], ist_stack[7][4096];
#define STACK_END(stack) ((word)(stack) + sizeof(stack))

/* Checks. Each prints `ok NAME` or `FAIL NAME: expected .. got ..`. Names are formatted: %s %x %d.
 */
void check(word got, word expected, const char *name, ...);
void check_event(unsigned vector, word error, word rip, const char *name, ...);
void check_done(const char *name, ...);
void skip(const char *name, const char *why);
/* Many checks under one name: one line for all of them, and one for each that fails. */
void begin_group(void);
void end_group(const char *name);
void print(const char *format, ...);
void finish(void) __attribute__((noreturn));

/* Descriptor tables. */
struct tss64 {
    u32 reserved0;
    u64 rsp[3];
    u64 reserved1;
    u64 ist[7];
    u64 reserved2;
    u16 reserved3;
    u16 io_map;
    u8 io_bits[8193];
} __attribute__((packed));
struct tss32 {
    u32 link, esp0, ss0, esp1, ss1, esp2, ss2, cr3, eip, eflags;
    u32 eax, ecx, edx, ebx, esp, ebp, esi, edi;
    u32 es, cs, ss, ds, fs, gs, ldt;
    u16 trap, io_map;
};
extern u64 gdt[66];
void load_idt(void);
#ifdef __x86_64__
extern struct tss64 tss;
void set_gate(unsigned vector, word handler, unsigned selector, unsigned attributes, unsigned ist);
#else
extern struct tss32 tss;
void set_gate(unsigned vector, word handler, unsigned selector, unsigned attributes);
#endif
extern char vector_stubs[];
#define GATE_INTERRUPT 0x8e00
#define GATE_TRAP 0x8f00
#define GATE_CALL 0x8c00
#define GATE_DPL3 0x6000
u64 descriptor(u32 base, u32 limit, unsigned attributes);
extern u64 boot_magic, boot_info, boot_kind;
/* What the 8259s masked at the start, when the harness masked the rest. */
extern u8 boot_pic_masks[2];

/* Page tables made by the programs: memory that nobody else uses. */
extern u8 page_pool[512][4096];
#ifdef __x86_64__
extern u64 pml4[512], pdpt_low[512], pd_kernel[512], pd_user[512];
#endif

/* Instructions. */
#define REGISTER_ACCESS(name)                                        \
    static inline word read_##name(void)                             \
    {                                                                \
        word value;                                                  \
        asm volatile("mov %%" #name ", %0" : "=r"(value)::"memory"); \
        return value;                                                \
    }                                                                \
    static inline void write_##name(word value)                      \
    {                                                                \
        asm volatile("mov %0, %%" #name ::"r"(value) : "memory");    \
    }
REGISTER_ACCESS(cr0)
REGISTER_ACCESS(cr2)
REGISTER_ACCESS(cr3)
REGISTER_ACCESS(cr4)
REGISTER_ACCESS(dr0)
REGISTER_ACCESS(dr1)
REGISTER_ACCESS(dr2)
REGISTER_ACCESS(dr3)
REGISTER_ACCESS(dr6)
REGISTER_ACCESS(dr7)

static inline void out8(u16 port, u8 value)
{
    asm volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}
static inline void out32(u16 port, u32 value)
{
    asm volatile("outl %0, %1" ::"a"(value), "Nd"(port));
}
static inline u8 in8(u16 port)
{
    u8 value;
    asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static inline u64 rdmsr(u32 index)
{
    u32 low, high;
    asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(index));
    return low | (u64)high << 32;
}
static inline void wrmsr(u32 index, u64 value)
{
    asm volatile("wrmsr" ::"c"(index), "a"((u32)value), "d"((u32)(value >> 32)) : "memory");
}
static inline u64 rdtsc(void)
{
    u32 low, high;
    asm volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
    return low | (u64)high << 32;
}
static inline void invlpg(word address) { asm volatile("invlpg (%0)" ::"r"(address) : "memory"); }
static inline void flush_tlb(void) { write_cr3(read_cr3()); }

struct cpuid {
    u32 eax, ebx, ecx, edx;
};
static inline struct cpuid cpuid(u32 leaf, u32 subleaf)
{
    struct cpuid r;
    asm volatile("cpuid"
                 : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                 : "a"(leaf), "c"(subleaf));
    return r;
}
bool has_smep(void);
bool has_smap(void);
bool has_umip(void);
bool has_pcid(void);
bool has_invpcid(void);
bool has_1g_pages(void);
bool is_intel(void);
/* For what TCG would not survive; everything else belongs into tcg-deviations.txt. */
bool is_tcg(void);
void *memset(void *to, int value, size_t size);
void *memcpy(void *to, const void *from, size_t size);

#endif
