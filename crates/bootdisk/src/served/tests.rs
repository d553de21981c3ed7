//! Machines that answer well, and others.

use std::collections::BTreeMap;

use super::*;
use crate::tests::{MIB, UUID, ext4, fat, gpt};
use crate::{Bootable, find};

/// A machine that has these files; a text that begins with `->` is a link.
#[derive(Default)]
struct Answering {
    files: BTreeMap<String, String>,
    /// What it has been asked, and has not answered.
    asked: Vec<u8>,
    answer: VecDeque<u8>,
}

impl Answering {
    fn new(files: &[(&str, &str)]) -> Box<Self> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Box::new(Self { files: files.collect(), ..Self::default() })
    }

    fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.keys().filter_map(move |file| file.strip_prefix(path)?.strip_prefix('/'))
    }

    fn reply(&self, verb: &str, path: &str) -> String {
        let file = self.files.get(path);
        match (verb, file) {
            ("mount", _)
                if self
                    .below(&format!("/v/{}", path.split(' ').nth(1).unwrap()))
                    .next()
                    .is_none() =>
            {
                "failed mount: no such\n".to_owned()
            }
            ("mount", _) => "mounted\n".to_owned(),
            ("stat", Some(text)) => match text.strip_prefix("->") {
                Some(target) => format!("a1ff {}\n", target.len()),
                None => format!("81a4 {}\n", text.len()),
            },
            ("stat", None) if self.below(path).next().is_some() => "41ed 0\n".to_owned(),
            ("stat", None) => "-\n".to_owned(),
            ("link", Some(text)) => format!("{}\0", &text[2..]),
            ("list", None) => {
                let names = self.below(path).filter_map(|file| file.split('/').next());
                names.map(|name| format!("{path}/{name}\0")).collect::<String>() + "\0"
            }
            ("read", Some(text)) => text.clone(),
            other => panic!("{path} is asked for: {other:?}"),
        }
    }
}

