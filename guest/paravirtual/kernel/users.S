/* Trips to user mode, or within the kernel, and what the kernel finds when it is entered again. */
        .text
        .globl  trip, frame, came, kernel_ud, kernel_iretq, kernel_steps
/* Return by the hypercall to what `frame` has, and come back when the kernel is entered. */
trip:
        pushq   %rbx
        pushq   %rbp
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        pushfq
        movq    %rsp, kernel_rsp
        leaq    frame, %rsp
        movq    $0x1c, %rcx
        movl    $23, %eax
        syscall

        .macro  entry name, number
        .globl  \name
\name:  movq    $\number, came
        jmp     record
        .endm
        entry   on_system_call, 1
        entry   on_event, 2
        entry   on_failsafe, 3
        entry   on_trap3, 4
        entry   on_trap6, 5
        entry   on_trap13, 6
        entry   on_trap14, 7
        entry   on_trap128, 8
        entry   on_trap11, 9
        entry   on_trap12, 10
        entry   on_trap1, 11

/* RAX, flags, CS, SS, what GS leads to, RSP, and ten words of the stack. */
record:
        movq    %rax, came + 8
        pushfq
        popq    came + 16
        movl    %cs, %eax
        movq    %rax, came + 24
        movl    %ss, %eax
        movq    %rax, came + 32
        movq    %gs:0, %rax
        movq    %rax, came + 40
        movq    %rsp, came + 48
        cld
        movq    %rsp, %rsi
        leaq    came + 56, %rdi
        movl    $10, %ecx
        rep movsq
        movq    kernel_rsp, %rsp
        popfq
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbp
        popq    %rbx
        ret

kernel_iretq:
        iretq
kernel_steps:
        nop
        nop
kernel_ud:
        ud2

/* Call what is on another page. */
        .globl  call_first, first_code, second_code
call_first:
        call    first_code
        ret
        .balign 4096
first_code:
        movl    $1, %eax
        ret
        .balign 4096
second_code:
        movl    $2, %eax
        ret
        .balign 4096

/* The page of user programs: `users.c` says where it is for them. */
        .section .text.user, "ax"
        .balign 4096
        .globl  user_page, user_call, user_ud, user_int3, user_int80, user_load, user_gs, user_word, user_steps
user_page:
user_call:
        syscall
user_ud:
        ud2
user_int3:
        int3
user_int80:
        int     $0x80
user_load:
        movq    0x7ffffff0, %rax
user_gs:
        movq    %gs:0, %rax
        syscall
user_steps:
        nop
        nop
        syscall
user_word:
        .quad   0x75
        .balign 4096

        .bss
        .balign 8
kernel_rsp:
        .quad   0
/* RAX, R11, RCX, kind, RIP, CS, RFLAGS, RSP, SS */
frame:  .skip   9 * 8
came:   .skip   17 * 8
