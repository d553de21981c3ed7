/* The fence: code is called, and whatever vector is raised ends it. See fence.c. */
#include <linux/linkage.h>
#include <asm/segment.h>

.section .data
.balign 8
.globl fence_rsp, fence_flags, fence_cr3, fence_gs_base, fence_kernel_gs_base, fence_fs_base
fence_rsp: .quad 0
fence_flags: .quad 0
fence_cr3: .quad 0
fence_gs_base: .quad 0
fence_kernel_gs_base: .quad 0
fence_fs_base: .quad 0

.text

/* u64 fence_enter(void *code, u64 rdi, u64 rsi, u64 rcx, u64 flags): the vector, or 256 if it returns. */
SYM_FUNC_START(fence_enter)
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, fence_rsp(%rip)
    mov %rdi, %rax
    mov %rsi, %rdi
    mov %rdx, %rsi
    push %r8
    mov %rax, %r8
    mov %rdi, %rbx
    mov %rsi, %r12
    popfq
    call *%r8
    mov $256, %ebp
    jmp fence_leave
SYM_FUNC_END(fence_enter)

/* Nothing but the page tables for this code, its data and stack is taken to be as it was. */
SYM_CODE_START_LOCAL(fence_raised)
    mov (%rsp), %rbp
    jmp fence_leave
SYM_CODE_END(fence_raised)

SYM_CODE_START_LOCAL(fence_leave)
    mov fence_cr3(%rip), %rax
    mov %rax, %cr3
    mov $__KERNEL_DS, %eax
    mov %eax, %ss
    mov fence_rsp(%rip), %rsp
    cld
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %fs
    mov %eax, %gs
    mov $0xc0000100, %ecx
    mov fence_fs_base(%rip), %eax
    mov fence_fs_base+4(%rip), %edx
    wrmsr
    mov $0xc0000101, %ecx
    mov fence_gs_base(%rip), %eax
    mov fence_gs_base+4(%rip), %edx
    wrmsr
    mov $0xc0000102, %ecx
    mov fence_kernel_gs_base(%rip), %eax
    mov fence_kernel_gs_base+4(%rip), %edx
    wrmsr
    push fence_flags(%rip)
    popfq
    mov %rbp, %rax
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    RET
SYM_CODE_END(fence_leave)

/* 16 bytes each: the error code, if any, stays below. */
.balign 16
SYM_CODE_START(fence_vectors)
vector = 0
.rept 256
    .balign 16
    pushq $vector
    .byte 0xe9
    .long fence_raised - . - 4
    vector = vector + 1
.endr
SYM_CODE_END(fence_vectors)

/* A vector as its number says, for Linux: 4 bytes each. */
.balign 16
SYM_CODE_START(fence_interrupts)
vector = 0
.rept 256
    .balign 4
    int $vector
    ret
    vector = vector + 1
.endr
SYM_CODE_END(fence_interrupts)
