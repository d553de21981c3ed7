/* From the 32-bit entry that Multiboot and PVH share to `main`: flat segments, no paging. */
#include "layout.h"
        .text
        .code32
        .globl  start32
start32:
        cli
        cld
        movl    $main_stack_end, %esp
        lgdt    gdt_pointer
        ljmp    $KERNEL_CS, $1f
1:      movl    $KERNEL_DS, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        xorl    %eax, %eax
        movl    %eax, %fs
        movl    %eax, %gs
        movl    %cr4, %eax
        orl     $0x600, %eax                    /* OSFXSR, OSXMMEXCPT */
        movl    %eax, %cr4
        movl    $0x33, %eax                     /* NE, ET, MP, PE */
        movl    %eax, %cr0
        fninit
        call    set_up_machine
        call    main
        call    finish

        .data
        .balign 16
        .globl  gdt, gdt_pointer
gdt:
        .quad   0
        .quad   0x00cf9b000000ffff              /* 08 kernel code */
        .quad   0x00cf93000000ffff              /* 10 kernel data */
        .quad   0x00cffb000000ffff              /* 18 user code */
        .quad   0x00cff3000000ffff              /* 20 user data */
        .quad   0x00affb000000ffff              /* 28 user code, 64 bits, once in long mode */
        .quad   0x00cff3000000ffff              /* 30 user data */
        .quad   0x00cf9b000000ffff              /* 38 kernel code, 32 bits */
        .quad   0x00009b000000ffff              /* 40 kernel code, 16 bits */
        .quad   0x000093000000ffff              /* 48 kernel data, 16 bits */
        .fill   56, 8, 0                        /* 50 TSS, 60 LDT, then free */
gdt_end:
gdt_pointer:
        .word   gdt_end - gdt - 1
        .long   gdt

        .globl  boot_magic, boot_info, boot_kind
boot_magic: .quad 0
boot_info:  .quad 0
boot_kind:  .quad 0

        .bss
        .balign 4096
main_stack:  .skip 32768
main_stack_end:
        .section .note.GNU-stack, "", @progbits
