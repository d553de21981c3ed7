//! The console: the ring of a domain's (public/io/console.h), and the hypercall to Xen's own (public/xen.h).

constants! {
    /// Sub-commands of `console_io`, which take a number of bytes and a buffer.
    command: u32 {
        WRITE = 0, "CONSOLEIO_write";
        READ = 1, "CONSOLEIO_read";
    }
}

structure! {
    /// The page of the ring. Indices run freely; each ring's length is a power of two.
    ConsoleRing = "struct xencons_interface", 3088 {
        /// What the guest reads.
        input: [u8; 1024] = "in" @ 0,
        /// What the guest has written.
        output: [u8; 2048] = "out" @ 1024,
        input_consumer: u32 = "in_cons" @ 3072,
        input_producer: u32 = "in_prod" @ 3076,
        output_consumer: u32 = "out_cons" @ 3080,
        output_producer: u32 = "out_prod" @ 3084,
    }
}
