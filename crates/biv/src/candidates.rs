//! What completes a word of a command line: the names of domains, pods, kernels, images, caches
//! and networks that there are. What cannot be listed has none.

use api::{Entry, Kept, Record, Registry, pod};
use clap_complete::CompletionCandidate;

/// Names of domains or, on a command line about pods, of pods.
pub fn names() -> Vec<CompletionCandidate> {
    // The words that are completed follow two dashes and the program's name.
    let is_of_pods = std::env::args_os().nth(3).is_some_and(|verb| verb == "pod");
    match is_of_pods {
        true => names_of(Registry::<pod::Record>::of_pods()),
        false => names_of(Registry::<Record>::open()),
    }
}

fn names_of<R: Kept, E>(registry: Result<Registry<R>, E>) -> Vec<CompletionCandidate> {
    let entries = registry.ok().and_then(|registry| registry.list().ok()).unwrap_or_default();
    let candidate = |entry: &Entry<R>| {
        let state = if entry.alive { "running" } else { "ended" };
        CompletionCandidate::new(entry.name.as_str()).help(Some(state.into()))
    };
    entries.iter().map(candidate).collect()
}

/// Versions of kernels that have been fetched.
pub fn kernels() -> Vec<CompletionCandidate> {
    let kernels = provision::kernels::list().unwrap_or_default();
    kernels.iter().map(|kernel| CompletionCandidate::new(&kernel.release)).collect()
}

/// Names of images.
pub fn images() -> Vec<CompletionCandidate> {
    let built = provision::images::list().unwrap_or_default().into_iter().map(|image| image.name);
    let layered = oci::Store::open().and_then(|store| store.list()).unwrap_or_default();
    let layered = layered.into_iter().filter_map(|image| Some(image.name?.to_string()));
    built.chain(layered).map(CompletionCandidate::new).collect()
}

/// Names of caches.
pub fn caches() -> Vec<CompletionCandidate> {
    let names = provision::caches::names().unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The same, and those that need not be there.
pub fn caches_to_use() -> Vec<CompletionCandidate> {
    let mut names = provision::caches::names().unwrap_or_default();
    names.extend(spec::Usual::tools().map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Networks that machines and pods share.
pub fn networks() -> Vec<CompletionCandidate> {
    let networks = Registry::<pod::Record>::of_pods().ok().and_then(|pods| pods.networks().ok());
    let all = networks.and_then(|networks| networks.list().ok()).unwrap_or_default();
    all.iter().map(|it| CompletionCandidate::new(it.description.name.as_str())).collect()
}
