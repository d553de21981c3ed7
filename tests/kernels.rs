//! Debian's kernels, through apt with private state, unpacked once into the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use locks::Unpoisoned;

/// The package of Xen in Debian 12.
const XEN: &str = "xen-hypervisor-4.17-amd64";

/// The package of GRUB for paravirtual domains.
const PARAVIRTUAL_GRUB: &str = "grub-xen-host";

/// One at a time: they share apt's state.
static DOWNLOAD: Mutex<()> = Mutex::new(());

/// The kernel image of the newest package whose name matches `pattern` in `suite`, for example
/// `linux-image-6.12.*-cloud-amd64` in `bookworm-backports`.
///
/// # Panics
///
/// If apt cannot get it.
pub fn debian(suite: &str, meta_package: &str) -> PathBuf {
    let _one = DOWNLOAD.lock().unpoisoned();
    let done = cache_directory().join(format!("{suite}-{meta_package}"));
    if !done.exists() {
        let fetched = fetch(suite, meta_package, &done);
        fetched.unwrap_or_else(|reason| panic!("{meta_package} of {suite}: {reason}"));
    }
    done
}

/// The release of a kernel whose version begins so, which `biv kernel` has fetched with its modules from this suite,
/// for the user; fetched now if it is not there.
///
/// # Errors
///
/// Why it cannot be fetched.
pub fn pulled(suite: &str, version: &str) -> Result<String, String> {
    let _one = DOWNLOAD.lock().unpoisoned();
    let find = || {
        let all = provision::kernels::list().map_err(|error| error.to_string())?;
        // A newer one may be there without, from a `biv` that kept none.
        let mut found = all.into_iter().filter(|kernel| {
            kernel.release.starts_with(&format!("{version}.")) && kernel.modules().is_some()
        });
        Ok::<_, String>(found.next().map(|kernel| kernel.release))
    };
    if let Some(release) = find()? {
        return Ok(release);
    }
    succeed(&mut crate::biv(&["kernel", "pull", "--suite", suite, version]))?;
    find()?.ok_or_else(|| format!("{version} is not there, though it was fetched"))
}

/// A directory with such a kernel as `vmlinuz` and its modules in `lib/modules`, without an index.
///
/// # Errors
///
/// Why apt cannot get it.
pub fn debian_with_modules(suite: &str, meta_package: &str) -> Result<PathBuf, String> {
    let _one = DOWNLOAD.lock().unpoisoned();
    let done = cache_directory().join(format!("{suite}-{meta_package}-modules"));
    if !done.exists() {
        let apt = Apt::new(&format!("{suite}-{meta_package}-modules"), suite)?;
        apt.unpack(&apt.kernel_package(meta_package)?, "./boot ./lib")?;
        let io = |error: std::io::Error| error.to_string();
        let fresh = apt.work.join("fresh");
        fs::create_dir(&fresh).map_err(io)?;
        fs::rename(apt.image()?, fresh.join("vmlinuz")).map_err(io)?;
        fs::rename(apt.files().join("lib"), fresh.join("lib")).map_err(io)?;
        fs::rename(&fresh, &done).map_err(io)?;
    }
    Ok(done)
}

/// A directory with such a kernel as `vmlinuz` and what its modules are built with in `headers`.
///
/// # Errors
///
/// Why apt cannot get them.
pub fn debian_with_headers(suite: &str, meta_package: &str) -> Result<PathBuf, String> {
    let _one = DOWNLOAD.lock().unpoisoned();
    let done = cache_directory().join(format!("{suite}-{meta_package}-headers"));
    if !done.exists() {
        fetch_with_headers(suite, meta_package, &done)?;
    }
    Ok(done)
}

/// Debian's Xen, as GRUB would hand it over: a Multiboot kernel that is not compressed.
///
/// # Errors
///
/// Why apt cannot get it.
pub fn xen() -> Result<PathBuf, String> {
    file_of(XEN, "./boot", |files| {
        let unzip = "gunzip -c boot/xen-*-amd64.gz > xen";
        succeed(Command::new("sh").args(["-c", unzip]).current_dir(files))?;
        Ok(files.join("xen"))
    })
}

/// GRUB as a paravirtual kernel (PV-GRUB), as Debian has it: it looks for `/boot/grub/grub.cfg` on all disks.
///
/// # Errors
///
/// Why apt cannot get it.
pub fn paravirtual_grub() -> Result<PathBuf, String> {
    file_of(PARAVIRTUAL_GRUB, "./usr/lib/grub-xen", |files| {
        Ok(files.join("usr/lib/grub-xen/grub-x86_64-xen.bin"))
    })
}

/// The file that `find` finds among what `paths` names of a package of Debian 12.
fn file_of(
    package: &str,
    paths: &str,
    find: impl FnOnce(&Path) -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    let _one = DOWNLOAD.lock().unpoisoned();
    let done = cache_directory().join(package);
    if !done.exists() {
        let apt = Apt::new(package, "bookworm")?;
        apt.unpack(package, paths)?;
        let found = find(&apt.files())?;
        fs::rename(found, &done).map_err(|error| error.to_string())?;
    }
    Ok(done)
}

/// Beside the test's own executable, in the target directory.
pub fn cache_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(3).expect("tests are in TARGET/PROFILE/deps").join("test-kernels")
}

