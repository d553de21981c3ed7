//! Links this crate's tests where `biv` is linked (crates/biv/build.rs): with anything of theirs below
//! 0x7e00_0000_0000 they would run without the mirror of the kernel's memory.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,--no-pie,--image-base=0x7e1000000000");
}
