//! The loader as a whole, on kernels that are made here.

mod images;
mod linux;
mod malformed;
mod others;

use std::collections::HashMap;
use std::sync::Mutex;

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::*;

const MIB: u64 = 1 << 20;

/// A machine with this much memory, with the usual hole below 1 MiB and another below 4 GiB.
struct Machine {
    memory: GuestMemoryMmap,
    map: Vec<MapEntry>,
}

impl Machine {
    fn new(low_mib: u64, high_mib: u64) -> Self {
        let mut ranges = vec![(0, 0xa_0000), (MIB, (low_mib - 1) * MIB)];
        if high_mib > 0 {
            ranges.push((1 << 32, high_mib * MIB));
        }
        let memory: Vec<_> =
            ranges.iter().map(|&(start, size)| (GuestAddress(start), size as usize)).collect();
        let ram = ranges.iter().map(|&(start, size)| MapEntry { start, size, kind: MapKind::Ram });
        let mut map: Vec<MapEntry> = ram.collect();
        map.push(MapEntry { start: 0xe_0000, size: 0x2_0000, kind: MapKind::Reserved });
        Self { memory: GuestMemoryMmap::from_ranges(&memory).unwrap(), map }
    }

    /// A request with nothing but a kernel.
    fn request<'a>(&'a self, kernel: &'a [u8]) -> Request<'a> {
        Request {
            kernel,
            kernel_name: "kernel",
            command_line: "console=ttyS0",
            modules: &[],
            memory_map: &self.map,
            rsdp: None,
            randomness: None,
        }
    }

    fn load(&self, request: &Request) -> Result<Loaded, Error> {
        self.load_from(request, None)
    }

    fn load_from(
        &self,
        request: &Request,
        cache: Option<&dyn KernelCache>,
    ) -> Result<Loaded, Error> {
        load(&self.memory, request, unpack(request.kernel, cache, &unpack_payload)?)
    }

    fn u8(&self, at: u64) -> u8 {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn u32(&self, at: u64) -> u32 {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn u64(&self, at: u64) -> u64 {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn bytes(&self, at: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    /// The string that ends in a zero byte.
    fn string(&self, at: u64) -> String {
        let bytes: Vec<u8> = (at..).map(|at| self.u8(at)).take_while(|&byte| byte != 0).collect();
        String::from_utf8(bytes).unwrap()
    }

    /// What a linear address means under the entry's page tables (SDM 3A 4.5).
    fn translate(&self, entry: &Entry, linear: u64) -> Option<u64> {
        let mut table = entry.cr3;
        for shift in [39, 30] {
            let entry = self.u64(table + (linear >> shift & 511) * 8);
            if entry & 1 == 0 {
                return None;
            }
            table = entry & !0xfff;
        }
        let entry = self.u64(table + (linear >> 21 & 511) * 8);
        assert!(entry & 0x80 != 0 || entry == 0, "2 MiB pages only");
        (entry & 3 == 3).then_some((entry & !0x1f_ffff) + (linear & 0x1f_ffff))
    }
}

/// A cache in memory: what is in it, by packed kernel.
#[derive(Debug, Default)]
struct Kept(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl KernelCache for Kept {
    fn get(&self, packed: &[u8]) -> Result<Option<CachedKernel>, String> {
        let kept = self.0.lock().unwrap().get(packed).cloned();
        Ok(kept.map(|kernel| Box::new(kernel) as _))
    }

    fn put(&self, packed: &[u8], unpacked: &[u8]) -> Result<(), String> {
        self.0.lock().unwrap().insert(packed.to_vec(), unpacked.to_vec());
        Ok(())
    }
}

/// Numbers that are not random, so that tests repeat.
fn randomness(physical: u64, linear: u64) -> Option<Randomness> {
    Some(Randomness { physical, linear, seed: [0x5e; 32] })
}
