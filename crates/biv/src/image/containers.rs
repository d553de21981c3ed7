//! Images of containers: pulled, pushed, loaded, saved, named, looked at; and had at hand for `biv run`.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::cli::{ContainerImageAction, Format, Pull};
use crate::print::{self, unless_closed};
use crate::unfinished::Unfinished;
use oci::bundle::Bundle;
use oci::registry::{self, Transfer};
use oci::{Error, Image, Name, Source, Store, export, import};
use provision::images;
use provision::progress::Progress;
use spec::{Root, Spec};

/// How much is kept before it is written to an archive, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// What `biv image inspect` prints.
#[derive(Serialize)]
struct Inspected {
    digest: String,
    names: Vec<String>,
    manifest: Value,
    configuration: Value,
}

/// Does what `biv image` says of an image of containers.
///
/// # Errors
///
/// A message of one line.
pub fn act(action: &ContainerImageAction) -> Result<(), String> {
    let store = Store::open().map_err(|error| error.to_string())?;
    match action {
        ContainerImageAction::Pull { name, access } => {
            name.iter().try_for_each(|name| pull(&store, name, access.insecure))
        }
        ContainerImageAction::Push { name, destination, access } => {
            push(&store, name, destination.as_ref().unwrap_or(name), access.insecure)
        }
        ContainerImageAction::Load { input } => load(&store, input.as_deref()),
        ContainerImageAction::Save { output, name } => save(&store, name, output.as_deref()),
        ContainerImageAction::Tag { name, new } => Name::parse(new)
            .and_then(|new| store.tag(name, &new))
            .map_err(|error| error.to_string()),
        ContainerImageAction::Inspect { name } => inspect(&store, name),
        ContainerImageAction::Prune { format } => {
            let count = store.prune().map_err(|error| error.to_string())?;
            unless_closed(match format {
                Format::Json => print::json(&serde_json::json!({ "removed": count })),
                Format::Text => print::text(&format!("{count} images removed\n")),
            })
        }
    }
}

/// Has the container image of a machine at hand, as `pull` says, from a registry that may be `insecure`. What
/// `biv image build` has made comes first.
///
/// # Errors
///
/// A message of one line: it cannot be had.
pub fn provide(spec: &Spec, pull: Pull, insecure: bool) -> Result<(), String> {
    let Root::Image(name) = &spec.root else { return Ok(()) };
    let failed = |error: Error| format!("cannot use the image {name}: {error}");
    let is_built = || images::find(name).map(|found| found.is_some());
    if images::is_name(name) && is_built().map_err(|error| error.to_string())? {
        return Ok(());
    }
    let store = Store::open().map_err(failed)?;
    let is_here = store.find(name).map_err(failed)?.is_some();
    match pull {
        // It is said elsewhere that it is not there.
        Pull::Never => return Ok(()),
        Pull::Missing if is_here => return Ok(()),
        Pull::Missing | Pull::Always => {}
    }
    let Ok(whole) = Name::parse(name) else { return Ok(()) };
    let pulled = fetch(&store, &whole, insecure).map(drop);
    pulled.map_err(|error| match is_here || !images::is_name(name) {
        true => failed(error),
        false => format!(
            "no image {name}, and it cannot be pulled: {error}; `biv image build {name}` builds one"
        ),
    })
}

/// What an image is called in the store that `text` names: one in a file is added to the store first.
///
/// # Errors
///
/// A message of one line: it cannot be read.
pub fn source(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("docker://").unwrap_or(text);
    if !Source::is_path(name) {
        return Ok(name.to_owned());
    }
    let loaded = Store::open().and_then(|store| load_source(&store, name));
    loaded.map_err(|error| format!("cannot use the image {text}: {error}"))
}

/// Adds one image of a file; what it is called.
fn load_source(store: &Store, text: &str) -> Result<String, Error> {
    let source: Source = text.parse()?;
    let adding = store.add()?;
    let bundle = Bundle::open(&source, &adding)?;
    let bundle = bundle.ok_or_else(|| Error::NoImage(text.to_owned()))?;
    let wanted = source.path().and_then(|(_, wanted)| wanted);
    let loaded = import::load_one(&adding, &bundle, wanted)?;
    Ok(loaded.digest.to_string())
}

fn pull(store: &Store, text: &str, insecure: bool) -> Result<(), String> {
    let failed = |error: Error| format!("cannot pull {text}: {error}");
    let digest = match text.parse::<Source>().map_err(failed)? {
        Source::Registry(name) => fetch(store, &name, insecure).map_err(failed)?,
        _ => load_source(store, text).map_err(failed)?,
    };
    unless_closed(print::text(&format!("{digest}\n")))
}

