//! The default guest: whether it is in the cache, and how to download it.

use std::path::Path;

use super::Finding;
use host::environment::is_in_search_path;
use provision::recent::is_recent;
use provision::{self, Guest};

const TOPIC: &str = "guest";

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Debian has released a new kernel by then.
const OLD_DAYS: u64 = 90;

pub fn examine() -> Vec<Finding> {
    let apt = if is_in_search_path("apt-get") {
        Finding::good(TOPIC, "apt", "there, downloads the default guest")
    } else {
        Finding::good(TOPIC, "apt", "not there: Debian's archive has the default guest")
    };
    let cache = match provision::cache_directory() {
        Err(error) => Finding::note(TOPIC, "cache", error.to_string()),
        Ok(path) => cached(&path),
    };
    vec![apt, cache]
}

/// What is in the cache, and since when.
fn cached(path: &Path) -> Finding {
    let packages = Guest::packages(path);
    let place = path.display();
    let Some(age) = Guest::age(path) else {
        return Finding::good(TOPIC, "cache", format!("{place}: empty"));
    };
    let days = age.as_secs() / SECONDS_PER_DAY;
    let since = if days == 1 { "1 day old".to_owned() } else { format!("{days} days old") };
    let found = format!("{place}: {}, {since}", packages.join(", "));
    let kernel = packages.iter().find(|package| package.starts_with("linux-image-"));
    match kernel {
        _ if days >= OLD_DAYS => {
            Finding::note(TOPIC, "cache", found).because("`biv run --refresh` fetches it again")
        }
        Some(kernel) if !is_recent(kernel) => Finding::note(TOPIC, "cache", found).because(
            "programs that use much memory are faster with Linux 6.12 and later, which `biv run \
             --refresh` fetches where apt has it",
        ),
        _ => Finding::good(TOPIC, "cache", found),
    }
}
