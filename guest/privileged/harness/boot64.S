/* From the 32-bit entry that Multiboot and PVH share to `main` in 64-bit mode.
 *
 * The map that the programs start with, all of it in 2 MiB pages, readable, writable, executable:
 *
 *   0x0000000000000000   physical 0 to 1 GiB, supervisor: where everything is linked
 *   0x0000000080000000   the same memory, user
 *   0x00000000c0000000   physical 3 to 4 GiB, supervisor, uncached: the APICs
 *   0xffff888000000000   physical 0 to 1 GiB, supervisor, where Linux has its direct map
 *   0xffffffff80000000   the same, where Linux has its text
 *
 * PML4 slots 1 (0x8000000000) and 300 (0xffff960000000000) are left to the programs.
 */
#include "layout.h"
        .text
        .code32
        .globl  start32
start32:
        cli
        cld
        movl    $main_stack_end, %esp

        movl    $pdpt_low + 0x07, pml4
        movl    $pdpt_direct + 0x03, pml4 + 273 * 8
        movl    $pdpt_high + 0x03, pml4 + 511 * 8
        movl    $pd_kernel + 0x03, pdpt_low
        movl    $pd_user + 0x07, pdpt_low + 2 * 8
        movl    $pd_device + 0x03, pdpt_low + 3 * 8
        movl    $pd_kernel + 0x03, pdpt_direct
        movl    $pd_kernel + 0x03, pdpt_high + 510 * 8
        xorl    %ecx, %ecx
1:      movl    %ecx, %eax
        shll    $21, %eax
        leal    0x83(%eax), %edx
        movl    %edx, pd_kernel(,%ecx,8)
        leal    0x87(%eax), %edx
        movl    %edx, pd_user(,%ecx,8)
        leal    0xc000009b(%eax), %edx
        movl    %edx, pd_device(,%ecx,8)
        incl    %ecx
        cmpl    $512, %ecx
        jb      1b

        movl    %cr4, %eax
        orl     $0x620, %eax                    /* PAE, OSFXSR, OSXMMEXCPT */
        movl    %eax, %cr4
        movl    $pml4, %eax
        movl    %eax, %cr3
        movl    $0xc0000080, %ecx               /* IA32_EFER: LME, NXE, SCE */
        rdmsr
        orl     $0x901, %eax
        wrmsr
        movl    $0x80010033, %eax               /* PG, WP, NE, ET, MP, PE */
        movl    %eax, %cr0
        lgdt    gdt_pointer
        ljmp    $KERNEL_CS, $start64

        .code64
start64:
        movl    $KERNEL_DS, %eax
        movl    %eax, %ss
        movl    $USER_DS, %eax
        movl    %eax, %ds
        movl    %eax, %es
        xorl    %eax, %eax
        movl    %eax, %fs
        movl    %eax, %gs
        movq    $main_stack_end, %rsp
        fninit
        call    set_up_machine
        call    main
        call    finish

        .data
        .balign 16
        .globl  gdt, gdt_pointer
gdt:
        .quad   0
        .quad   0x00cf9b000000ffff              /* 08 kernel code, 32 bits */
        .quad   0x00af9b000000ffff              /* 10 kernel code, 64 bits */
        .quad   0x00cf93000000ffff              /* 18 kernel data */
        .quad   0x00cffb000000ffff              /* 20 user code, 32 bits */
        .quad   0x00cff3000000ffff              /* 28 user data */
        .quad   0x00affb000000ffff              /* 30 user code, 64 bits */
        .quad   0x00cff3000000ffff              /* 38 user data, for sysexit */
        .quad   0x00009b000000ffff              /* 40 kernel code, 16 bits */
        .quad   0x000093000000ffff              /* 48 kernel data, 16 bits */
        .fill   56, 8, 0                        /* 50 TSS, 60 LDT, then free */
gdt_end:
gdt_pointer:
        .word   gdt_end - gdt - 1
        .quad   gdt

        .globl  boot_magic, boot_info, boot_kind
boot_magic: .quad 0
boot_info:  .quad 0
boot_kind:  .quad 0

        .bss
        .balign 4096
        .globl  pml4, pdpt_low, pd_kernel, pd_user
pml4:        .skip 4096
pdpt_low:    .skip 4096
pdpt_direct: .skip 4096
pdpt_high:   .skip 4096
pd_kernel:   .skip 4096
pd_user:     .skip 4096
pd_device:   .skip 4096
main_stack:  .skip 32768
main_stack_end:
        .section .note.GNU-stack, "", @progbits
