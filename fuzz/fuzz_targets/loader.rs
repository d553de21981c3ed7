//! The kernel loader, given any file at all: it must answer, in bounded time and memory.

#![no_main]

use std::sync::LazyLock;

use boot::{
    MapEntry, MapKind, Module, Randomness, Request, load, protocol, unpack, unpack_payload,
};
use libfuzzer_sys::fuzz_target;
use vm_memory::{GuestAddress, GuestMemoryMmap};

const LOW: u64 = 0xa_0000;
const MIB: u64 = 1 << 20;
const HIGH: u64 = 63 * MIB;

static MEMORY: LazyLock<GuestMemoryMmap> = LazyLock::new(|| {
    let ranges = [(GuestAddress(0), LOW as usize), (GuestAddress(MIB), HIGH as usize)];
    GuestMemoryMmap::from_ranges(&ranges).expect("64 MiB of memory")
});

fuzz_target!(|kernel: &[u8]| {
    let memory_map = [
        MapEntry { start: 0, size: LOW, kind: MapKind::Ram },
        MapEntry { start: MIB, size: HIGH, kind: MapKind::Ram },
    ];
    let modules = [Module { data: b"module", command_line: "arguments" }];
    let request = Request {
        kernel,
        kernel_name: "kernel",
        command_line: "quiet",
        modules: &modules,
        memory_map: &memory_map,
        rsdp: None,
        randomness: Some(Randomness { physical: 12_345, linear: 67_890, seed: [1; 32] }),
    };
    let _ = protocol(kernel);
    if let Err(error) = unpack(request.kernel, None, &unpack_payload)
        .and_then(|unpacked| load(&MEMORY, &request, unpacked))
    {
        assert!(!error.to_string().contains('\n'));
    }
});
