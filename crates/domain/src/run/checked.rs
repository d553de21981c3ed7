//! A description whose parts fit together. It is the only kind that [`super::launch`] takes, so
//! that each is checked once.

use std::ops::Deref;

use spec::Spec;

use super::error::Error;
use super::paravirtual::is_paravirtual;
use super::{guest, sandbox};

/// Why a machine that looks like the host has no process 1 of its own.
const NO_ROOT_OF_ITS_OWN: &str = "a process 1 of the guest's own (--init) needs a root of its own, \
     since it would start the services of this host: --root, --image, --root-disk or --initrd name \
     one, and --root / the host's own";

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
        if spec.boot.init.is_some() && !guest::has_user_space(&spec) {
            return Err(Error::Contradiction(NO_ROOT_OF_ITS_OWN.to_owned()));
        }
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
        let mut spec = Spec::default();
        spec.boot.init = Some("/sbin/init".into());
        let error = CheckedSpec::new(spec.clone()).unwrap_err().to_string();
        assert!(error.contains("a root of its own"), "{error}");
        spec.root = spec::Root::Image("a".to_owned());
        assert!(CheckedSpec::new(spec.clone()).is_ok());
        for wrong in ["init", ""] {
            spec.boot.init = Some(wrong.into());
            let error = CheckedSpec::new(spec.clone()).unwrap_err().to_string();
            assert!(error.contains("absolute path"), "{error}");
        }
    }
}
