//! `--sandbox`: a machine that is given nothing which the user has not named.
//!
//! The option only changes defaults, and the user can still name anything else. Options that would
//! open the sandbox again, and are easily overlooked, are refused beside it ([`Spec::check`]).

use std::time::Duration;

use spec::{Root, Spec};
use vmm::Technique;

use super::guest;

/// How long such a machine runs.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// Gives a sandbox its defaults: busybox unless the description names another root, no network, a limit of time, and
/// no mirror, so that the kernel's accesses to memory are looked up like any other's. Changes nothing else.
pub fn apply_defaults(spec: &mut Spec) {
    if !spec.sandbox {
        return;
    }
    if !guest::is_plain(spec) && !guest::has_user_space(spec) && spec.root == Root::default() {
        spec.root = Root::Busybox;
    }
    spec.networks.get_or_insert_default();
    limit(spec);
}

/// The limits of a sandbox, for a machine that boots and for one that goes on from a snapshot.
pub fn limit(spec: &mut Spec) {
    spec.life.timeout.get_or_insert(TIMEOUT);
    let mirror = Technique::Mirror.to_string();
    // The interpreter has none anyway.
    if !spec.engine.interpret && !spec.engine.without.contains(&mirror) {
        spec.engine.without.push(mirror);
    }
}
