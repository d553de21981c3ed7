/* The notes (public/elfnote.h), the entry, and what C cannot say. */
        .macro  note type, value:vararg
        .section .note.xen, "a"
        .balign 4
        .long   4, 2f - 1f, \type
        .asciz  "Xen"
1:      \value
2:      .balign 4
        .endm

        note    5, .asciz "xen-3.0"             /* XEN_VERSION */
        note    6, .asciz "tiny"                /* GUEST_OS */
        note    8, .asciz "generic"             /* LOADER */
        note    1, .quad start                  /* ENTRY */
        note    3, .quad 0xffffffff80000000     /* VIRT_BASE */
        note    4, .quad 0                      /* PADDR_OFFSET */
        note    9, .asciz "yes"                 /* PAE_MODE */
        note    17, .long 0x801                 /* SUPPORTED_FEATURES: may be domain 0 */

        .text
        .globl  start, page_fault, try_write, write_word, exchange_word, compare_word, entry_rsp, entry_rflags
start:
        movq    %rsp, entry_rsp
        pushfq
        popq    entry_rflags
        cld
        movq    %rsi, %rdi
        call    main
1:      jmp     1b

/* Handler of vector 14: goes on at `recovery`. Below the frame of the exception are RCX and R11. */
page_fault:
        popq    %rcx
        popq    %r11
        popq    fault_error
        movq    8(%rsp), %rax
        movq    %rax, fault_cs
        movq    recovery, %rax
        movq    %rax, (%rsp)
        pushq   $0                              /* flags of the iret: restore all */
        pushq   %rcx
        pushq   %r11
        pushq   %rax
        movl    $23, %eax
        syscall

/* Write what is at (RDI) again; returns the error code of the fault, or -1 without one. */
try_write:
        movq    $1f, recovery
        movq    $-1, fault_error
        movq    (%rdi), %rsi
/* Write RSI to (RDI), and return likewise. */
write_word:
        movq    $1f, recovery
        movq    $-1, fault_error
        movq    %rsi, (%rdi)
1:      movq    fault_error, %rax
        ret

/* The same by xchg: the second argument is the place of the new value, and then of what was there. */
exchange_word:
        movq    $1f, recovery
        movq    $-1, fault_error
        movq    (%rsi), %rdx
        xchgq   %rdx, (%rdi)
        movq    %rdx, (%rsi)
1:      movq    fault_error, %rax
        ret

/* The same by cmpxchg: the second argument is the place of the value that is expected, and then of what was there; the
 * third is the new value, the fourth the place of the flags. */
compare_word:
        movq    $1f, recovery
        movq    $-1, fault_error
        movl    $1, %r8d
        negl    %r8d
        movq    (%rsi), %rax
        lock cmpxchgq %rdx, (%rdi)
        movq    %rax, (%rsi)
        pushfq
        popq    (%rcx)
1:      movq    fault_error, %rax
        ret

        .bss
        .balign 8
        .globl  fault_error, fault_cs
recovery:
        .quad   0
fault_error:
        .quad   0
fault_cs:
        .quad   0
entry_rsp:
        .quad   0
entry_rflags:
        .quad   0
