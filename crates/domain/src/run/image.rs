//! The image that a description names, and what its command gets from that.
//!
//! Two kinds of images have names: those of `biv image build`, which are a directory, and those of others, which are
//! layers in the store of [`oci`]. A name of the first kind comes first.
//!
//! An image of the second kind says what runs in it, and how: entry point, command, environment, user, working
//! directory, ports. [`settle`] puts that into the description, before anything else looks at it. What is in the
//! description wins; and a description that was settled is settled: it names the image by its digest, and is the same
//! if it is settled again.

use std::ffi::OsString;
use std::path::PathBuf;

use oci::Store;
use oci::image::Defaults;
use provision::images;
use spec::{Network, Published, Root, Spec};

use super::error::Error;
use super::ports;
use session::terminal;

/// An image.
pub enum Found {
    /// One of `biv image build`.
    Built(images::Image),
    /// One with layers.
    Layered(Box<oci::Image>),
}

/// The image of that name.
///
/// # Errors
///
/// [`Error::NoImage`]; the store's.
pub fn find(name: &str) -> Result<Found, Error> {
    let failed = |error| Error::Image { name: name.to_owned(), error };
    if images::is_name(name)
        && let Some(image) = images::find(name)?
    {
        return Ok(Found::Built(image));
    }
    let found = Store::open().and_then(|store| store.find(name)).map_err(failed)?;
    let image = found.ok_or_else(|| Error::NoImage(name.to_owned()))?;
    Ok(Found::Layered(Box::new(image)))
}

/// Its layers as file systems, the lowest first.
///
/// # Errors
///
/// One cannot be made; there is none.
pub fn layers(image: &oci::Image) -> Result<Vec<PathBuf>, Error> {
    let failed = |error| Error::Image { name: image.digest.to_string(), error };
    let layers = Store::open().and_then(|store| store.layers(image)).map_err(failed)?;
    match layers.is_empty() {
        true => Err(failed(oci::Error::Unsupported("it has no layers".to_owned()))),
        false => Ok(layers),
    }
}

/// Puts what the image says into a description that does not say otherwise.
///
/// # Errors
///
/// There is no such image; a port of the host cannot be had.
pub fn settle(spec: &mut Spec) -> Result<(), Error> {
    let found = match &spec.root {
        Root::Image(name) => Some(find(name)?),
        _ => None,
    };
    match found {
        None | Some(Found::Built(_)) if spec.process.entrypoint.is_none() => {}
        None | Some(Found::Built(_)) => apply(spec, Defaults::default()),
        Some(Found::Layered(image)) => {
            // Whatever the name comes to mean, this is what was meant.
            let name = image.names.first().map(|name| format!("{}@", name.without_digest()));
            spec.root = Root::Image(format!("{}{}", name.unwrap_or_default(), image.digest));
            let defaults = image.defaults();
            publish(spec, &defaults.ports)?;
            apply(spec, defaults);
        }
    }
    Ok(())
}

/// The same, of the command.
fn apply(spec: &mut Spec, defaults: Defaults) {
    let process = &mut spec.process;
    let owned = |words: Vec<String>| words.into_iter().map(OsString::from).collect::<Vec<_>>();
    let said = process.entrypoint.take();
    let is_shell = process.args.is_empty() && said.is_none();
    // Who says what a command begins with means no command that was made for something else.
    let (entrypoint, command) = match said {
        Some(entrypoint) => (entrypoint, Vec::new()),
        None => (owned(defaults.entrypoint), owned(defaults.command)),
    };
    let args = std::mem::take(&mut process.args);
    process.args = entrypoint;
    process.args.extend(if args.is_empty() { command } else { args });
    process.entrypoint = Some(Vec::new());
    if !process.args.is_empty() {
        // As a shell has one that runs because nothing else was said.
        process.terminal |= is_shell && !spec.life.detached && terminal::is_interactive();
    }
    let own = std::mem::replace(&mut process.env, owned(defaults.environment));
    process.env.extend(own);
    process.user = process.user.take().or(defaults.user);
    process.directory = process.directory.take().or(defaults.directory.map(PathBuf::from));
    // Those without a name mean something to a process 1 only, which the command is not.
    let signal = defaults.stop_signal.and_then(|text| session::signal_number(&text));
    process.stop_signal = process.stop_signal.or(signal);
}

