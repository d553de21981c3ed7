//! What is given for a paravirtual kernel: any bytes, and an ELF file of which bytes are changed (its headers and notes
//! are at its beginning). The builder refuses it, or starts a domain whose counts are right.

#![no_main]

use fuzz::domain::load;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<(u32, u64)>)| {
    let (bytes, changes) = input;
    load(&bytes);
    let mut kernel = paravirtual::KERNEL.to_vec();
    let heads = fuzz::domain::places_of_heads(&kernel);
    for (at, value) in changes {
        let place = heads[at as usize % heads.len()];
        for (byte, new) in
            kernel[place..].iter_mut().zip(value.to_le_bytes()).take(1 + at as usize % 8)
        {
            *byte ^= new;
        }
    }
    load(&kernel);
});
