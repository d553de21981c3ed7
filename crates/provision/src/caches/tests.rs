use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// A directory of a test's, with a place for caches.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("biv-caches-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("caches")).unwrap();
        Self(path)
    }

    fn place(&self) -> Place {
        Place::open(self.0.join("caches")).unwrap()
    }

    fn hold(&self, name: &str) -> Held {
        self.place().hold(name).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("caches")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_is_in_use_is_not_removed_and_then_nothing_is_left() {
    let home = Home::new("use");
    let (one, other) = (home.hold("a"), home.hold("a"));
    assert_eq!(fs::metadata(home.0.join("caches/a")).unwrap().mode() & 0o777, 0o700);
    drop(one);
    assert!(matches!(home.place().remove("a"), Err(Error::InUse(name)) if name == "a"));
    assert!(home.place().list().unwrap()[0].in_use);
    drop(other);
    let listed = home.place().list().unwrap();
    assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].in_use), (1, "a", false));
    assert!(listed[0].age.unwrap() < Duration::from_secs(600));
    home.place().remove("a").unwrap();
    assert_eq!(home.names(), [".lock"]);
    assert!(matches!(home.place().remove("a"), Err(Error::None(_))));
}

#[test]
fn links_are_no_caches() {
    let home = Home::new("links");
    fs::create_dir(home.0.join("elsewhere")).unwrap();
    fs::write(home.0.join("elsewhere/kept"), "").unwrap();
    symlink("../elsewhere", home.0.join("caches/a")).unwrap();
    assert!(home.place().hold("a").is_err());
    assert!(home.place().list().unwrap().is_empty());
    assert!(home.place().remove("a").is_err());
    assert!(home.0.join("elsewhere/kept").exists());
}

#[test]
fn what_a_guest_leaves_is_counted_and_removed_and_nothing_else() {
    let home = Home::new("tree");
    drop(home.hold("a"));
    let cache = home.0.join("caches/a");
    fs::write(home.0.join("kept"), vec![1; 1 << 20]).unwrap();
    for (link, target) in [("file", "../../kept"), ("up", "../.."), ("root", "/"), ("loop", "loop")]
    {
        symlink(target, cache.join(link)).unwrap();
    }
    assert!(home.place().list().unwrap()[0].bytes < 1 << 20, "a link is not followed");
    fs::write(cache.join("big"), vec![1; 1 << 20]).unwrap();
    fs::hard_link(cache.join("big"), cache.join("same")).unwrap();
    let bytes = home.place().list().unwrap()[0].bytes;
    assert!((1 << 20..3 << 19).contains(&bytes), "{bytes}");
    // As Go leaves its modules, and as somebody does who wants to keep them.
    fs::create_dir_all(cache.join("read/only/deep")).unwrap();
    fs::write(cache.join("read/only/deep/file"), "").unwrap();
    fs::create_dir_all(cache.join(".moved-0/.moved-1/x")).unwrap();
    symlink("../..", cache.join(".moved-0/.moved-1/x/up")).unwrap();
    for (directory, mode) in [("read/only/deep", 0o555), ("read/only", 0), ("read", 0o500)] {
        chmod(&cache.join(directory), mode);
    }
    home.place().remove("a").unwrap();
    assert_eq!(home.names(), [".lock"]);
    assert_eq!(fs::metadata(home.0.join("kept")).unwrap().len(), 1 << 20);
}

#[test]
fn a_tree_may_be_deeper_than_any_path() {
    const DEPTH: usize = 3000;
    let home = Home::new("deep");
    let held = home.hold("a");
    let mut directory = rustix::io::dup(held.directory()).unwrap();
    for _ in 0..DEPTH {
        mkdirat(&directory, "below", Mode::RWXU).unwrap();
        directory = tree::open(&directory, "below").unwrap();
    }
    drop((held, directory));
    assert_eq!(home.place().list().unwrap().len(), 1);
    home.place().remove("a").unwrap();
    assert_eq!(home.names(), [".lock"]);
}

#[test]
fn what_was_not_removed_to_its_end_goes_with_the_next() {
    let home = Home::new("rest");
    fs::create_dir_all(home.0.join("caches/.gone-1-0/x/y")).unwrap();
    drop(home.hold("a"));
    home.place().remove("a").unwrap();
    assert_eq!(home.names(), [".lock"]);
}
