//! Debian's kernels, through apt with private state, unpacked once into the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// One at a time: they share apt's state.
static DOWNLOAD: Mutex<()> = Mutex::new(());

/// The kernel image of the newest package whose name matches `pattern` in `suite`, for example
/// `linux-image-6.12.*-cloud-amd64` in `bookworm-backports`.
pub fn debian(suite: &str, meta_package: &str) -> PathBuf {
    let _one = DOWNLOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let home = cache_directory();
    let done = home.join(format!("{suite}-{meta_package}"));
    if !done.exists() {
        fetch(&home, suite, meta_package, &done);
    }
    done
}

/// Beside the test's own executable, in the target directory.
pub fn cache_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(3).expect("tests are in TARGET/PROFILE/deps").join("test-kernels")
}

fn fetch(home: &Path, suite: &str, meta_package: &str, done: &Path) {
    let work = home.join(format!("work-{suite}-{meta_package}"));
    for below in ["state/lists/partial", "cache/archives/partial", "files"] {
        fs::create_dir_all(work.join(below)).expect("the target directory can be written");
    }
    let list = work.join("sources.list");
    fs::write(&list, format!("deb {} {suite} main\n", site())).expect("a file can be written");
    let apt = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-o", &format!("Dir::State={}", work.join("state").display())]);
        command.args(["-o", &format!("Dir::Cache={}", work.join("cache").display())]);
        command.args(["-o", &format!("Dir::Etc::sourcelist={}", list.display())]);
        command.args(["-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root"]);
        let output = command.args(arguments).current_dir(work.join("files")).output();
        let output = output.expect("apt can be started");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    apt("apt-get", &["-q", "update"]);
    let depends = apt("apt-cache", &["depends", "--no-recommends", meta_package]);
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .unwrap_or_else(|| panic!("{meta_package} depends on no kernel: {depends}"))
        .to_owned();
    apt("apt-get", &["-q", "download", &package]);
    let files = work.join("files");
    let unpack = format!("dpkg-deb --fsys-tarfile {package}_*.deb | tar -x ./boot");
    let status = Command::new("sh").args(["-c", &unpack]).current_dir(&files).status();
    assert!(status.is_ok_and(|status| status.success()), "cannot unpack {package}");
    let image = fs::read_dir(files.join("boot"))
        .expect("the package has a /boot")
        .filter_map(Result::ok)
        .find(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz"))
        .expect("the package has a kernel");
    fs::rename(image.path(), done).expect("the target directory can be written");
    let _ = fs::remove_dir_all(&work);
}

/// Where the host's apt gets Debian from.
pub(crate) fn site() -> String {
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
