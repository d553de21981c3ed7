//! The payload of a bzImage: the input is wrapped so that it reaches the decompressors, and what they
//! make of it the ELF loader. The checksum does not stand in the way, because the release is one
//! whose build appends none.

#![no_main]

use std::sync::LazyLock;

use boot::{MapEntry, MapKind, Request, load, unpack, unpack_payload};
use libfuzzer_sys::fuzz_target;
use vm_memory::{GuestAddress, GuestMemoryMmap};

const MEMORY_BYTES: u64 = 32 << 20;
const SETUP_BYTES: usize = 1024;

static MEMORY: LazyLock<GuestMemoryMmap> = LazyLock::new(|| {
    let ranges = [(GuestAddress(0), MEMORY_BYTES as usize)];
    GuestMemoryMmap::from_ranges(&ranges).expect("32 MiB of memory")
});

/// A bzImage of one setup sector with this payload (Documentation/arch/x86/boot.rst).
fn wrap(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0; SETUP_BYTES];
    file.extend_from_slice(payload);
    file.resize(file.len().next_multiple_of(16), 0);
    let paragraphs = ((file.len() - SETUP_BYTES) / 16) as u32;
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]);
    put(0x1f4, &paragraphs.to_le_bytes());
    put(0x201, &[0x6a]);
    put(0x202, b"HdrS\x0f\x02");
    put(0x20e, &0x100_u16.to_le_bytes());
    put(0x234, &[1]);
    put(0x236, &[1]);
    put(0x24c, &(payload.len() as u32).to_le_bytes());
    put(0x300, b"6.18.0\0");
    file
}

fuzz_target!(|payload: &[u8]| {
    let kernel = wrap(payload);
    let memory_map = [MapEntry { start: 0, size: MEMORY_BYTES, kind: MapKind::Ram }];
    let request = Request {
        kernel: &kernel,
        kernel_name: "kernel",
        command_line: "",
        modules: &[],
        memory_map: &memory_map,
        rsdp: None,
        randomness: None,
    };
    if let Err(error) = unpack(request.kernel, None, &unpack_payload)
        .and_then(|unpacked| load(&MEMORY, &request, unpacked))
    {
        assert!(!error.to_string().contains('\n'));
    }
});
