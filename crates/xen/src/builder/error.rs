//! What can be wrong with a paravirtual kernel. Each message is one line and says what to do.

/// Why a domain cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not an ELF file of the right kind.
    #[error("this is not a 64-bit ELF kernel for x86 ({reason}); unpack it, or give another")]
    NotAKernel {
        /// What it is, or lacks.
        reason: &'static str,
    },
    /// The file contradicts itself.
    #[error("the kernel's ELF file is damaged: {reason}; get it anew")]
    Damaged {
        /// What is wrong.
        reason: &'static str,
    },
    /// The notes say that it is for something else.
    #[error("the kernel cannot be run by Xen's paravirtual interface: {reason}; boot it as usual")]
    NotParavirtual {
        /// What the notes say, or lack.
        reason: &'static str,
    },
    /// A note has an unexpected form.
    #[error("the kernel's ELF note {kind} for Xen is neither 4 nor 8 bytes long; get it anew")]
    Note {
        /// Of `xen_abi::note::kind`.
        kind: u32,
    },
    /// An address that the notes give cannot be used.
    #[error("the kernel cannot be loaded: {what} ({address:#x}) {reason}")]
    Address {
        /// Which it is.
        what: &'static str,
        /// Its value.
        address: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Not everything fits.
    #[error(
        "the kernel and what belongs to it need {} MiB, but the domain has {}; give a larger --mem",
        needed.div_ceil(256), pages / 256
    )]
    TooLittleMemory {
        /// Pages that are needed at least.
        needed: u64,
        /// Pages that there are.
        pages: u64,
    },
    /// The command line does not fit into the start information.
    #[error("the command line has {bytes} bytes, but Xen's guests take {limit}; shorten --append")]
    CommandLineTooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
}
