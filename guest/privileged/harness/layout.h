/* Numbers that assembly and C share. */
#ifndef LAYOUT_H
#define LAYOUT_H

/* Selectors, in the order that syscall, sysret, sysenter and sysexit ask for; in 64-bit mode those
 * that Linux has. */
#if defined(__i386__)
#define KERNEL_CS 0x08
#define KERNEL_DS 0x10
#define USER_CS32 0x1b
#define USER_DS 0x23
#define USER_CS64 0x2b
#define KERNEL_CS32 0x38
#else
#define KERNEL_CS32 0x08
#define KERNEL_CS 0x10
#define KERNEL_DS 0x18
#define USER_CS32 0x23
#define USER_DS 0x2b
#define USER_CS64 0x33
#endif
#define KERNEL_CS16 0x40
#define KERNEL_DS16 0x48
#define TSS_SELECTOR 0x50
#define LDT_SELECTOR 0x60
#define FREE_SELECTOR 0x70

/* Where the memory below 1 GiB is seen again: by user code, and by the kernel in the upper half. */
#if defined(__i386__)
#define USER_ALIAS 0
#else
#define USER_ALIAS 0x80000000
#endif
#define DIRECT_ALIAS 0xffff888000000000
#define HIGH_ALIAS 0xffffffff80000000

/* The vector by which a snippet says that it has come to its end. */
#define DONE 0x81

#endif
