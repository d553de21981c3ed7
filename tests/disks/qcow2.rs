//! Empty qcow2 images (qemu, docs/interop/qcow2.txt), which may refer to a backing image.

const CLUSTER_BYTES: usize = 1 << 16;

/// An image of a disk with so many bytes, 512 MiB at most, over `backing`: a name and a format.
pub fn empty(bytes: u64, backing: Option<(&str, &str)>) -> Vec<u8> {
    let format = backing.map(|(_, format)| (0xe279_2aca, format));
    image(bytes, 0, backing.map_or("", |(name, _)| name), format)
}

/// One whose data is in another file.
pub fn with_data_in(name: &str, bytes: u64) -> Vec<u8> {
    const EXTERNAL_DATA: u64 = 1 << 2;
    image(bytes, EXTERNAL_DATA, "", Some((0x4441_5441, name)))
}

/// One with incompatible features, a backing image's name, and one extension of the header.
fn image(bytes: u64, features: u64, name: &str, extension: Option<(u32, &str)>) -> Vec<u8> {
    let mut image = Vec::new();
    let cluster = |number: usize| (number * CLUSTER_BYTES) as u64;
    let (name_at, name_bytes) = if name.is_empty() { (0, 0) } else { (512_u64, name.len() as u32) };
    image.extend(b"QFI\xfb");
    image.extend(3_u32.to_be_bytes());
    image.extend(name_at.to_be_bytes());
    image.extend(name_bytes.to_be_bytes());
    image.extend(16_u32.to_be_bytes()); // the cluster's bits
    image.extend(bytes.to_be_bytes());
    image.extend(0_u32.to_be_bytes()); // no encryption
    image.extend(1_u32.to_be_bytes()); // entries of the first table
    image.extend(cluster(3).to_be_bytes());
    image.extend(cluster(1).to_be_bytes()); // the table of reference counts
    image.extend(1_u32.to_be_bytes());
    image.extend([0; 12]); // no snapshots
    image.extend(features.to_be_bytes());
    image.extend([0; 16]); // no compatible features, and none of autoclear
    image.extend(4_u32.to_be_bytes()); // counts of 16 bits
    image.extend(104_u32.to_be_bytes()); // bytes of the header
    if let Some((kind, text)) = extension {
        image.extend(u32::to_be_bytes(kind));
        image.extend((text.len() as u32).to_be_bytes());
        image.extend(text.as_bytes());
        image.resize(image.len().next_multiple_of(8), 0);
    }
    image.resize(512, 0);
    image.extend(name.as_bytes());
    image.resize(CLUSTER_BYTES, 0);
    image.extend(cluster(2).to_be_bytes());
    image.resize(2 * CLUSTER_BYTES, 0);
    (0..4).for_each(|_| image.extend(1_u16.to_be_bytes()));
    image.resize(4 * CLUSTER_BYTES, 0);
    image
}
