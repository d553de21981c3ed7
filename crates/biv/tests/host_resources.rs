//! What a restored machine is given of the host, as it is said to `biv restore`.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use biv::cli::{Cli, Verb};
use clap::Parser;
use domain::run::host_resources::HostResources;
use spec::{Directory, Net, Root, Spec};

fn parse(words: impl IntoIterator<Item = OsString>) -> HostResources {
    let line = ["biv", "restore"].into_iter().map(OsString::from);
    let line = line.chain(words).chain([OsString::from("a.snapshot")]);
    let cli = Cli::try_parse_from(line).expect("they are options");
    let Verb::Restore(restore) = cli.verb else { panic!("not restore") };
    restore.into_order().expect("it makes sense").host_resources
}

fn host_resources(words: &[&str]) -> HostResources {
    parse(words.iter().map(OsString::from))
}

const ALL: [&str; 20] = [
    "--root",
    "/srv/a root",
    "--root-rw",
    "--directory",
    "/home/me",
    "--volume",
    "/data:/data",
    "--volume",
    "/src:/usr/src:ro",
    "--disk",
    "/a,,b.img,ro,format=raw",
    "--net",
    "user,host,backend=passt",
    "--publish",
    "127.0.0.1:8080:80",
    "--publish",
    "53:53/udp",
    "--timeout",
    "2.5",
    "--disk=/other",
];

#[test]
fn words_say_the_same_again() {
    let all = host_resources(&ALL);
    assert_eq!(parse(all.words()), all);
    let disk = host_resources(&["--root-disk", "/img,part=2,ro", "--net", "tap:tap0"]);
    assert_eq!(parse(disk.words()), disk);
    let path = OsString::from_vec(b"/\xff\n".to_vec());
    let root = Directory { path: path.into(), ..Directory::default() };
    let odd = HostResources { root: Root::Directory(root), ..HostResources::default() };
    assert_eq!(parse(odd.words()), odd);
    assert_eq!(odd.shown(), "'--root=/\u{fffd}\\n'");
}

#[test]
fn a_description_has_them() {
    for words in [&ALL[..], &["--here", "--directory", "/home/me", "--net", "none"]] {
        let all = host_resources(words);
        let mut spec = Spec::default();
        all.clone().apply(&mut spec).unwrap();
        let text = spec.to_json();
        assert_eq!(HostResources::of(&Spec::parse(text.as_bytes()).unwrap()), all);
    }
}

#[test]
fn what_is_said_takes_the_place_of_what_was_recorded() {
    let all = host_resources(&ALL);
    assert_eq!(HostResources::default().or(all.clone()), all);
    let said = host_resources(&["--image", "pg", "--net", "none", "--volume", "/x:/y"]);
    let both = said.or(all.clone());
    assert_eq!((both.root, both.net), (Root::Image("pg".into()), Some(Net::None)));
    assert_eq!(both.mounts.len(), 1);
    assert_eq!((both.disks, both.publish), (all.disks, all.publish));
}

#[test]
fn what_is_wanted_has_to_be_named() {
    let missing = |said: &[&str], wanted: &[&str]| {
        host_resources(said).missing(&host_resources(wanted)).shown()
    };
    assert_eq!(missing(&[], &["--net", "none"]), "");
    let host = ["--directory", "/home/me", "--net", "user", "--timeout", "9"];
    assert_eq!(missing(&[], &host), "--directory=/home/me --net=user");
    assert_eq!(missing(&["--directory", "/tmp", "--net", "none"], &host), "");
    assert_eq!(missing(&["--root", "/srv"], &host), "--net=user");
    let root = ["--root", "/", "--directory", "/home/me", "--volume", "/a:/b"];
    assert_eq!(missing(&["--directory", "/tmp"], &root), "--root=/ --volume=/a:/b");
}
