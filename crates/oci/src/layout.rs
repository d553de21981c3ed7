//! What stands in image layouts (image-spec 1.1, `image-layout.md`, `annotations.md`, `media-types.md`): the store is
//! one, and archives are.

pub use oci_spec::image::ANNOTATION_REF_NAME as NAME;

use crate::Digest;

/// The annotation with a whole name, as containerd has it; [`NAME`] may be a tag.
pub const WHOLE_NAME: &str = "io.containerd.image.name";

/// The types of an image's manifest, of an index, and of a configuration.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// See above.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// See above.
pub const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";

/// What makes a directory a layout: a file, and what is in it.
pub const MARK: (&str, &str) = ("oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}\n");

/// Where content is.
pub const BLOBS: &str = "blobs/sha256";

/// The name of content.
pub fn blob_name(digest: &Digest) -> String {
    format!("{BLOBS}/{}", digest.hex())
}
