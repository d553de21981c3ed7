//! Caches that a description names (`biv run --cache`), as directories of the host in the guest: each is a volume whose
//! directory `biv` makes and keeps ([`provision::caches`]).
//!
//! A path below the command's home directory, and the usual place of a tool, depend on who runs the command. What the
//! description says of the command's environment comes first, since the tool will go by that.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use provision::caches::{self, Held};
use session::homes;
use spec::{Cache, Mount, Spec, Usual};

use super::error::Error;

/// Where root is at home in a guest that is not like the host.
const OF_ROOT: &str = "/root";

/// Root, as somebody may call it in a description.
const ROOT: [&str; 2] = ["root", "0"];

/// The directories of the host that a guest mounts: volumes, and caches.
///
/// # Errors
///
/// The place of a cache is not known.
pub fn volumes(spec: &Spec, is_the_host: bool) -> Result<Vec<Mount>, Error> {
    let mut volumes = spec.mounts.clone();
    for cache in &spec.caches {
        // Whoever may be hostile does not leave something there for others, unless that is said.
        let read_only = cache.read_only.unwrap_or(spec.sandbox);
        for (name, guest) in places(cache, spec, is_the_host)? {
            let host = caches::path_of(&name)?;
            volumes.push(Mount { host, guest, read_only, ..Mount::default() });
        }
    }
    Ok(volumes)
}

/// Takes the cache whose directory is mounted, if it is one.
///
/// # Errors
///
/// It cannot be made.
pub fn hold(volume: &Mount) -> Result<Option<Held>, Error> {
    let name = caches::name_of(&volume.host);
    Ok(name.map(|name| caches::hold(&name)).transpose()?)
}

/// The user and the group of the command, if they are said by their numbers; the group is root's if it is not said.
pub fn user(spec: &Spec) -> Option<(u32, u32)> {
    let user = spec.process.user.as_deref()?;
    let (user, group) = user.split_once(':').unwrap_or((user, "0"));
    Some((user.parse().ok()?, group.parse().ok()?))
}

/// Which caches are meant, and where they are in the guest.
fn places(cache: &Cache, spec: &Spec, is_the_host: bool) -> Result<Vec<(String, PathBuf)>, Error> {
    let home = || home(spec, is_the_host).ok_or_else(|| Error::NoHome(cache.name.clone()));
    if let Some(below) = cache.below_home() {
        return Ok(vec![(cache.name.clone(), home()?.join(below))]);
    }
    if let Some(guest) = &cache.guest {
        return Ok(vec![(cache.name.clone(), guest.clone())]);
    }
    let place = |usual: Usual| {
        let said = variable(spec, usual.variable).map(PathBuf::from);
        let guest = match said.filter(|said| said.is_absolute()) {
            Some(said) if usual.below_variable.is_empty() => said,
            Some(said) => said.join(usual.below_variable),
            None => home()?.join(usual.below_home),
        };
        Ok((usual.cache.to_owned(), guest))
    };
    Usual::of(&cache.name).map(place).collect()
}

/// The home directory of who runs the command, as the command will have it, if that is known out here.
fn home(spec: &Spec, is_the_host: bool) -> Option<PathBuf> {
    if let Some(said) = variable(spec, "HOME") {
        return Some(PathBuf::from(said)).filter(|home| home.is_absolute());
    }
    match spec.process.user.as_deref() {
        Some(user) if is_the_host => homes::of(user),
        None if is_the_host => {
            homes::own(std::env::var_os("HOME").map(PathBuf::from)).into_iter().next()
        }
        None | Some("") => Some(OF_ROOT.into()),
        Some(user) => {
            let name = user.split(':').next().unwrap_or_default();
            ROOT.contains(&name).then(|| OF_ROOT.into())
        }
    }
}

/// What the description says of a variable of the command's environment.
fn variable(spec: &Spec, name: &str) -> Option<OsString> {
    let value = |variable: &OsString| {
        let rest = variable.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(OsStr::from_bytes(rest).as_bytes().to_vec())
    };
    // The last one counts.
    spec.process.env.iter().rev().find_map(value).map(OsString::from_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a cache is in a guest, and how.
    fn placed(word: &str, is_the_host: bool, change: impl FnOnce(&mut Spec)) -> Vec<String> {
        let mut spec = Spec { caches: vec![word.parse().unwrap()], ..Spec::default() };
        change(&mut spec);
        let volumes = volumes(&spec, is_the_host).unwrap();
        let shown = |volume: &Mount| {
            let (name, how) = (volume.host.file_name().unwrap(), volume.read_only);
            let how = if how { "ro" } else { "rw" };
            format!("{} {} {how}", name.display(), volume.guest.display())
        };
        volumes.iter().map(shown).collect()
    }

    #[test]
    fn a_cache_is_where_its_tool_looks() {
        assert_eq!(placed("x:/a", false, |_| {}), ["x /a rw"]);
        assert_eq!(placed("x:~/a", false, |_| {}), ["x /root/a rw"]);
        let cargo = ["cargo /root/.cargo/registry rw", "cargo-git /root/.cargo/git rw"];
        assert_eq!(placed("cargo", false, |_| {}), cargo);
        assert_eq!(placed("cargo", true, |spec| spec.process.user = Some("0:0".into())), cargo);
        let go = |spec: &mut Spec| spec.process.env = vec!["GOPATH=/x".into(), "GOPATH=/go".into()];
        assert_eq!(
            placed("go", false, go),
            ["go /go/pkg/mod rw", "go-build /root/.cache/go-build rw"]
        );
        let home = |spec: &mut Spec| spec.process.env = vec!["HOME=/h".into()];
        assert_eq!(placed("npm", true, home), ["npm /h/.npm rw"]);
        let pip = |spec: &mut Spec| spec.process.env = vec!["PIP_CACHE_DIR=/p".into()];
        assert_eq!(placed("pip", true, pip), ["pip /p rw"]);
    }

    #[test]
    fn a_sandbox_does_not_write_unless_that_is_said() {
        let sandbox = |spec: &mut Spec| spec.sandbox = true;
        assert_eq!(placed("x:/a", false, sandbox), ["x /a ro"]);
        assert_eq!(placed("x:/a:rw", false, sandbox), ["x /a rw"]);
        assert_eq!(placed("x:/a:ro", false, |_| {}), ["x /a ro"]);
    }

    #[test]
    fn who_is_at_home_in_an_image_is_not_known() {
        let mut spec = Spec { caches: vec!["npm".parse().unwrap()], ..Spec::default() };
        spec.process.user = Some("node".into());
        let error = volumes(&spec, false).unwrap_err().to_string();
        assert!(error.contains("npm:PATH"), "{error}");
    }
}