/// apt with the packages of one suite and state of its own, which goes with it.
struct Apt {
    work: PathBuf,
}

impl Apt {
    fn new(name: &str, suite: &str) -> Result<Apt, String> {
        let apt = Apt { work: cache_directory().join(format!("work-{name}")) };
        for below in ["state/lists/partial", "cache/archives/partial", "files"] {
            fs::create_dir_all(apt.work.join(below)).map_err(|error| error.to_string())?;
        }
        let line = format!("deb {} {suite} main\n", site());
        fs::write(apt.list(), line).map_err(|error| error.to_string())?;
        apt.run("apt-get", &["-q", "update"])?;
        Ok(apt)
    }

    fn list(&self) -> PathBuf {
        self.work.join("sources.list")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(["-o", &format!("Dir::State={}", self.work.join("state").display())]);
        command.args(["-o", &format!("Dir::Cache={}", self.work.join("cache").display())]);
        command.args(["-o", &format!("Dir::Etc::sourcelist={}", self.list().display())]);
        command.args(["-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root"]);
        succeed(command.args(arguments).current_dir(self.files()))
    }

    fn files(&self) -> PathBuf {
        self.work.join("files")
    }

    /// The kernel's package on which the meta package depends.
    fn kernel_package(&self, meta_package: &str) -> Result<String, String> {
        let depends = self.run("apt-cache", &["depends", "--no-recommends", meta_package])?;
        let mut names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let name = names.find(|name| name.starts_with("linux-image-"));
        name.map(str::to_owned).ok_or(format!("{meta_package} depends on no kernel: {depends}"))
    }

    /// Download a package and unpack what `paths` names.
    fn unpack(&self, package: &str, paths: &str) -> Result<(), String> {
        self.run("apt-get", &["-q", "download", package])?;
        let unpack = format!("dpkg-deb --fsys-tarfile {package}_*.deb | tar -x {paths}");
        succeed(Command::new("sh").args(["-c", &unpack]).current_dir(self.files())).map(|_| ())
    }

    /// The image among what has been unpacked.
    fn image(&self) -> Result<PathBuf, String> {
        let boot = fs::read_dir(self.files().join("boot")).map_err(|error| error.to_string())?;
        let mut images = boot.filter_map(Result::ok).filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with("vmlinuz")
        });
        images.next().map(|entry| entry.path()).ok_or("the package has no kernel".to_owned())
    }
}

impl Drop for Apt {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// What a command says, or what it complains about.
fn succeed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn fetch(suite: &str, meta_package: &str, done: &Path) -> Result<(), String> {
    let apt = Apt::new(&format!("{suite}-{meta_package}"), suite)?;
    apt.unpack(&apt.kernel_package(meta_package)?, "./boot")?;
    fs::rename(apt.image()?, done).map_err(|error| error.to_string())
}

fn fetch_with_headers(suite: &str, meta_package: &str, done: &Path) -> Result<(), String> {
    let apt = Apt::new(&format!("{suite}-{meta_package}-headers"), suite)?;
    let package = apt.kernel_package(meta_package)?;
    // linux-image-6.1.0-50-cloud-amd64
    let release = package.trim_start_matches("linux-image-");
    let parts: Vec<&str> = release.splitn(3, '-').collect();
    let [version, build, _] = parts[..] else { return Err(format!("what is {package}?")) };
    let series: Vec<&str> = version.split('.').take(2).collect();
    apt.unpack(&package, "./boot")?;
    for headers in [
        format!("linux-headers-{release}"),
        format!("linux-headers-{version}-{build}-common"),
        format!("linux-kbuild-{}", series.join(".")),
    ] {
        apt.unpack(&headers, "./usr")?;
    }
    let io = |error: std::io::Error| error.to_string();
    let fresh = apt.work.join("fresh");
    fs::create_dir(&fresh).map_err(io)?;
    fs::rename(apt.image()?, fresh.join("vmlinuz")).map_err(io)?;
    fs::rename(apt.files().join("usr"), fresh.join("usr")).map_err(io)?;
    // Wherever it is, the directory can be moved.
    let (usual, beside) = ("/usr/src", "$(dir $(lastword $(MAKEFILE_LIST)))..");
    let makefile = fresh.join("usr/src").join(format!("linux-headers-{release}/Makefile"));
    let text = fs::read_to_string(&makefile).map_err(io)?;
    fs::write(&makefile, text.replace(usual, beside)).map_err(io)?;
    let headers = format!("usr/src/linux-headers-{release}");
    std::os::unix::fs::symlink(headers, fresh.join("headers")).map_err(io)?;
    fs::rename(&fresh, done).map_err(io)
}

/// Where the host's apt gets Debian from.
///
/// # Panics
///
/// If it has no source of it.
pub fn site() -> String {
    let targets = Command::new("apt-get")
        .args(["indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)"])
        .output()
        .expect("apt can be started");
    String::from_utf8_lossy(&targets.stdout)
        .lines()
        .find(|line| line.ends_with("main") && !line.contains("security"))
        .and_then(|line| line.split(' ').next())
        .expect("the host's apt has a source of Debian's main packages")
        .to_owned()
}
