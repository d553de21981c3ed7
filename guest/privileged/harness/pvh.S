/* The note of a PVH kernel: XEN_ELFNOTE_PHYS32_ENTRY, whose descriptor is as wide as the class of
 * the file (Xen, docs/misc/pvh.pandoc and include/public/elfnote.h). */
        .section .note.pvh, "a", @note
        .balign 4
        .long   4, 2f - 1f, 18
        .asciz  "Xen"
        .balign 4
1:
#if defined(PVH_32) || defined(__i386__)
        .long   entry
#else
        .quad   entry
#endif
2:
        .balign 4

        .text
        .code32
        .globl  entry
entry:
        movl    %ebx, boot_info
        movl    $2, boot_kind
        jmp     start32