impl Write for Answering {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.asked.extend(bytes);
        let text = String::from_utf8(self.asked.clone()).unwrap();
        if let [verb, path, ""] = text.split('\n').collect::<Vec<_>>()[..] {
            assert!(!path.contains("/.."), "{path}");
            self.answer.extend(self.reply(verb, path).into_bytes());
            self.asked.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Answering {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.answer.read(into)
    }
}

/// One that says this, whatever it is asked.
struct Saying<R>(R);

impl<R: Read> Read for Saying<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl<R> Write for Saying<R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What such a file system is known by.
fn xfs() -> Vec<u8> {
    let mut bytes = vec![0; MIB];
    bytes[..4].copy_from_slice(b"XFSB");
    bytes[32..48].copy_from_slice(&0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes());
    bytes[108..112].copy_from_slice(b"boot");
    bytes
}

fn btrfs() -> Vec<u8> {
    let mut bytes = vec![0; MIB];
    bytes[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
    bytes[0x1_0020..0x1_0030].copy_from_slice(&xfs()[32..48]);
    bytes[0x1_012b..0x1_0132].copy_from_slice(b"labeled");
    bytes
}

fn found(disk: Vec<u8>, machine: Box<dyn Connection>) -> Result<Bootable, Error> {
    find(Rc::new(disk), Some(machine))
}

/// What Rocky Linux has on its partition for `/boot`, abridged.
fn rocky() -> Box<Answering> {
    let grub = format!(
        "search --no-floppy --fs-uuid --set=root {UUID}\n\
         if [ -f ${{config_directory}}/grubenv ]; then load_env -f x; \
         elif [ -s $prefix/grubenv ]; then load_env; fi\n\
         set default=\"${{saved_entry}}\"\ninsmod increment\nblscfg\n"
    );
    let entry = "title Rocky Linux (5.14)\nversion 5.14\nlinux /vmlinuz-5.14\n\
                 initrd /initramfs-5.14.img $tuned_initrd\noptions root=UUID=1 ro $kernelopts\n";
    Answering::new(&[
        ("/v/2/grub2/grub.cfg", &grub),
        ("/v/2/grub2/grubenv", "saved_entry=id-5.14\nkernelopts=quiet\n"),
        ("/v/2/loader/entries/id-0-rescue.conf", "title rescue\nlinux /vmlinuz-0\n"),
        ("/v/2/loader/entries/id-5.14.conf", entry),
        ("/v/2/vmlinuz-5.14", "kernel"),
        ("/v/2/vmlinuz-0", "rescue"),
        ("/v/2/initramfs-5.14.img", "initrd!!"),
    ])
}

#[test]
fn a_boot_partition_of_xfs_is_read_by_a_machine() {
    let disk = gpt(&[&fat(&[("/EFI/rocky/grub.cfg", "")]), &xfs(), &ext4(&[("/a", "")])]);
    let unread = find(Rc::new(disk.clone()), None).unwrap_err();
    assert!(matches!(unread, Error::Unread(_)), "{unread}");
    assert!(unread.to_string().contains("partition 2: xfs;"), "{unread}");
    let bootable = found(disk, rocky()).unwrap();
    let line = "root=UUID=1 ro quiet";
    assert_eq!((&*bootable.command_line, &*bootable.kernel), (line, &b"kernel"[..]));
    assert_eq!((&*bootable.title, &*bootable.initrd), ("Rocky Linux (5.14)", &b"initrd!!"[..]));
}

#[test]
fn a_root_of_btrfs_is_read_with_its_links() {
    let script = "search --no-floppy --label --set=root labeled\nmenuentry 'openSUSE' {\n\
                  linux /boot/vmlinuz-6.4 root=/dev/vda2\ninitrd /boot/initrd\n}\n";
    let files = [
        ("/v/0/boot/grub2/grub.cfg", script),
        ("/v/0/boot/vmlinuz-6.4", "->../usr/lib/modules/6.4/vmlinuz"),
        ("/v/0/boot/initrd", "->/boot/.././../boot/initrd-6.4"),
        ("/v/0/boot/initrd-6.4", "initrd"),
        ("/v/0/usr/lib", "->/usr/lib64"),
        ("/v/0/usr/lib64/modules/6.4/vmlinuz", "kernel"),
    ];
    let bootable = found(btrfs(), Answering::new(&files)).unwrap();
    assert_eq!((&*bootable.kernel, &*bootable.initrd), (&b"kernel"[..], &b"initrd\0\0"[..]));
    // A subvolume.
    let script = "menuentry 'Ubuntu' {\nlinux /@/boot/vmlinuz root=/dev/vda2\n}\n";
    let files = [("/v/0/@/boot/grub/grub.cfg", script), ("/v/0/@/boot/vmlinuz", "kernel")];
    let bootable = found(btrfs(), Answering::new(&files)).unwrap();
    assert_eq!((&*bootable.title, &*bootable.kernel), ("Ubuntu", &b"kernel"[..]));
}

#[test]
fn links_lead_nowhere_else() {
    let check = |target: &str, expected: &str| {
        let files = [
            ("/v/0/boot/grub/grub.cfg", "menuentry 'It' {\nlinux /boot/k\n}\n"),
            ("/v/0/boot/k", target),
            ("/v/0/file", "file"),
            ("/v/1/secret", "secret"),
            ("/secret", "secret"),
        ];
        let said = found(xfs(), Answering::new(&files))
            .map_or_else(|error| error.to_string(), |it| String::from_utf8(it.kernel).unwrap());
        assert!(said.contains(expected), "{target}: {said}");
    };
    check("->../../../../../file", "file");
    let endless = format!("->{}secret", "../".repeat(1300));
    for target in ["->/boot/k", "->k", "->k/k", "->../../../secret", "->/v/1/secret", &endless] {
        check(target, "names /boot/k, which is not there");
    }
    for target in ["->", "->.", "->/file/x", "->/file/../file", "->a\nb", "->/boot"] {
        check(target, "names /boot/k, which is not there");
    }
}

#[test]
fn what_cannot_be_mounted_is_told() {
    let said = found(gpt(&[&xfs(), &btrfs()]), Answering::new(&[])).unwrap_err().to_string();
    assert!(
        said.contains("1: xfs, which Linux cannot mount (mount: no such); partition 2: btrfs, ")
    );
    let said = found(xfs(), Answering::new(&[("/v/0/a", "")])).unwrap_err().to_string();
    assert!(said.ends_with("no partitions: xfs"), "{said}");
}

#[test]
fn a_machine_may_say_anything() {
    let check = |machine: Box<dyn Connection>, expected: &str| {
        let error = found(xfs(), machine).unwrap_err();
        assert!(matches!(error, Error::Server(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(Box::new(Saying(io::empty())), "it ended when it was asked to mount xfs 0");
    check(Box::new(Saying(io::repeat(b'x'))), "makes no sense");
    let mounted = |answers: &[u8]| {
        let bytes = [b"mounted\n", answers].concat();
        Box::new(Saying(io::Cursor::new(bytes)))
    };
    for answers in ["x", "41ed", "41ed 0", "81a4 5", "a1ff 1\nx"] {
        check(mounted(answers.as_bytes()), "it ended");
    }
    for answers in ["\n", "x y\n", "41ed -1\n", "41ed 0 0\n", "41ed\n", "\u{e4} 0\n"] {
        check(mounted(answers.as_bytes()), "makes no sense");
    }
    let long = [b"a1ff 9\n", &b"x".repeat(PATH_MAX_BYTES + 1)[..]].concat();
    check(mounted(&long), "makes no sense");
    // Everything is a directory, and none has an end.
    let endless = [&b"-\n".repeat(6)[..], &b"41ed 0\n".repeat(2), &b"/x\0".repeat(MIB)].concat();
    check(mounted(&endless), "makes no sense");
    let large = "41ed 0\n41ed 0\n81a4 4194305\n".to_owned() + &"-\n".repeat(100);
    let error = found(xfs(), mounted(large.as_bytes())).unwrap_err();
    assert!(error.to_string().contains("4194305 bytes, more than"), "{error}");
}

#[test]
fn an_answer_that_is_cut_off_is_none() {
    let whole = {
        let mut state = rocky();
        let asked = [
            ("mount", "xfs 2"),
            ("stat", "/v/2/boot"),
            ("stat", "/v/2/grub"),
            ("stat", "/v/2/grub2"),
            ("stat", "/v/2/grub2/grub.cfg"),
            ("read", "/v/2/grub2/grub.cfg"),
        ];
        asked.iter().for_each(|(verb, path)| {
            write!(state, "{verb}\n{path}\n").unwrap();
        });
        Vec::from(std::mem::take(&mut state.answer))
    };
    let disk = gpt(&[&ext4(&[("/a", "")]), &xfs()]);
    for length in 0..=whole.len() {
        let cut = io::Cursor::new(whole[..length].to_vec());
        let error = found(disk.clone(), Box::new(Saying(cut))).unwrap_err();
        assert!(matches!(error, Error::Server(_)), "{length}: {error}");
    }
}

#[test]
fn it_is_not_asked_without_end() {
    // Every file is there and empty, and every condition is another question.
    let lines: String = (0..20_000).map(|it| format!("[ -f /f{it} ]\n")).collect();
    let files = [("/v/0/grub/grub.cfg", &*lines)];
    let error = found(xfs(), Answering::new(&files)).unwrap_err();
    assert!(error.to_string().contains("too much is wanted of it"), "{error}");
}
