//! `xen_version` (public/version.h): what the hypervisor says that it is.

use xen_abi::feature::bit;
use xen_abi::version::{CompileInfo, FeatureInfo, PlatformParameters, command, length};
use xen_abi::{Wire, errno, mmu};

use crate::caller::{Caller, Outcome, Reply};
use crate::errno::Errno;

/// The interface is that of 4.17.
const VERSION: u64 = 4 << 16 | 17;

const EXTRAVERSION: &str = "-bivouac";
const CAPABILITIES: &str = "xen-3.0-x86_64";

/// Bytes of a page, as a call returns them.
const PAGE_BYTES: u64 = 4096;

/// What kernels may rely on.
const FEATURES: u32 = 1 << bit::MMU_PT_UPDATE_PRESERVE_AD
    | 1 << bit::HIGHMEM_ASSIST
    | 1 << bit::GNTTAB_MAP_AVAIL_BITS
    | 1 << bit::MEMORY_OP_VNODE_SUPPORTED
    | 1 << bit::NOT_DIRECT_MAPPED;

/// Answer, in RAX or at an address.
pub(crate) fn xen_version(caller: &mut Caller<'_>, [command, at, ..]: [u64; 6]) -> Reply {
    match command as u32 {
        command::VERSION => return Ok(Outcome::Value(VERSION)),
        command::PAGESIZE => return Ok(Outcome::Value(PAGE_BYTES)),
        command::EXTRAVERSION => text(caller, at, EXTRAVERSION, length::EXTRAVERSION)?,
        command::CAPABILITIES => text(caller, at, CAPABILITIES, length::CAPABILITIES)?,
        command::CHANGESET => text(caller, at, "", length::CHANGESET)?,
        command::GUEST_HANDLE => text(caller, at, "", length::GUEST_HANDLE)?,
        command::COMPILE_INFO => caller.write(at, &CompileInfo::zeroed())?,
        command::PLATFORM_PARAMETERS => {
            let virtual_start = mmu::reserved::START;
            caller.write(at, &PlatformParameters { virtual_start })?;
        }
        command::GET_FEATURES => {
            let mut info: FeatureInfo = caller.read(at)?;
            if info.index != 0 {
                return Err(Errno::new(errno::EINVAL));
            }
            info.map = FEATURES;
            caller.write(at, &info)?;
        }
        command::COMMANDLINE => return Err(Errno::new(errno::EPERM)),
        command::BUILD_ID => return Err(Errno::new(errno::ENODATA)),
        _ => return Err(Errno::new(errno::ENOSYS)),
    }
    Ok(Outcome::DONE)
}

/// A string in so many bytes.
fn text(caller: &mut Caller<'_>, at: u64, said: &str, bytes: u32) -> Result<(), Errno> {
    let mut place = vec![0; bytes as usize];
    place[..said.len()].copy_from_slice(said.as_bytes());
    Ok(caller.cpu.write_linear(at, &place)?)
}

const _: () = assert!(EXTRAVERSION.len() < length::EXTRAVERSION as usize);
const _: () = assert!(FeatureInfo::BYTES == 8);
