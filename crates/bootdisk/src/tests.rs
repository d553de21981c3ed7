//! Disks that are made here, as distributions make them, and disks that are no such thing.

use std::fs;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Bootable, Error, Storage, find};

impl Storage for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

pub const MIB: usize = 1 << 20;

/// The UUID of file systems that are made here.
pub const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A file system (ext4) with these files; a text that begins with `->` is a link.
pub fn ext4(files: &[(&str, &str)]) -> Vec<u8> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let place = std::env::temp_dir().join(format!("bootdisk-{}-{number}", std::process::id()));
    let tree = place.join("tree");
    fs::create_dir_all(&tree).unwrap();
    for (name, text) in files {
        let path = tree.join(name.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match text.strip_prefix("->") {
            Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            None => fs::write(path, text).unwrap(),
        }
    }
    let image = place.join("image");
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-t", "ext4", "-U", UUID, "-L", "rooted", "-d"])
        .args([&tree, &image])
        .arg("8M");
    let made =
        make.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().expect("`mke2fs` is installed");
    assert!(made.status.success(), "{made:?}");
    let bytes = fs::read(&image).unwrap();
    fs::remove_dir_all(place).unwrap();
    bytes
}

/// One for firmware.
pub fn fat(files: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Cursor::new(vec![0; 4 * MIB]);
    fatfs::format_volume(&mut bytes, fatfs::FormatVolumeOptions::new().volume_id(0x1234_abcd))
        .unwrap();
    let system = fatfs::FileSystem::new(&mut bytes, fatfs::FsOptions::new()).unwrap();
    for (name, text) in files {
        let mut directory = system.root_dir();
        let path = Path::new(name.trim_start_matches('/'));
        for part in path.parent().unwrap() {
            directory = directory.create_dir(part.to_str().unwrap()).unwrap();
        }
        let file = path.file_name().unwrap().to_str().unwrap();
        directory.create_file(file).unwrap().write_all(text.as_bytes()).unwrap();
    }
    drop(system);
    bytes.into_inner()
}

/// A disk with these partitions.
pub fn gpt(partitions: &[&[u8]]) -> Vec<u8> {
    let length = partitions.iter().map(|part| part.len() + MIB).sum::<usize>() + 2 * MIB;
    let mut disk = gpt::GptConfig::new()
        .writable(true)
        .create_from_device(Cursor::new(vec![0; length]), None)
        .unwrap();
    let mut places = Vec::new();
    for part in partitions {
        let kind = gpt::partition_types::LINUX_FS;
        let number = disk.add_partition("x", part.len() as u64, kind, 0, Some(2048)).unwrap();
        places.push(disk.partitions()[&number].first_lba * 512);
    }
    let mut device = disk.write().unwrap();
    for (part, at) in partitions.iter().zip(places) {
        device.seek(SeekFrom::Start(at)).unwrap();
        device.write_all(part).unwrap();
    }
    device.into_inner()
}

fn mbr(partition: &[u8]) -> Vec<u8> {
    let mut bytes = Cursor::new(vec![0; partition.len() + 2 * MIB]);
    let mut table = mbrman::MBR::new_from(&mut bytes, 512, [1, 2, 3, 4]).unwrap();
    table[1] = mbrman::MBRPartitionEntry {
        boot: mbrman::BOOT_INACTIVE,
        first_chs: mbrman::CHS::empty(),
        sys: 0x83,
        last_chs: mbrman::CHS::empty(),
        starting_lba: 2048,
        sectors: u32::try_from(partition.len() / 512).unwrap(),
    };
    table.write_into(&mut bytes).unwrap();
    let mut bytes = bytes.into_inner();
    bytes[MIB..MIB + partition.len()].copy_from_slice(partition);
    bytes
}

/// The kernel's text, the initial RAM disk's and the command line that are found, and the title.
fn found(disk: Vec<u8>) -> (String, String, String, String) {
    let Bootable { title, kernel, initrd, command_line } = find(Rc::new(disk), None).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(kernel), text(initrd), command_line, title)
}

fn refused(disk: Vec<u8>) -> Error {
    find(Rc::new(disk), None).expect_err("it boots nothing")
}

/// What Debian's update-grub makes, abridged.
const DEBIAN: &str = r#"
### BEGIN /etc/grub.d/00_header ###
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="0"
fi

if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
export menuentry_id_option

function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
    save_env saved_entry
  fi
}
function load_video {
  if [ x$feature_all_video_module = xy ]; then
    insmod all_video
  else
    insmod efi_gop; insmod efi_uga
  fi
}
if [ x$feature_default_font_path = xy ] ; then
   font=unicode