/// Fetches an image, with a bar for who waits; its digest.
fn fetch(store: &Store, name: &Name, insecure: bool) -> Result<String, Error> {
    let progress = Progress::start();
    progress.say(&format!("pulling {name}"));
    let tell = |done: u64, total: u64| progress.set(percent(done, total));
    let digest = registry::pull(store, name, Transfer { insecure, progress: &tell })?;
    Ok(digest.to_string())
}

fn percent(done: u64, total: u64) -> f64 {
    100.0 * done as f64 / total.max(1) as f64
}

/// The image of the store that a text means.
fn find(store: &Store, text: &str) -> Result<Image, String> {
    let is_built = images::is_name(text) && images::find(text).is_ok_and(|found| found.is_some());
    match store.find(text) {
        _ if is_built => {
            Err(format!("{text} is an image of `biv image build`, which is no container image"))
        }
        Ok(Some(image)) => Ok(image),
        Ok(None) => Err(Error::NoImage(text.to_owned()).to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn push(store: &Store, text: &str, destination: &str, insecure: bool) -> Result<(), String> {
    let image = find(store, text)?;
    let failed = |error: Error| format!("cannot push {text}: {error}");
    let destination = destination.strip_prefix("docker://").unwrap_or(destination);
    let name = Name::parse(destination).map_err(failed)?;
    if name.digest().is_some() {
        return Err(format!("cannot push to {name}: give a tag instead of a digest"));
    }
    let progress = Progress::start();
    progress.say(&format!("pushing {name}"));
    let tell = |done: u64, total: u64| progress.set(percent(done, total));
    registry::push(store, &image, &name, Transfer { insecure, progress: &tell }).map_err(failed)?;
    unless_closed(print::text(&format!("{}\n", image.digest)))
}

fn load(store: &Store, input: Option<&Path>) -> Result<(), String> {
    let place = input.map_or_else(|| PathBuf::from("standard input"), Path::to_owned);
    let failed = |error: Error| format!("cannot load {}: {error}", place.display());
    let unread = |error: io::Error| format!("cannot read {}: {error}", place.display());
    if input.is_none() && io::stdin().is_terminal() {
        return Err("standard input is a terminal; name an archive with --input".to_owned());
    }
    let adding = store.add().map_err(failed)?;
    let file = match input {
        Some(path) => File::open(path).map_err(unread)?,
        None => {
            let stdin = rustix::io::dup(io::stdin()).map_err(|errno| unread(errno.into()))?;
            File::from(stdin)
        }
    };
    let bundle = Bundle::archive(&place, file, &adding).map_err(failed)?;
    let loaded = import::load(&adding, &bundle, None).map_err(failed)?;
    let names: String = loaded.iter().map(|image| format!("{}\n", image.name())).collect();
    unless_closed(print::text(&names))
}

fn save(store: &Store, names: &[String], output: Option<&Path>) -> Result<(), String> {
    let mut images = Vec::new();
    for text in names {
        let image = find(store, text)?;
        // The name that was typed, if it is one.
        let typed = oci::reference::Wanted::parse(text).map(|wanted| wanted.names);
        let mut typed = typed.unwrap_or_default();
        typed.retain(|name| image.names.contains(name));
        images.push((image, typed));
    }
    let Some(path) = output else {
        if io::stdout().is_terminal() {
            return Err("standard output is a terminal; name a file with --output".to_owned());
        }
        let mut stdout = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        let place = Path::new("standard output");
        return export::save(store, &images, &mut stdout, place).map_err(|error| error.to_string());
    };
    let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let write = |file: &File| {
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
        export::save(store, &images, &mut writer, path).map_err(|error| error.to_string())
    };
    // A pipe or a device is written to; a file appears when it is whole.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return write(&File::options().write(true).open(path).map_err(failed)?);
    }
    let unfinished = Unfinished::beside(path, 0o666).map_err(failed)?;
    write(&unfinished.file)?;
    unfinished.becomes(path).map_err(failed)
}

fn inspect(store: &Store, text: &str) -> Result<(), String> {
    let image = find(store, text)?;
    let json = |text: &[u8]| serde_json::from_slice(text).unwrap_or_default();
    let inspected = Inspected {
        digest: image.digest.to_string(),
        names: image.names.iter().map(Name::to_string).collect(),
        manifest: json(&image.text),
        configuration: json(&image.configuration_text),
    };
    unless_closed(print::json(&inspected))
}
