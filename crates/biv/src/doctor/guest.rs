//! The default guest: whether it is there, and how it could be had.

use std::path::Path;

use super::Finding;
use crate::provision;

const TOPIC: &str = "guest";

pub fn examine() -> Vec<Finding> {
    let apt = if in_search_path("apt-get") && in_search_path("dpkg-deb") {
        Finding::good(TOPIC, "apt", "there, downloads the default guest")
    } else {
        Finding::note(TOPIC, "apt", "not there")
            .because("give a guest with --kernel FILE and --initrd FILE or --root DIR")
    };
    let cache = match provision::cache_directory() {
        Err(error) => Finding::note(TOPIC, "cache", error.to_string()),
        Ok(path) => {
            let packages = provision::Guest::packages(&path);
            let found = if packages.is_empty() { "empty".to_owned() } else { packages.join(", ") };
            Finding::good(TOPIC, "cache", format!("{}: {found}", path.display()))
        }
    };
    vec![apt, cache]
}

fn in_search_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| Path::is_file(&directory.join(program)))
}