else
insmod part_gpt
    font="/usr/share/grub/unicode.pf2"
fi
if loadfont $font ; then
  set gfxmode=auto
fi
set timeout=5
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-UUID' {
	load_video
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	insmod ext2
	search --no-floppy --fs-uuid --set=root 01234567-89ab-cdef-0123-456789abcdef
	echo	'Loading Linux 6.1.0 ...'
	linux	/boot/vmlinuz-6.1 root=PARTUUID=abc ro console=tty0 "quoted arg" \
		earlyprintk=ttyS0,115200
	initrd	/boot/initrd.img-6.1
}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-UUID' {
	menuentry 'Old' --class debian $menuentry_id_option 'gnulinux-old' {
		search --no-floppy --fs-uuid --set=root --hint-bios=hd0,gpt1 01234567-89ab-cdef-0123-456789abcdef
		linux	/boot/vmlinuz-5 root=/dev/vda1 single
	}
}
if [ "$grub_platform" = "efi" ]; then
	fwsetup --is-supported
	if [ "$?" = 0 ]; then
		menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
			fwsetup
		}
	fi
fi
"#;

fn debian(grubenv: &str) -> Vec<u8> {
    ext4(&[
        ("/boot/grub/grub.cfg", DEBIAN),
        ("/boot/grub/grubenv", grubenv),
        ("/boot/vmlinuz-6.1", "->vmlinuz-6.1.real"),
        ("/boot/vmlinuz-6.1.real", "kernel6"),
        ("/boot/initrd.img-6.1", "initrd6!"),
        ("/boot/vmlinuz-5", "kernel5"),
    ])
}

fn expect_debian(disk: Vec<u8>) {
    let line = "root=PARTUUID=abc ro console=tty0 quoted arg earlyprintk=ttyS0,115200";
    let expected = ("kernel6", "initrd6!", line, "Debian GNU/Linux");
    let (kernel, initrd, line, title) = found(disk);
    assert_eq!((&*kernel, &*initrd, &*line, &*title), expected);
}

#[test]
fn grub_boots_its_default_from_any_kind_of_disk() {
    let root = debian("# GRUB Environment Block\n####");
    expect_debian(root.clone());
    expect_debian(mbr(&root));
    let firmware = fat(&[("/EFI/debian/grub.cfg", "search.fs_uuid nonsense root\n")]);
    expect_debian(gpt(&[&firmware, &root]));
    expect_debian(gpt(&[&root, &firmware]));
}

#[test]
fn grub_boots_what_its_environment_says() {
    for chosen in ["gnulinux-advanced-UUID>gnulinux-old", "1>0", "1", "Advanced options>Old"] {
        let block = format!("# GRUB Environment Block\nnext_entry={chosen}\n####");
        let (kernel, initrd, line, title) = found(mbr(&debian(&block)));
        let expected = ("kernel5", "", "root=/dev/vda1 single", "Old");
        assert_eq!((&*kernel, &*initrd, &*line, &*title), expected, "{chosen}");
    }
    // As GRUB does, what is not there is the first.
    expect_debian(mbr(&debian("next_entry=gone\n")));
}

#[test]
fn a_boot_partition_of_its_own_has_its_own_root() {
    let script = "set root='hd0,gpt2'\nmenuentry \"Linux\" { \
                  linux ($root)/vmlinuz root=LABEL=x\ninitrd /a /b\n}\n";
    let files = [("/grub2/grub.cfg", script), ("/vmlinuz", "k"), ("/a", "one"), ("/b", "two")];
    let (kernel, initrd, line, _) = found(gpt(&[&ext4(&[("/x", "")]), &ext4(&files)]));
    // Each archive is padded.
    assert_eq!((&*kernel, &*initrd, &*line), ("k", "one\0two\0", "root=LABEL=x"));
}

#[test]
fn fedoras_grub_has_its_entries_in_files() {
    let script = "load_env -f ${prefix}/grubenv\nset default=\"${saved_entry}\"\nblscfg\n";
    let entry = |version: &str| {
        format!(
            "title Fedora {version}\nlinux /vmlinuz-{version}\noptions $kernelopts n={version}\n"
        )
    };
    let (five, six) = (entry("5.9"), entry("6.10"));
    let check = |grubenv: &str, expected: &str| {
        let disk = ext4(&[
            ("/grub2/grub.cfg", script),
            ("/grub2/grubenv", grubenv),
            ("/loader/entries/id-5.9.conf", &five),
            ("/loader/entries/id-6.10.conf", &six),
            ("/vmlinuz-5.9", "five"),
            ("/vmlinuz-6.10", "six"),
        ]);
        assert_eq!(found(disk).2, expected);
    };
    check("kernelopts=ro quiet\n", "ro quiet n=6.10");
    check("saved_entry=id-5.9\nkernelopts=ro\n", "ro n=5.9");
}

