//! Container engines in a machine lay images over each other, for which an overlay, as the root is, is no place.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{Place, says};

/// Lays a directory of an engine's over another, and says which file system it is on.
const LAY: &str = "cd $1 && mkdir lower upper work all && echo below >lower/a && \
     mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay all && \
     echo above >all/b && cat all/a upper/b && stat -f -c %T . && stat -c %a .";

#[test]
fn engines_keep_layers_where_overlays_can_be() {
    let place = Place::new();
    let root = place.share();
    let script = "cd /mnt/share && mkdir -p bin usr/bin usr/sbin && cp /bin/busybox bin && \
                  for name in sh mkdir mount cat stat echo ls; do ln -s busybox bin/$name; done";
    says(&place.0, &["--busybox", "--volume", &place.volume("")], script);
    fs::write(root.join("usr/bin/podman"), "").unwrap();
    fs::write(root.join("usr/sbin/dockerd"), "").unwrap();
    let docker = root.join("var/lib/docker");
    fs::create_dir_all(&docker).unwrap();
    fs::set_permissions(&docker, PermissionsExt::from_mode(0o710)).unwrap();
    let path = root.to_str().expect("text");
    let lay = |store: &str| says(&place.0, &["--root", path], &LAY.replace("$1", store));
    assert_eq!(lay("/var/lib/containers"), "below\nabove\ntmpfs\n700\n");
    assert_eq!(lay("/var/lib/docker"), "below\nabove\ntmpfs\n710\n");
    // What is there stays to be seen, on the overlay, which busybox does not know by name.
    fs::write(docker.join("kept"), "kept\n").unwrap();
    let script = "ls /var/lib; cat /var/lib/docker/kept; stat -f -c %T /var/lib/docker";
    let said = says(&place.0, &["--root", path], script);
    assert_eq!(said, "containers\ndocker\nkept\nUNKNOWN\n");
    // Links in the root are the guest's.
    fs::rename(root.join("var/lib"), root.join("mnt")).unwrap();
    symlink("/mnt", root.join("var/lib")).unwrap();
    assert_eq!(says(&place.0, &["--root", path], "ls /var/lib"), "docker\n");
}
