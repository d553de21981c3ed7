//! What the systems are given: `biv` itself, a kernel, and each file system as a directory and as
//! an archive for a machine's memory.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;

use provision::initramfs::cpio::{Archive, Metadata, mode};
use provision::initramfs::tree;
use provision::{self, Guest, Part, VIRTIO};

use crate::group::Group;
use crate::number::{Root, Work};
use crate::numbers;
use crate::options::Options;
use crate::root::{self, Applications};

/// The guest's runner.
const RUNNER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runner"));

/// Why there is nothing to measure with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `biv` itself.
    #[error("cannot build biv: cargo build --release -p biv says why")]
    Build,
    /// The kernel.
    #[error(transparent)]
    Kernel(#[from] provision::Error),
    /// A file of ours.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The applications.
    #[error(transparent)]
    Root(#[from] root::Error),
    /// A file that goes into an archive.
    #[error(transparent)]
    Pack(#[from] tree::Error),
}

/// Everything; removed when dropped, but for what is cached.
#[derive(Debug)]
pub struct Files {
    /// The program that is measured, and others that it is compared with, by name.
    pub programs: Vec<(String, PathBuf)>,
    /// A bzImage.
    pub kernel: PathBuf,
    /// The CPU for systems that are kept on one.
    pub cpu: Option<String>,
    /// Where systems run, if that can be.
    pub group: Option<Group>,
    applications: Option<Applications>,
    work: PathBuf,
}

impl Files {
    /// Build, fetch and pack what `options` need.
    pub fn prepare(options: &Options) -> Result<Files, Error> {
        let programs = match options.programs_of_biv.as_slice() {
            [] => vec![("biv".to_owned(), build()?)],
            named => named.to_vec(),
        };
        let guest = Guest::provide(&[Part::Kernel, Part::Drivers])?;
        let applications = options.needs(Root::Applications).then(root::provide).transpose()?;
        let work = std::env::temp_dir().join(format!("bivouac-bench-{}", std::process::id()));
        let kernel = guest.kernel();
        let files =
            Files { programs, kernel, cpu: last_cpu(), group: Group::new(), applications, work };
        let directory = files.work.join("programs");
        install(&directory)?;
        install_modules(&directory, &guest)?;
        pack(&directory, &files.archive())?;
        Ok(files)
    }

    /// A file system as a directory; [`Files::bench`] belongs at /bench in it.
    pub fn directory(&self, root: Root) -> PathBuf {
        match (root, &self.applications) {
            (Root::Applications, Some(applications)) => applications.directory.clone(),
            _ => self.work.join("programs"),
        }
    }

    /// A file system as an image for a disk, if it is not the archive.
    pub fn disk(&self, root: Root) -> Option<&Path> {
        let is_disk = root == Root::Applications;
        self.applications.as_ref().filter(|_| is_disk).map(|made| made.image.as_path())
    }

    /// The runner and its scripts.
    pub fn bench(&self) -> PathBuf {
        self.work.join("programs/bench")
    }

    /// The runner, its scripts and a kernel's modules as a cpio archive.
    pub fn archive(&self) -> PathBuf {
        self.work.join("programs.cpio")
    }

    /// A new directory for what one start of a system needs.
    pub fn scratch(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.work.join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left in the temporary directory is the host's to clean up.
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// Build the program with the profile and into the directory of this one.
fn build() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(|error| at(Path::new("/proc/self/exe"))(error))?;
    let profile = own.parent().ok_or(Error::Build)?;
    let target = profile.parent().ok_or(Error::Build)?;
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "-p", "biv", "--target-dir"])
        .arg(target)
        .status();
    let built = status.is_ok_and(|status| status.success());
    built.then(|| target.join("release/biv")).ok_or(Error::Build)
}

/// Directories that are mounted on.
const MOUNT_POINTS: [&str; 6] = ["dev", "proc", "sys", "tmp", "run", "var"];

/// Make a root of the runner and its scripts, with what it mounts on.
fn install(root: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let write = |name: &str, contents: &[u8]| {
        let path = root.join("bench").join(name);
        let directory = path.parent().unwrap_or(root);
        fs::create_dir_all(directory).map_err(at(directory))?;
        fs::write(&path, contents).map_err(at(&path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(at(&path))
    };
    for name in MOUNT_POINTS {
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(at(&path))?;
    }
    for number in numbers::ALL {
        if let Work::Program(program) = &number.work {
            write(&format!("{}/prepare", number.name), program.preparation().as_bytes())?;
            write(&format!("{}/run", number.name), program.run.as_bytes())?;
        }
    }
    write("runner", RUNNER)
}

/// What a kernel needs for a disk, with names in the order in which it is loaded.
fn install_modules(root: &Path, guest: &Guest) -> Result<(), Error> {
    let names = [VIRTIO, &["virtio_blk", "xen-blkfront"]].concat();
    let directory = root.join("modules");
    fs::create_dir_all(&directory).map_err(at(&directory))?;
    for (index, (name, path)) in guest.drivers(&names).into_iter().enumerate() {
        fs::copy(&path, directory.join(format!("{index:02}-{name}.ko"))).map_err(at(&path))?;
    }
    Ok(())
}

/// Pack a directory with the console that a kernel opens for init.
fn pack(root: &Path, archive: &Path) -> Result<(), Error> {
    let file = File::create(archive).map_err(at(archive))?;
    let mut packed = Archive::new(BufWriter::new(file));
    tree::pack(&mut packed, root, tree::Owners::OfFiles)?;
    let console = Metadata { device: (5, 1), ..Metadata::new(mode::CHARACTER_DEVICE | 0o600) };
    packed.add(b"dev/console", console, &[]).map_err(at(archive))?;
    packed.finish().map(drop).map_err(at(archive))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |error| Error::File { path, error }
}

/// The last CPU that we may use: the first ones have more interrupts.
fn last_cpu() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().rsplit([',', '-']).next().map(str::to_owned)
}
