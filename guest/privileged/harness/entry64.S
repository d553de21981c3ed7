/* Vectors, and the one way into a snippet and out of it.
 *
 * `enter_snippet(struct event *)` loads every register from the event and leaves by `iretq`, to any
 * privilege level. Whatever event comes next without a hook that resumes it is stored in `last`,
 * and `leave_snippet` returns to the caller of `enter_snippet`, again by `iretq` so that NMIs are
 * unblocked.
 */
#include "layout.h"
        .text
        .code64

        .macro  SAVE
        pushq   %rax
        pushq   %rbx
        pushq   %rcx
        pushq   %rdx
        pushq   %rsi
        pushq   %rdi
        pushq   %rbp
        pushq   %r8
        pushq   %r9
        pushq   %r10
        pushq   %r11
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        .endm

        .macro  RESTORE
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %r11
        popq    %r10
        popq    %r9
        popq    %r8
        popq    %rbp
        popq    %rdi
        popq    %rsi
        popq    %rdx
        popq    %rcx
        popq    %rbx
        popq    %rax
        .endm

        .balign 16
        .globl  vector_stubs
vector_stubs:                                   /* 16 bytes each */
        .set    vector, 0
        .rept   256
        .balign 16
        .if     !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)
        pushq   $0
        .endif
        pushq   $vector
        jmp     common
        .set    vector, vector + 1
        .endr

common:
        cld
        SAVE
        movq    %rsp, %rdi
        movq    %rsp, %rbx
        andq    $-16, %rsp
        call    handle_event
        movq    %rbx, %rsp
        RESTORE
        addq    $16, %rsp
        iretq

        .globl  enter_snippet
enter_snippet:
        pushq   %rbx
        pushq   %rbp
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rsp, main_rsp
        movq    %rdi, %rsi
        subq    $22 * 8, %rsp
        movq    %rsp, %rdi
        movl    $22, %ecx
        rep movsq
        RESTORE
        addq    $16, %rsp
        .globl  enter_iret
enter_iret:
        iretq

        .globl  leave_snippet
leave_snippet:
        movl    $USER_DS, %eax                  /* 32-bit user code needs them */
        movl    %eax, %ds
        movl    %eax, %es
        movq    main_rsp, %rdx
        pushq   $KERNEL_DS
        pushq   %rdx
        pushq   $2
        pushq   $KERNEL_CS
        pushq   $1f
        iretq
1:      popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbp
        popq    %rbx
        ret

        .bss
        .balign 8
main_rsp: .skip 8
        .section .note.GNU-stack, "", @progbits
