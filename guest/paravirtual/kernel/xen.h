/* What the kernels of this folder share: what Xen gives and takes (public/xen.h), and what start.S has. */
#include <stdint.h>

typedef uint64_t u64;

#define PAGE 4096ul

struct start_info {
        char magic[32];
        u64 pages, shared_info;
        uint32_t flags;
        u64 store_mfn;
        uint32_t store_port;
        u64 console_mfn;
        uint32_t console_port;
        u64 pt_base, pt_frames, mfn_list, mod_start, mod_len;
};

struct trap {
        uint8_t vector, flags;
        uint16_t cs;
        u64 address;
};

struct mmuext {
        uint32_t command;
        u64 first, second;
};

struct update {
        u64 pointer, value;
};

extern u64 entry_rsp, entry_rflags, fault_error, fault_cs;
void page_fault(void);

/* Write a word again, or another; the error code of the page fault, or -1 without one. */
u64 try_write(u64 *place);
u64 write_word(volatile u64 *place, u64 value);
u64 exchange_word(volatile u64 *place, u64 *value);
u64 compare_word(volatile u64 *place, u64 *expected, u64 value, u64 *flags);

static long hypercall(long number, u64 a, u64 b, u64 c, u64 d)
{
        register u64 r10 __asm__("r10") = d;
        __asm__ volatile("syscall"
                         : "+a"(number), "+D"(a), "+S"(b), "+d"(c), "+r"(r10)
                         :
                         : "rcx", "r11", "r8", "r9", "memory");
        return number;
}
