/* Vectors, and the one way into a snippet and out of it, as in entry64.S but for 32 bits, where
 * `iret` to the same privilege level loads no stack pointer. */
#include "layout.h"
        .text
        .code32

        .balign 16
        .globl  vector_stubs
vector_stubs:                                   /* 16 bytes each */
        .set    vector, 0
        .rept   256
        .balign 16
        .if     !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)
        pushl   $0
        .endif
        pushl   $vector
        jmp     common
        .set    vector, vector + 1
        .endr

common:
        cld
        pushal
        pushl   %ds
        pushl   %es
        movl    %ss:kernel_selector, %eax
        movl    %eax, %ds
        movl    %eax, %es
        leal    8(%esp), %eax
        pushl   %eax
        call    handle_event
        addl    $4, %esp
        popl    %es
        popl    %ds
        popal
        addl    $8, %esp
        iretl

/* Offsets in `struct event`. */
        .set    EDI, 0
        .set    ESI, 4
        .set    EBP, 8
        .set    EBX, 16
        .set    EDX, 20
        .set    ECX, 24
        .set    EAX, 28
        .set    EIP, 40
        .set    CS, 44
        .set    EFLAGS, 48
        .set    ESP, 52
        .set    SS, 56

        .globl  enter_snippet
enter_snippet:
        movl    4(%esp), %eax
        pushl   %ebx
        pushl   %ebp
        pushl   %esi
        pushl   %edi
        movl    %esp, main_esp
        movl    %eax, %esi
        movl    $current, %edi
        movl    $15, %ecx
        rep movsl
        testl   $0x20000, current + EFLAGS      /* VM: the data segments come from the frame */
        jz      3f
        pushl   $0
        pushl   $0
        pushl   $0
        pushl   $0
        jmp     4f
3:      testb   $3, current + CS
        jz      1f
        movl    $USER_DS, %eax
        movl    %eax, %ds
        movl    %eax, %es
4:      pushl   current + SS
        pushl   current + ESP
        jmp     2f
1:      movl    current + SS, %eax
        movl    current + ESP, %edx
        movl    %eax, %ss
        movl    %edx, %esp
2:      pushl   current + EFLAGS
        pushl   current + CS
        pushl   current + EIP
        movl    current + EDI, %edi
        movl    current + ESI, %esi
        movl    current + EBP, %ebp
        movl    current + EBX, %ebx
        movl    current + EDX, %edx
        movl    current + ECX, %ecx
        movl    current + EAX, %eax
        .globl  enter_iret
enter_iret:
        iretl

        .globl  leave_snippet
leave_snippet:
        movl    $KERNEL_DS, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    main_esp, %esp
        pushl   $2
        pushl   $KERNEL_CS
        pushl   $1f
        iretl
1:      popl    %edi
        popl    %esi
        popl    %ebp
        popl    %ebx
        ret

        .data
kernel_selector: .long KERNEL_DS
        .bss
        .balign 4
main_esp: .skip 4
current:  .skip 60
        .section .note.GNU-stack, "", @progbits
