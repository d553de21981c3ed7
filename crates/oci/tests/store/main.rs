//! The store: images of layouts and archives come in whole or not at all, stay as they were published, share what they
//! share, and leave nothing.

#![forbid(unsafe_code)]

mod made;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use oci::bundle::Bundle;
use oci::import::{self, Loaded};
use oci::{Digest, Error, Name, Source, Store, export};

use self::made::{Layer, Layout, docker_archive, gzip, tar};

/// A directory with a store, which goes away with this.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("store-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn store(&self) -> Store {
        Store::at(self.0.join("store"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn load(&self, source: &str, wanted: Option<&str>) -> Result<Vec<Loaded>, Error> {
        let store = self.store();
        let adding = store.add()?;
        let source: Source = source.parse()?;
        let bundle = Bundle::open(&source, &adding)?.expect("a file");
        import::load(&adding, &bundle, wanted)
    }

    fn layout(&self, layout: &Layout) -> String {
        layout.write(&self.path("layout"));
        format!("oci:{}", self.path("layout").display())
    }

    /// The files of the store below a directory.
    fn files(&self, below: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path("store").join(below)).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn layers() -> [Layer; 2] {
    [
        Layer::gzip(tar(&[("etc/passwd", "root:x:0:0::/root:/bin/sh\n")])),
        Layer::plain(tar(&[("a", "b")])),
    ]
}

#[test]
fn an_image_of_a_layout_comes_in_and_out_as_it_was() {
    let place = Place::new();
    let layout = Layout::new(&layers()).named("quay.io/someone/thing:1");
    let loaded = place.load(&place.layout(&layout), None).unwrap();
    assert_eq!(loaded[0].names, [Name::parse("quay.io/someone/thing:1").unwrap()]);
    let store = place.store();
    let image = store.find("quay.io/someone/thing:1").unwrap().unwrap();
    assert_eq!(image.text, layout.manifest);
    assert_eq!(image.configuration_text, layout.configuration);
    let defaults = image.defaults();
    assert_eq!(
        (defaults.entrypoint.as_slice(), defaults.command.as_slice()),
        (&["/entry".to_owned()][..], &["x".to_owned()][..])
    );
    let files = store.layers(&image).unwrap();
    assert!(files.len() == 2 && files.iter().all(|file| file.is_file()));
    // By its digest, and by the beginning of that.
    for text in [image.digest.to_string(), image.digest.hex()[..12].to_owned()] {
        assert_eq!(store.find(&text).unwrap().unwrap().digest, image.digest);
    }
    // Once more, nothing changes.
    let before = (place.files("blobs/sha256"), place.files("layers"));
    place.load(&place.layout(&layout), None).unwrap();
    assert_eq!((place.files("blobs/sha256"), place.files("layers")), before);
    // As an archive, for others.
    let path = place.path("saved.tar");
    let mut file = File::create(&path).unwrap();
    export::save(&store, &[(image.clone(), Vec::new())], &mut file, &path).unwrap();
    for kind in ["oci-archive", "docker-archive"] {
        let other = Place::new();
        let loaded = other.load(&format!("{kind}:{}", path.display()), None).unwrap();
        assert_eq!(loaded[0].digest, image.digest);
        assert_eq!(
            other.store().find("quay.io/someone/thing:1").unwrap().unwrap().text,
            image.text
        );
    }
}

#[test]
fn what_docker_saved_comes_in() {
    let place = Place::new();
    for (name, packed) in [("plain.tar", false), ("packed.tar.gz", true)] {
        let archive = docker_archive(&layers(), &["thing:2", "other/name:x"]);
        let archive = if packed { gzip(&archive) } else { archive };
        fs::write(place.path(name), archive).unwrap();
        let source = format!("docker-archive:{}", place.path(name).display());
        let loaded = place.load(&source, None).unwrap();
        let names: Vec<_> = loaded[0].names.iter().map(Name::to_string).collect();
        assert_eq!(names, ["docker.io/library/thing:2", "docker.io/other/name:x"]);
        // One by its name; and none that is not there.
        assert_eq!(place.load(&source, Some("thing:2")).unwrap(), loaded);
        let error = place.load(&source, Some("thing:3")).unwrap_err().to_string();
        assert!(error.contains("thing:2"), "{error}");
    }
    let image = place.store().find("thing:2").unwrap().unwrap();
    assert_eq!(image.manifest.layers.len(), 2);
    assert_eq!(place.store().list().unwrap().len(), 2, "it is one image with two names");
    assert!(place.files("work").is_empty());
}

#[test]
fn layers_are_shared_and_go_with_the_last_image() {
    let place = Place::new();
    let [base, top] = layers();
    let one = Layout::new(std::slice::from_ref(&base)).named("one:1");
    let both = Layout::new(&[base, top]).named("two:1");
    place.load(&place.layout(&one), None).unwrap();
    place.load(&place.layout(&both), None).unwrap();
    let store = place.store();
    assert_eq!(place.files("layers").len(), 2);
    assert!(store.remove("two:1").unwrap());
    assert_eq!(place.files("layers").len(), 1, "the other image has it, too");
    assert!(store.layers(&store.find("one:1").unwrap().unwrap()).is_ok());
    assert!(!store.remove("two:1").unwrap());
    assert!(store.remove("one:1").unwrap());
    assert!(place.files("layers").is_empty() && place.files("blobs/sha256").is_empty());
}

#[test]
fn names_are_given_and_taken() {
    let place = Place::new();
    let [base, top] = layers();
    let one = place.load(&place.layout(&Layout::new(&[base]).named("a:1")), None).unwrap();
    let store = place.store();
    let name = |text: &str| Name::parse(text).unwrap();
    store.tag("a:1", &name("localhost/b")).unwrap();
    let found = |text: &str| store.find(text).unwrap().map(|image| image.digest);
    // A short name may be one of this host.
    assert_eq!(found("b"), Some(one[0].digest));
    let two = place.load(&place.layout(&Layout::new(&[top]).named("a:1")), None).unwrap();
    assert_eq!(found("a:1"), Some(two[0].digest), "the name is another's now");
    assert_eq!(found("b"), Some(one[0].digest));
    store.tag("a:1", &name("localhost/b")).unwrap();
    // The first has no name any more, and is there.
    assert_eq!(found(&one[0].digest.to_string()), Some(one[0].digest));
    assert_eq!(store.list().unwrap().len(), 3);
    assert_eq!(store.prune().unwrap(), 1);
    assert_eq!(found(&one[0].digest.to_string()), None);
    assert_eq!(place.files("layers").len(), 1);
    assert!(matches!(store.tag("missing", &name("x")), Err(Error::NoImage(_))));
    // All names go with the image.
    assert!(store.remove(&two[0].digest.to_string()).unwrap());
    assert!(store.list().unwrap().is_empty());
    assert!(store.find("No Name").is_err() && store.find("").is_err());
}

#[test]
fn what_is_not_what_its_digest_says_does_not_come_in() {
    let place = Place::new();
    let layout = Layout::new(&layers()).named("bad:1");
    let source = place.layout(&layout);
    let blob = |digest: &Digest| place.path("layout/blobs/sha256").join(digest.hex());
    let check = |path: &Path, change: &dyn Fn(&mut Vec<u8>), why: &str| {
        let good = fs::read(path).unwrap();
        let mut bad = good.clone();
        change(&mut bad);
        fs::write(path, bad).unwrap();
        let error = place.load(&source, None).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(place.store().list().unwrap().is_empty());
        fs::write(path, good).unwrap();
    };
    let flip = |bytes: &mut Vec<u8>| bytes[10] ^= 1;
    let [manifest, configuration] =
        [&layout.manifest, &layout.configuration].map(|text| Digest::of(text));
    check(&blob(&manifest), &flip, "digest");
    check(&blob(&configuration), &flip, "digest");
    check(&blob(&layout.layers[0]), &flip, "digest");
    check(&blob(&layout.layers[1]), &|bytes| bytes.push(0), "bytes");
    check(&blob(&layout.layers[1]), &|bytes| bytes.truncate(512), "bytes");
    fs::rename(blob(&layout.layers[1]), place.path("away")).unwrap();
    assert!(place.load(&source, None).unwrap_err().to_string().contains("has no"));
    fs::rename(place.path("away"), blob(&layout.layers[1])).unwrap();
    place.load(&source, None).unwrap();
}

#[test]
fn a_layer_that_is_another_unpacked_does_not_come_in() {
    let place = Place::new();
    let [mut base, top] = layers();
    base.diff_id = Digest::of(b"something else");
    let error = place.load(&place.layout(&Layout::new(&[base, top])), None).unwrap_err();
    assert!(matches!(&error, Error::Digest { what, .. } if what.contains("unpacked")), "{error}");
    assert!(place.files("layers").is_empty());
    // What came before it is of no use, and goes with the next that is removed.
    place.store().prune().unwrap();
    assert!(place.files("blobs/sha256").is_empty());
}

#[test]
fn what_no_machine_can_run_does_not_come_in() {
    let place = Place::new();
    let check = |layout: &Layout, why: &str| {
        let error = place.load(&place.layout(layout), None).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    check(&Layout::new(&layers()).changed(|text| text.replace("amd64", "arm64")), "linux/arm64");
    check(
        &Layout::new(&layers()).changed(|text| text.replace("\"linux\"", "\"windows\"")),
        "windows",
    );
    let [base, top] = layers();
    let fewer = Layout::new(&[base, top]).changed(|text| {
        let at = text.find("\"diff_ids\":[").unwrap() + 12;
        format!("{}{}", &text[..at], &text[text[at..].find(',').unwrap() + at + 1..])
    });
    check(&fewer, "another number of layers");
    check(&Layout::new(&layers()).changed(|_| "nonsense".to_owned()), "makes no sense");
    let hostile = Layer::plain(tar(&[("../../etc/cron.d/x", "* * * * * root sh\n")]));
    check(&Layout::new(&[hostile]), "leads out");
    fs::write(place.path("layout/index.json"), "[]").unwrap();
    let source = format!("oci:{}", place.path("layout").display());
    assert!(place.load(&source, None).unwrap_err().to_string().contains("index.json"));
    assert!(place.load(&format!("oci:{}", place.path("none").display()), None).is_err());
    fs::write(place.path("text"), "no archive, but long enough to be a header".repeat(20)).unwrap();
    for kind in ["oci-archive", "docker-archive"] {
        assert!(place.load(&format!("{kind}:{}", place.path("text").display()), None).is_err());
    }
    assert!(place.store().list().unwrap().is_empty());
}

#[test]
fn several_at_once_are_as_one_after_the_other() {
    let place = Place::new();
    let many: Vec<_> =
        (0..4).map(|n| Layer::gzip(tar(&[(&format!("file{n}"), &"x".repeat(100_000))]))).collect();
    let layout = Layout::new(&many).named("same:1");
    let source = place.layout(&layout);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (place, source) = (&place, &source);
            scope.spawn(move || {
                for round in 0..3 {
                    let loaded = place.load(source, None).unwrap();
                    let name = Name::parse(&format!("mine{number}:{round}")).unwrap();
                    place.store().tag(&loaded[0].digest.to_string(), &name).unwrap();
                    // Who removes meanwhile takes nothing that somebody needs.
                    place.store().prune().unwrap();
                    let image = place.store().find(name.as_str()).unwrap().unwrap();
                    let layers = place.store().layers(&image).unwrap();
                    assert!(layers.iter().all(|layer| layer.exists()));
                }
            });
        }
    });
    assert_eq!(place.store().list().unwrap().len(), 1 + 18);
    assert_eq!(place.files("layers").len(), 4);
    assert_eq!(place.files("blobs/sha256").len(), 6);
}