/// Publishes the ports that the image exposes, if that is wanted, and they are not published already.
fn publish(spec: &mut Spec, exposed: &[(u16, bool)]) -> Result<(), Error> {
    let Some(Network::User(network)) = spec.networks.iter_mut().flatten().next() else {
        return Ok(());
    };
    if !std::mem::take(&mut network.publish_exposed) {
        return Ok(());
    }
    for &(guest, is_udp) in exposed {
        let is_it = |known: &Published| (known.guest, known.is_udp) == (guest, is_udp);
        if !network.publish.iter().any(is_it) {
            let address = std::net::Ipv4Addr::LOCALHOST.into();
            let host = ports::choose(address, is_udp, guest)?;
            network.publish.push(Published { address, host, guest, is_udp });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults {
        Defaults {
            entrypoint: vec!["/entry".into()],
            command: vec!["default".into()],
            environment: vec!["PATH=/bin".into(), "A=1".into()],
            user: Some("web:www".into()),
            directory: Some("/srv".into()),
            stop_signal: Some("SIGQUIT".into()),
            ..Defaults::default()
        }
    }

    fn applied(change: impl FnOnce(&mut Spec)) -> Spec {
        let mut spec = Spec::default();
        change(&mut spec);
        apply(&mut spec, defaults());
        // What was settled stays.
        let once = spec.clone();
        apply(&mut spec, defaults());
        assert_eq!(spec.process.args, once.process.args);
        assert_eq!(spec.process.user, once.process.user);
        spec
    }

    #[test]
    fn a_command_gets_what_its_image_says() {
        let spec = applied(|_| {});
        assert_eq!(spec.process.args, ["/entry", "default"]);
        assert_eq!(spec.process.env[..2], ["PATH=/bin", "A=1"]);
        assert_eq!(spec.process.user.as_deref(), Some("web:www"));
        assert_eq!(spec.process.directory, Some("/srv".into()));
        assert_eq!(spec.process.stop_signal, Some(3));
    }

    #[test]
    fn what_is_said_wins() {
        let args = |spec: Spec| spec.process.args;
        assert_eq!(args(applied(|spec| spec.process.args = vec!["x".into()])), ["/entry", "x"]);
        let other = |spec: &mut Spec| spec.process.entrypoint = Some(vec!["/other".into()]);
        assert_eq!(args(applied(other)), ["/other"]);
        let both = |spec: &mut Spec| {
            spec.process.entrypoint = Some(vec!["/other".into(), "-v".into()]);
            spec.process.args = vec!["x".into()];
        };
        assert_eq!(args(applied(both)), ["/other", "-v", "x"]);
        let none = |spec: &mut Spec| {
            spec.process.entrypoint = Some(Vec::new());
            spec.process.args = vec!["x".into()];
        };
        assert_eq!(args(applied(none)), ["x"]);
        let spec = applied(|spec| {
            spec.process.env = vec!["A=2".into()];
            spec.process.user = Some("root".into());
            spec.process.directory = Some("/".into());
            spec.process.stop_signal = Some(9);
        });
        assert_eq!(spec.process.env.last(), Some(&OsString::from("A=2")));
        assert_eq!(spec.process.user.as_deref(), Some("root"));
        assert_eq!(spec.process.directory, Some("/".into()));
        assert_eq!(spec.process.stop_signal, Some(9));
    }

    #[test]
    fn without_an_image_nothing_changes() {
        let mut spec = Spec::default();
        settle(&mut spec).unwrap();
        assert_eq!(spec, Spec::default());
    }
}
