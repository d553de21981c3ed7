//! `biv image`: images in the cache. Those of `biv image build` are directories ([`provision::images`]); those of
//! containers are layers ([`oci`], [`containers`]). One list has both, and where both have a name, the former is meant.

mod containers;

use std::time::Duration;

use serde::Serialize;

use crate::cli::{Format, ImageAction};
use crate::print::{self, unless_closed};
use oci::Store;
use oci::reference::SHORT_DIGITS;
use oci::store::Listed;
use provision::images::{self, Recipe};

pub use containers::{provide, source};

/// An image, for programs.
#[derive(Serialize)]
struct Entry {
    /// None for a container image that has lost its name to another.
    name: Option<String>,
    /// Of a container image: the digest of its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// Of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    recipe: Option<String>,
    /// Of a container image: its layers as they were published.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    age_seconds: u64,
}

/// Does what `biv image` says.
///
/// # Errors
///
/// A message of one line.
pub fn image(action: &ImageAction) -> Result<(), String> {
    match action {
        ImageAction::Ls { format } => list(*format),
        ImageAction::Build { name, suite, include } => {
            let recipe = Recipe { suite: suite.clone(), include: include.clone() };
            let image = images::build(name, &recipe).map_err(|error| error.to_string())?;
            unless_closed(print::text(&format!("{}\n", image.name)))
        }
        ImageAction::Rm { name } => name.iter().try_for_each(|name| remove(name)),
        ImageAction::Container(action) => containers::act(action),
    }
}

fn remove(name: &str) -> Result<(), String> {
    if images::is_name(name) && images::remove_called(name).map_err(|error| error.to_string())? {
        return Ok(());
    }
    let removed = Store::open().and_then(|store| store.remove(name));
    match removed.map_err(|error| error.to_string())? {
        true => Ok(()),
        false => Err(format!("no image {name}; `biv image ls` lists the images")),
    }
}

fn list(format: Format) -> Result<(), String> {
    let built = images::list().map_err(|error| error.to_string())?.into_iter().map(|image| Entry {
        name: Some(image.name),
        digest: None,
        recipe: Some(image.recipe),
        bytes: None,
        age_seconds: image.age.as_secs(),
    });
    let pulled = Store::open().and_then(|store| store.list()).map_err(|error| error.to_string())?;
    let pulled = pulled.into_iter().map(|Listed { digest, name, age, bytes }| Entry {
        name: name.map(|name| name.to_string()),
        digest: Some(digest.to_string()),
        recipe: None,
        bytes: Some(bytes),
        age_seconds: age.as_secs(),
    });
    let entries: Vec<_> = built.chain(pulled).collect();
    if format == Format::Json {
        return unless_closed(print::json(&entries));
    }
    let width = entries.iter().filter_map(|entry| entry.name.as_ref()).map(String::len).max();
    let width = width.unwrap_or(0).clamp(24, 64);
    let mut text = format!("{:<width$} {:>8}  {}\n", "NAME", "AGE", "MADE FROM");
    for entry in &entries {
        let days = Duration::from_secs(entry.age_seconds).as_secs() / 86_400;
        let name = entry.name.as_deref().unwrap_or("<none>");
        let digits = entry.digest.as_deref().and_then(|digest| digest.strip_prefix("sha256:"));
        let of_digest = || {
            let digits = digits.map(|digits| digits.chars().take(SHORT_DIGITS).collect::<String>());
            let mebibytes = entry.bytes.unwrap_or(0).div_ceil(1 << 20);
            format!("{}  {mebibytes} MiB", digits.unwrap_or_default())
        };
        let made_from = entry.recipe.clone().unwrap_or_else(of_digest);
        text.push_str(&format!("{name:<width$} {days:>6} d  {made_from}\n"));
    }
    unless_closed(print::text(&text))
}
