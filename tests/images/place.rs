//! A cache of this test's own, with the default kernel and an image in it.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use provision::cache_directory;
use whole_machine::user::User;
use whole_machine::{biv, kernels, text};

/// What the image is called.
pub const IMAGE: &str = "everything";

/// A file system with nothing but the program.
const ROOT: &str = env!("IMAGES_ROOT");

/// See above; it goes away with this.
pub struct Place {
    pub path: PathBuf,
    /// Domains are here: names of sockets are short.
    runtime: PathBuf,
    user: User,
}

impl Place {
    /// An image with `/probe`, busybox and an empty `/tree`.
    pub fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        static FETCHED: Once = Once::new();
        FETCHED.call_once(|| {
            let output =
                biv(&["run", "--busybox", "--volume", "/usr:/mnt:ro", "--", "true"]).output();
            let output = output.expect("biv can be started");
            assert!(output.status.success(), "no default guest: {}", text(&output.stderr));
        });
        let name =
            format!("images-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let runtime = std::env::temp_dir().join(format!("biv-{name}"));
        let path = kernels::cache_directory().join(name);
        let user = User::new(&[], &runtime).with("XDG_CACHE_HOME", &path).at("/");
        let place = Place { path, runtime, user };
        fs::create_dir_all(&place.runtime).expect("there is room for tests");
        place.take_kernel();
        for directory in ["bin", "dev", "etc", "proc", "run", "sys", "tmp", "tree"] {
            fs::create_dir_all(place.root().join(directory)).expect("the target directory");
        }
        fs::write(place.image().join("recipe"), "by hand").expect("the target directory");
        copy(&Path::new(ROOT).join("probe"), &place.root().join("probe"));
        let busybox = host_cache().join("busybox/busybox");
        copy(&busybox, &place.root().join("bin/busybox"));
        for applet in
            ["sh", "cat", "grep", "mount", "rm", "mv", "ls", "touch", "chmod", "mkdir", "sleep"]
        {
            symlink("busybox", place.root().join("bin").join(applet))
                .expect("the target directory");
        }
        place
    }

    pub fn cache(&self) -> PathBuf {
        self.path.join("bivouac")
    }

    /// The image's directory in the cache.
    pub fn image(&self) -> PathBuf {
        self.cache().join("images").join(IMAGE)
    }

    pub fn root(&self) -> PathBuf {
        self.image().join("root")
    }

    pub fn tree(&self) -> PathBuf {
        self.root().join("tree")
    }

    /// The image as a disk.
    pub fn disk(&self) -> PathBuf {
        self.image().join("root-1.erofs")
    }

    /// The default kernel, file by file, as the user's cache has it.
    fn take_kernel(&self) {
        let (from, to) = (host_cache().join("kernel"), self.cache().join("kernel"));
        fs::create_dir_all(to.join("drivers")).expect("the target directory can be written");
        for part in ["", "drivers"] {
            for entry in fs::read_dir(from.join(part)).expect("the kernel is there") {
                let entry = entry.expect("the cache can be read");
                if entry.path().is_file() {
                    let link = to.join(part).join(entry.file_name());
                    symlink(entry.path(), link).expect("the target directory can be written");
                }
            }
        }
    }

    /// What a shell prints in a machine with the image for its root.
    #[track_caller]
    pub fn shell(&self, options: &[&str], script: &str) -> String {
        self.says(&[&["run", "--image", IMAGE], options, &["--", "/bin/sh", "-c", script]].concat())
    }
}

impl Deref for Place {
    type Target = User;

    fn deref(&self) -> &User {
        &self.user
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

fn host_cache() -> PathBuf {
    cache_directory().expect("there is a cache")
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}
