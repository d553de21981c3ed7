/* Instructions that a paravirtual kernel must not execute, or that the hypervisor carries out for it.
 * instruction(which, value): by the table at the end. Most are exceptions, after which another stack goes on. */
        .text
        .globl  instruction
instruction:
        movq    %rsi, %rax
        movl    %esi, %ecx
        movq    %rsi, %rdx
        andl    $31, %edi
        jmp     *table(, %rdi, 8)

        .macro  write_register number
        movl    $\number, %ecx
        wrmsr
        .endm
        .macro  load_flags
        pushq   %rax
        popfq
        .endm
        .macro  return_anywhere
        pushq   %rax
        pushq   %rax
        iretq
        .endm
        .macro  access_vectors
        movups  %xmm0, (%rdx)
        lock xaddq %rax, (%rdx)
        .endm

        .section .rodata
        .balign 8
table:
        .macro  one code:vararg
        .pushsection .text
1:      \code
        ret
        .popsection
        .quad   1b
        .endm

        one     cli
        one     sti
        one     hlt
        one     inb     %dx, %al
        one     outb    %al, %dx
        one     insb
        one     outsl
        one     rdmsr
        one     wrmsr
        one     write_register 0xc0000100
        one     write_register 0xc0000080
        one     movq    %rax, %cr0
        one     movq    %cr2, %rax
        one     movq    %rax, %cr4
        one     movq    %rax, %dr0
        one     movq    %rax, %dr7
        one     clts
        one     int3
        one     int     $0x80
        one     int     $14
        one     ud2
        one     xsetbv
        one     invlpg  (%rax)
        one     swapgs
        one     movw    %ax, %fs
        one     lldt    %ax
        one     ltr     %ax
        one     load_flags
        one     return_anywhere
        one     movw    %ax, %ss
        one     movb    %al, (%rdx)
        one     access_vectors
