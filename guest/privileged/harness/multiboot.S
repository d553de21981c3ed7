/* The header of a Multiboot 1 kernel (Multiboot Specification 0.6.96, section 3.1). */
        .section .header, "a"
        .balign 4
        .set    FLAGS, 0x00000003               /* page-aligned modules, memory map */
        .long   0x1badb002, FLAGS, -(0x1badb002 + FLAGS)

        .text
        .code32
        .globl  entry
entry:
        movl    %eax, boot_magic
        movl    %ebx, boot_info
        movl    $1, boot_kind
        jmp     start32
