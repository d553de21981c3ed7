//! What a kernel says about itself in the notes of its ELF file.

use xen_abi::note::kind;

use super::error::Error;

/// The notes that matter for building.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Where it is entered.
    pub entry: Option<u64>,
    /// A page that is to be filled with calls.
    pub hypercall_page: Option<u64>,
    /// Where the first page of memory is mapped.
    pub virtual_base: Option<u64>,
    /// What the file's physical addresses are higher by than page frames.
    pub physical_offset: Option<u64>,
    /// Where the list of frames is mapped.
    pub init_p2m: Option<u64>,
    /// Whether the initial RAM disk need not be mapped.
    pub mod_start_pfn: bool,
    /// Whether a suspend call may return 1.
    pub suspend_cancel: bool,
    /// Bits of `xen_abi::feature::bit`.
    pub supported_features: u64,
    /// Whether it has the entry of another protocol.
    pub has_pvh_entry: bool,
    /// The version of the interface, "xen-3.0".
    pub version: Option<Vec<u8>>,
    /// The kind of loader, "generic".
    pub loader: Option<Vec<u8>>,
    /// Its name.
    pub guest_os: Option<Vec<u8>>,
}

/// The longest string that is kept of a note.
const MAX_STRING_BYTES: usize = 64;

/// The only version of the interface.
const VERSION: &[u8] = b"xen-3.0";

/// The only kind of loader.
const LOADER: &[u8] = b"generic";

impl Notes {
    /// Take one of Xen's notes into account; of two of a kind the later counts.
    pub(super) fn add(&mut self, note: u32, descriptor: &[u8]) -> Result<(), Error> {
        let number = || number(note, descriptor);
        match note {
            kind::ENTRY => self.entry = Some(number()?),
            kind::HYPERCALL_PAGE => self.hypercall_page = Some(number()?),
            kind::VIRT_BASE => self.virtual_base = Some(number()?),
            kind::PADDR_OFFSET => self.physical_offset = Some(number()?),
            kind::INIT_P2M => self.init_p2m = Some(number()?),
            kind::MOD_START_PFN => self.mod_start_pfn = number()? != 0,
            kind::SUSPEND_CANCEL => self.suspend_cancel = number()? != 0,
            kind::SUPPORTED_FEATURES => self.supported_features = number()?,
            kind::PHYS32_ENTRY => self.has_pvh_entry = true,
            kind::XEN_VERSION => self.version = Some(string(descriptor)),
            kind::LOADER => self.loader = Some(string(descriptor)),
            kind::GUEST_OS => self.guest_os = Some(string(descriptor)),
            _ => {}
        }
        Ok(())
    }

    /// Whether the kernel can be built at all.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refuse = |reason| Err(Error::NotParavirtual { reason });
        match self.version.as_deref() {
            None => return refuse("it has no ELF note with a version of Xen"),
            Some(VERSION) => {}
            Some(_) => return refuse("its version of the interface is not xen-3.0"),
        }
        if self.loader.as_deref() != Some(LOADER) {
            return refuse("it does not ask for the generic loader");
        }
        if self.entry.is_none() && self.has_pvh_entry {
            return refuse("it has the entry of PVH only");
        }
        if self.physical_offset.is_some() && self.virtual_base.is_none() {
            return refuse("it says what its physical addresses are relative to, but not where");
        }
        Ok(())
    }
}

fn number(kind: u32, descriptor: &[u8]) -> Result<u64, Error> {
    if let Ok(bytes) = descriptor.try_into() {
        return Ok(u64::from_le_bytes(bytes));
    }
    let bytes = descriptor.try_into().map_err(|_| Error::Note { kind })?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

/// What precedes the first zero.
fn string(descriptor: &[u8]) -> Vec<u8> {
    let bytes = descriptor.iter().take(MAX_STRING_BYTES).copied();
    bytes.take_while(|byte| *byte != 0).collect()
}
