//! Builds the guest's init, a static program, and hands its path to `initramfs`.

fn main() {
    static_program::build("init", &["guest/init"], "BIV_GUEST_INIT");
}
