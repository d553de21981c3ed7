//! Links this crate's tests where `biv` is linked (crates/biv/build.rs): with anything of theirs in the place of
//! memory that every kernel has they would run without the mirror of the kernel's memory (memory/place.rs).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,--no-pie,--image-base=0x7e9000000000");
}
