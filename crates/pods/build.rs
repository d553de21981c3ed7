//! Builds the first process of pods, a static program, and hands its path to `names`.

fn main() {
    static_program::build("pod-init", &["guest/pod-init", "guest/pod-protocol"], "BIV_POD_INIT");
}
