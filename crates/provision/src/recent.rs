//! Chooses the kernel of the default guest among Debian's.
//!
//! Page faults are dear in a guest. Since 6.8 Linux has had folios of 16 to 64 KiB for the memory
//! of programs (Documentation/admin-guide/mm/transhuge.rst), which the guest's init switches on.
//! The first kernel since then that Debian supports for long is 6.12. So the default guest has that
//! kernel or a later one: from the host's own suite, or from the suite's backports. If the host's
//! apt offers neither, the guest has the newest that it offers, and `biv` warns the user.

use std::cmp::Ordering;
use std::path::Path;

use super::packages::{self, Packages};
use super::progress::Progress;
use super::{Error, kernels};

/// The first kernel that serves well.
const LEAST: &str = "6.12";

/// Debian's own packages, whose backports have kernels.
const DEBIANS: [&str; 2] = ["-cloud-amd64", "-amd64"];

/// Whether a kernel is [`LEAST`] or later, by the name of its package or of that one's file.
#[must_use]
pub fn is_recent(package: &str) -> bool {
    let release = package.trim_start_matches("linux-image-");
    kernels::compare(release, LEAST) != Ordering::Less
}

/// The package of the default guest's kernel, and who has it.
///
/// # Errors
///
/// The host's own sources have none.
pub fn choose(
    own_packages: Packages,
    work: &Path,
    progress: &Progress,
) -> Result<(Packages, String), Error> {
    let own = own_packages.kernel_package()?;
    let backports = || match packages::backports() {
        None => Err("apt's sources are not a release's".to_owned()),
        Some(suite) => in_suite(&suite, work, &own, progress).map_err(|error| error.to_string()),
    };
    match better(&own, backports) {
        Ok(None) => Ok((own_packages, own)),
        Ok(Some(newer)) => Ok(newer),
        Err(why) => {
            progress.tell(&format!(
                "the guest's kernel is {own}, because apt has none from {LEAST} on ({why}): \
                 programs that use much memory are slower with it"
            ));
            Ok((own_packages, own))
        }
    }
}

/// What to take instead of the package `own`, if anything; why there is nothing, if there should be.
fn better<T>(
    own: &str,
    backports: impl FnOnce() -> Result<(T, String), String>,
) -> Result<Option<(T, String)>, String> {
    if is_recent(own) {
        return Ok(None);
    }
    if !DEBIANS.iter().any(|end| own.ends_with(end)) {
        return Err("they are not Debian's".to_owned());
    }
    let (apt, found) = backports()?;
    if is_recent(&found) { Ok(Some((apt, found))) } else { Err(format!("backports have {found}")) }
}

/// The kernel of a suite that is like `own`.
fn in_suite(
    suite: &str,
    work: &Path,
    own: &str,
    progress: &Progress,
) -> Result<(Packages, String), packages::Error> {
    let mut packages = Packages::prepare(&work.join(suite))?;
    packages.use_suite(suite)?;
    packages.update(progress)?;
    let is_cloud = own.ends_with(DEBIANS[0]);
    let meta_package = if is_cloud { "linux-image-cloud-amd64" } else { "linux-image-amd64" };
    let package = packages.kernel_of(meta_package)?;
    Ok((packages, package))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "linux-image-6.1.0-56-cloud-amd64";
    const NEW: &str = "linux-image-6.12.95+deb12-cloud-amd64";

    /// What is taken instead of `own` where backports have this.
    fn check(own: &str, backports: Result<&str, &str>, expected: Result<Option<&str>, &str>) {
        let backports = || match backports {
            Ok(package) => Ok(((), package.to_owned())),
            Err(why) => Err(why.to_owned()),
        };
        let found = better(own, backports).map(|found| found.map(|((), package)| package));
        assert_eq!(found, expected.map(|it| it.map(str::to_owned)).map_err(str::to_owned), "{own}");
    }

    #[test]
    fn backports_are_asked_where_the_suite_has_an_old_kernel() {
        check(OLD, Ok(NEW), Ok(Some(NEW)));
        check("linux-image-6.1.0-56-amd64", Ok(NEW), Ok(Some(NEW)));
        check(NEW, Err("nobody asks"), Ok(None));
        check("linux-image-7.0-amd64", Err("nobody asks"), Ok(None));
    }

    #[test]
    fn what_there_is_is_taken_where_there_is_nothing_better() {
        check(OLD, Err("no network"), Err("no network"));
        check(OLD, Ok(OLD), Err(&format!("backports have {OLD}")));
        let ubuntus = "linux-image-6.8.0-31-generic";
        check(ubuntus, Ok(NEW), Err("they are not Debian's"));
    }

    #[test]
    fn a_kernel_is_recent_by_its_numbers() {
        assert!(!is_recent("linux-image-6.1.0-56-cloud-amd64_6.1.192-2_amd64.deb"));
        assert!(!is_recent("linux-image-6.9.7-amd64"));
        assert!(is_recent("linux-image-6.12.95+deb12-cloud-amd64_6.12.95-1~bpo12+1_amd64.deb"));
        assert!(is_recent("linux-image-6.16.3+deb14-amd64"));
    }
}
