//! A description whose parts fit together. It is the only kind that [`super::launch`] takes, so
//! that each is checked once.

use std::ops::Deref;

use spec::Spec;

use super::error::Error;
use super::paravirtual::is_paravirtual;
use super::{guest, sandbox};

/// A [`Spec`] with the defaults of a sandbox, if it is one, and without contradictions ([`Spec::check`]).
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedSpec(Spec);

impl CheckedSpec {
    /// Applies the defaults, and checks.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] names the parts that do not fit together.
    pub fn new(mut spec: Spec) -> Result<Self, Error> {
        sandbox::apply_defaults(&mut spec);
        give_root(&mut spec);
        spec.check().map_err(|error| Error::Contradiction(error.to_string()))?;
        Ok(Self(spec))
    }

    /// The description itself.
    #[must_use]
    pub fn into_inner(self) -> Spec {
        self.0
    }
}

impl Deref for CheckedSpec {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        &self.0
    }
}

/// Gives a paravirtual machine a root that it can have: busybox, unless one is named or it boots an initial RAM disk.
fn give_root(spec: &mut Spec) {
    if is_paravirtual(spec) && !guest::is_plain(spec) && !guest::has_user_space(spec) {
        spec.root = spec::Root::Busybox;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused() {
        let mut spec = Spec { sandbox: true, ..Spec::default() };
        let checked = CheckedSpec::new(spec.clone()).unwrap();
        assert_eq!(checked.networks, Some(Vec::new()), "a sandbox has no network by default");
        spec.engine.no_seccomp = true;
        let error = CheckedSpec::new(spec).unwrap_err().to_string();
        assert!(error.contains("engine.no_seccomp"), "{error}");
    }
}
