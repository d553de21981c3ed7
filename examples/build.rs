//! Links the examples where `biv` is linked (crates/biv/build.rs). A program that is linked elsewhere runs machines,
//! too, but none whose kernel has its memory mirrored, which is slower.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--no-pie,--image-base=0x7e9000000000");
}