#[test]
fn systemd_boot_boots_the_entry_that_its_configuration_names() {
    let entry = |name: &str| {
        format!("title {name}\nlinux /{name}/linux\ninitrd /{name}/initrd\noptions x={name}\n")
    };
    let (one, two) = (entry("one"), entry("two"));
    let check = |configuration: &str, expected: &str| {
        let firmware = fat(&[
            ("/loader/loader.conf", configuration),
            ("/loader/entries/one.conf", &one),
            ("/loader/entries/two.conf", &two),
            ("/one/linux", "1"),
            ("/one/initrd", "i"),
            ("/two/linux", "2"),
            ("/two/initrd", "i"),
        ]);
        assert_eq!(found(gpt(&[&firmware])).0, expected, "{configuration}");
    };
    check("timeout 3\ndefault one*\n", "1");
    check("default one.conf\n", "1");
    check("", "2");
    check("default nothing\n", "2");
}

#[test]
fn what_boots_nothing_says_what_is_there() {
    let check = |disk: Vec<u8>, expected: &str| {
        let said = refused(disk).to_string();
        assert!(said.contains(expected), "{said}");
    };
    check(vec![0; 4 * MIB], "no partitions: nothing that is known");
    check(Vec::new(), "no partitions");
    let mut xfs = vec![0; MIB];
    xfs[..4].copy_from_slice(b"XFSB");
    check(gpt(&[&ext4(&[("/a", "")]), &xfs]), "partition 2: xfs");
    let gone = "menuentry 'It' {\nlinux /gone\n}\n";
    check(ext4(&[("/boot/grub/grub.cfg", gone)]), "\"It\" names /gone, which is not there");
    check(ext4(&[("/boot/grub/grub.cfg", "menuentry 'a' {")]), "a block has no end");
    check(ext4(&[("/boot/grub/grub.cfg", "set default=0\n")]), "no configuration");
}

#[test]
fn scripts_that_have_no_end_are_refused() {
    let check = |script: &str| {
        let disk = ext4(&[("/boot/grub/grub.cfg", script), ("/boot/grub/x", script)]);
        assert!(matches!(refused(disk), Error::Endless), "{script}");
    };
    check("function f {\nf\n}\nf\n");
    check("configfile $prefix/grub.cfg\n");
    let deep = "if true; then ".repeat(100) + &"fi;".repeat(100);
    check(&deep);
    let doubling = "set a=aaaaaaaaaaaaaaaa\n".to_owned()
        + &"set a=\"$a$a\"\n".repeat(40)
        + &"set b=$a$a$a$a\n".repeat(40);
    // It grows up to a limit, and no further.
    let _ = find(Rc::new(ext4(&[("/boot/grub/grub.cfg", &doubling)])), None);
    let many = "function f {\n".to_owned() + &"true\n".repeat(2000) + "}\n" + &"f\n".repeat(100);
    check(&many);
}

#[test]
fn damaged_disks_end_in_an_error_or_not() {
    let good = gpt(&[&fat(&[("/loader/entries/a.conf", "linux /k\n"), ("/k", "k")]), &debian("")]);
    let mut seed = 1_u64;
    let mut next = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for _ in 0..60 {
        let mut bad = good.clone();
        for _ in 0..1 + next(40) {
            // Where tables and superblocks are, more often than elsewhere.
            let base = [0, MIB, MIB, 6 * MIB][next(4)];
            let span = [4096, 65_536, 2 * MIB][next(3)];
            let at = base + next(span);
            bad[at] = next(256) as u8;
        }
        bad.truncate(if next(4) == 0 { next(bad.len()) } else { bad.len() });
        let _ = find(Rc::new(bad), None);
    }
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let long = "x".repeat(5 * MIB);
    let said = refused(ext4(&[("/boot/grub/grub.cfg", &long)])).to_string();
    assert!(said.contains("more than the"), "{said}");
    let mut whole = Vec::new();
    let mut window = crate::window::Window::whole(Rc::new(vec![1; 10])).part(4, 100);
    window.read_to_end(&mut whole).unwrap();
    assert_eq!(whole, [1; 6]);
}
