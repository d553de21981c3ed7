//! Images of registries (distribution-spec 1.1), by crate `oci-client`.
//!
//! 1. *A runtime lives as long as a transfer*: the rest of the program knows no asynchronous code, and starts nothing
//!    for it.
//! 2. *Manifests are fetched here*, with a limit: `oci-client` takes as much memory for one as the registry sends.
//!    Layers are streams, which end where the manifest says.
//! 3. *Nothing goes over a wire in plain text* but to this host: HTTP is for loopback addresses, and for registries for
//!    which the user says so.
//! 4. *Credentials are those of Docker and podman*: `auth.json` of containers-auth.json(5), then
//!    `~/.docker/config.json`, with their helpers. They go to the registry that they are for, and to whom it names as
//!    its authority.

use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use futures_util::{StreamExt, TryStreamExt, stream};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};

use crate::image::{self, Blob, Document, Manifest};
use crate::limits::{
    MAX_DOWNLOADS, MAX_INDEX_DEPTH, MAX_MANIFEST_BYTES, REGISTRY_AUTHORISATION_TIMEOUT,
    REGISTRY_CONNECT_TIMEOUT, REGISTRY_READ_TIMEOUT, TRANSFER_ATTEMPTS, UPLOAD_BYTES,
};
use crate::store::Adding;
use crate::{Digest, Error, Image, Name, Store};

/// What is understood of a registry.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// Docker's own registry, and what Docker calls it where it keeps credentials.
const DOCKER: (&str, &str) = ("docker.io", "https://index.docker.io/v1/");

/// How much of a complaint is repeated.
const COMPLAINT_MAX_CHARACTERS: usize = 300;

/// How a transfer is done.
#[derive(Clone, Copy)]
pub struct Transfer<'a> {
    /// Registries may be talked to in plain text, and show certificates of nobody's.
    pub insecure: bool,
    /// Is told how many bytes are done, of how many.
    pub progress: &'a dyn Fn(u64, u64),
}

/// A registry, for one image.
struct Session {
    client: Client,
    http: reqwest::Client,
    scheme: &'static str,
    authority: RegistryAuth,
    reference: Reference,
}

/// Fetches an image to the store, under its name; the digest of its manifest.
///
/// # Errors
///
/// [`Error::Registry`]; it is no image that a machine can have; [`Error::Store`].
pub fn pull(store: &Store, name: &Name, transfer: Transfer<'_>) -> Result<Digest, Error> {
    run(async {
        let adding = store.add()?;
        let (session, (text, media_type)) = begin(name, transfer, async |session| {
            session.manifest(&session.reference, name.digest()).await
        })
        .await?;
        let (text, media_type) = session.resolve(text, media_type).await?;
        let manifest = Manifest::parse(&text)?;
        adding.check(&manifest)?;
        let parts: Vec<_> = [&manifest.configuration].into_iter().chain(&manifest.layers).collect();
        let total = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.bytes));
        let done = AtomicU64::new(0);
        let tell = |bytes: u64| {
            let before = done.fetch_add(bytes, Ordering::Relaxed);
            (transfer.progress)(before.saturating_add(bytes), total);
        };
        let fetch = |part| session.fetch(&adding, part, &tell);
        let fetched = stream::iter(parts).map(fetch).buffer_unordered(MAX_DOWNLOADS);
        fetched.try_collect::<Vec<()>>().await?;
        adding.image(&text, &media_type, std::slice::from_ref(name))
    })
}

/// Sends an image of the store to a registry, under this name.
///
/// # Errors
///
/// [`Error::Registry`]; [`Error::Store`].
pub fn push(
    store: &Store,
    image: &Image,
    name: &Name,
    transfer: Transfer<'_>,
) -> Result<(), Error> {
    run(async {
        let (session, ()) = begin(name, transfer, async |session| {
            let operation = RegistryOperation::Push;
            session.authorise(operation).await.map(drop)
        })
        .await?;
        let manifest = &image.manifest;
        let total = image.bytes().saturating_add(manifest.configuration.bytes);
        let mut done = 0;
        for part in manifest.layers.iter().chain([&manifest.configuration]) {
            session.send(store, part).await?;
            done += part.bytes;
            (transfer.progress)(done, total);
        }
        let media_type = HeaderValue::from_str(&image.media_type);
        let media_type = media_type.map_err(|error| session.failed(&error))?;
        let sent =
            session.client.push_manifest_raw(&session.reference, image.text.clone(), media_type);
        sent.await.map_err(|error| session.complained(error))?;
        Ok(())
    })
}

/// Runs a transfer.
fn run<T>(transfer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::Registry {
        registry: "the network".to_owned(),
        why: error.to_string(),
    })?;
    runtime.block_on(transfer)
}

/// Begins with the first protocol by which a registry can be talked to.
async fn begin<T>(
    name: &Name,
    transfer: Transfer<'_>,
    ask: impl AsyncFn(&Session) -> Result<T, Trouble>,
) -> Result<(Session, T), Error> {
    let reference = name.reference()?;
    let may_be_plain = transfer.insecure || is_loopback(reference.resolve_registry());
    let mut first = None;
    for scheme in ["https", "http"] {
        if scheme == "http" && !may_be_plain {
            break;
        }
        let session = Session::new(reference.clone(), scheme, transfer.insecure)?;
        match ask(&session).await {
            Ok(answer) => return Ok((session, answer)),
            // Somebody is there who speaks something else, or nobody.
            Err(Trouble::NoConnection(error)) => first = first.or(Some(error)),
            Err(Trouble::Other(error)) => return Err(error),
        }
    }
    let nobody = || Error::Registry {
        registry: reference.resolve_registry().to_owned(),
        why: "no connection".to_owned(),
    };
    Err(first.unwrap_or_else(nobody))
}

/// Why a registry gives no answer.
enum Trouble {
    /// There is no connection of that kind.
    NoConnection(Error),
    /// There is.
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Whether a registry is on this host.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => registry,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Who the user is to a registry.
fn credentials(registry: &str) -> Result<RegistryAuth, Error> {
    let failed = |why: String| Error::Registry { registry: registry.to_owned(), why };
    let of_docker = if registry == DOCKER.0 { DOCKER.1 } else { registry };
    let found = [
        docker_credential::get_podman_credential(registry),
        docker_credential::get_credential(of_docker),
    ];
    for found in found {
        match found {
            Ok(DockerCredential::UsernamePassword(user, password)) => {
                return Ok(RegistryAuth::Basic(user, password));
            }
            Ok(DockerCredential::IdentityToken(_)) => {
                let text = "its credentials are an identity token, which biv cannot use; log in \
                            with a password";
                return Err(failed(text.to_owned()));
            }
            Err(
                CredentialRetrievalError::NoCredentialConfigured
                | CredentialRetrievalError::ConfigNotFound
                | CredentialRetrievalError::ConfigReadError,
            ) => {}
            Err(error) => return Err(failed(format!("its credentials cannot be had: {error}"))),
        }
    }
    Ok(RegistryAuth::Anonymous)
}

/// A complaint in one line, of a length that can be read.
fn shown(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(COMPLAINT_MAX_CHARACTERS).collect()
}

impl Session {
    fn new(reference: Reference, scheme: &'static str, insecure: bool) -> Result<Self, Error> {
        // Whoever was first has chosen the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = reference.resolve_registry();
        let failed = |error: &dyn std::error::Error| Error::Registry {
            registry: registry.to_owned(),
            why: shown(error),
        };
        let config = ClientConfig {
            protocol: if scheme == "http" { ClientProtocol::Http } else { ClientProtocol::Https },
            accept_invalid_certificates: insecure,
            read_timeout: Some(REGISTRY_READ_TIMEOUT),
            connect_timeout: Some(REGISTRY_CONNECT_TIMEOUT),
            user_agent: concat!("biv/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let http = reqwest::Client::builder()
            .danger_accept_invalid_certs(insecure)
            .read_timeout(REGISTRY_READ_TIMEOUT)
            .connect_timeout(REGISTRY_CONNECT_TIMEOUT)
            .user_agent(config.user_agent)
            .build();
        let http = http.map_err(|error| failed(&error))?;
        let client = Client::try_from(config).map_err(|error| failed(&error))?;
        // Credentials are kept for what people type.
        let authority = credentials(reference.registry())?;
        Ok(Self { client, http, scheme, authority, reference })
    }

    fn why(&self, why: String) -> Error {
        Error::Registry { registry: self.reference.resolve_registry().to_owned(), why }
    }

    fn failed(&self, error: &dyn std::error::Error) -> Error {
        self.why(shown(error))
    }

    /// What `oci-client` says, for people.
    fn complained(&self, error: OciDistributionError) -> Error {
        let is_refusal =
            |status| matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        match error {
            OciDistributionError::RequestError(error) if error.status().is_some_and(is_refusal) => {
                self.refused()
            }
            OciDistributionError::UnauthorizedError { .. }
            | OciDistributionError::AuthenticationFailure(_) => self.refused(),
            error => self.failed(&error),
        }
    }

    fn refused(&self) -> Error {
        let who = match &self.authority {
            RegistryAuth::Anonymous => "without credentials (docker login, podman login)",
            _ => "with your credentials",
        };
        let repository = self.reference.repository();
        self.why(format!("access to {repository} is refused {who}, or there is no such image"))
    }

    /// Becomes known to the registry; a token, if that gives one.
    async fn authorise(&self, operation: RegistryOperation) -> Result<Option<String>, Trouble> {
        let asked = self.client.auth(&self.reference, &self.authority, operation);
        match tokio::time::timeout(REGISTRY_AUTHORISATION_TIMEOUT, asked).await {
            Ok(Ok(token)) => Ok(token),
            Ok(Err(OciDistributionError::RequestError(error))) if error.is_connect() => {
                Err(Trouble::NoConnection(self.failed(&error)))
            }
            Ok(Err(error)) => Err(self.complained(error).into()),
            Err(_) => Err(self.why("it does not answer".to_owned()).into()),
        }
    }

    /// A manifest or an index, with its type; it has that digest, if one is given.
    async fn manifest(
        &self,
        reference: &Reference,
        wanted: Option<Digest>,
    ) -> Result<(Vec<u8>, String), Trouble> {
        let token = self.authorise(RegistryOperation::Pull).await?;
        let which = reference.digest().or(reference.tag()).unwrap_or("latest");
        let (scheme, registry) = (self.scheme, reference.resolve_registry());
        let url = format!("{scheme}://{registry}/v2/{}/manifests/{which}", reference.repository());
        let request = self.http.get(url).header(ACCEPT, MANIFESTS);
        let request = match (token, &self.authority) {
            (Some(token), _) => request.bearer_auth(token),
            (None, RegistryAuth::Basic(user, password)) => request.basic_auth(user, Some(password)),
            (None, _) => request,
        };
        let sent = request.send().await;
        let mut response = sent.map_err(|error| match error.is_connect() {
            true => Trouble::NoConnection(self.failed(&error)),
            false => self.failed(&error).into(),
        })?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.refused().into()),
            StatusCode::NOT_FOUND => {
                let text = format!("it has no image {}:{which}", reference.repository());
                return Err(self.why(text).into());
            }
            status => return Err(self.why(format!("it says {status}")).into()),
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
        let media_type = kind.trim().to_owned();
        let mut text = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.failed(&error))? {
            text.extend_from_slice(&part);
            if text.len() as u64 > MAX_MANIFEST_BYTES {
                let limit = MAX_MANIFEST_BYTES >> 20;
                return Err(self.why(format!("its manifest has more than {limit} MiB")).into());
            }
        }
        let found = Digest::of(&text);
        match wanted {
            Some(wanted) if wanted != found => {
                let what = "the registry's manifest".to_owned();
                Err(Error::Digest { what, wanted, found }.into())
            }
            _ => Ok((text, media_type)),
        }
    }

    /// The manifest that a document is, or that an index has for our machines.
    async fn resolve(
        &self,
        mut text: Vec<u8>,
        mut media_type: String,
    ) -> Result<(Vec<u8>, String), Error> {
        for _ in 0..MAX_INDEX_DEPTH {
            let Document::Index(index) = Document::parse(&text)? else {
                return Ok((text, media_type));
            };
            let blob = image::choose(&index)?;
            let reference = self.reference.clone_with_digest(blob.digest.to_string());
            let found = self.manifest(&reference, Some(blob.digest)).await;
            (text, media_type) = found.map_err(|trouble| match trouble {
                Trouble::NoConnection(error) | Trouble::Other(error) => error,
            })?;
        }
        Err(Error::Unsupported("its indexes lead to indexes".to_owned()))
    }

    /// Fetches a part, unless it is here. What breaks off is tried again.
    async fn fetch(
        &self,
        adding: &Adding<'_>,
        part: &Blob,
        tell: &dyn Fn(u64),
    ) -> Result<(), Error> {
        if adding.has(part) {
            tell(part.bytes);
            return Ok(());
        }
        let mut told = 0;
        for attempt in 1.. {
            let mut now = 0;
            let mut tell = |bytes: u64| {
                now += bytes;
                // What comes again was told before.
                let new = now.saturating_sub(told);
                told = told.max(now);
                tell(new);
            };
            match self.fetch_once(adding, part, &mut tell).await {
                Err(Error::Registry { why, .. }) if attempt < TRANSFER_ATTEMPTS => {
                    tracing::info!("layer {}: {why}; trying again", part.digest);
                }
                done => return done,
            }
        }
        Ok(())
    }

    async fn fetch_once(
        &self,
        adding: &Adding<'_>,
        part: &Blob,
        tell: &mut dyn FnMut(u64),
    ) -> Result<(), Error> {
        let digest = part.digest.to_string();
        let begun = self.client.pull_blob_stream(&self.reference, digest.as_str()).await;
        let mut stream = begun.map_err(|error| self.complained(error))?;
        let mut draft = adding.draft()?;
        let mut left = part.bytes;
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(|error| self.failed(&error))?;
            left = left.checked_sub(bytes.len() as u64).ok_or_else(|| Error::Size {
                what: digest.clone(),
                found: "more bytes".to_owned(),
                wanted: part.bytes.to_string(),
            })?;
            draft
                .write_all(&bytes)
                .map_err(|error| Error::Store { path: adding.path(&part.digest), error })?;
            tell(bytes.len() as u64);
        }
        adding.keep(draft, part)
    }

    /// Sends a part, unless the registry has it.
    async fn send(&self, store: &Store, part: &Blob) -> Result<(), Error> {
        let digest = part.digest.to_string();
        let is_there = self.client.blob_exists(&self.reference, &digest).await;
        if is_there.map_err(|error| self.complained(error))? {
            return Ok(());
        }
        let file = store.open_blob(&part.digest)?;
        let pieces = stream::unfold(Some(file), async |file: Option<File>| {
            let mut file = file?;
            let mut piece = Vec::new();
            let read = (&mut file).take(UPLOAD_BYTES).read_to_end(&mut piece);
            match read {
                Ok(0) => None,
                Ok(_) => Some((Ok(piece.into()), Some(file))),
                Err(error) => Some((Err(OciDistributionError::IoError(error)), None)),
            }
        });
        let sent =
            self.client.push_blob_stream(&self.reference, pieces, &digest, Some(part.bytes)).await;
        sent.map(drop).map_err(|error| self.complained(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_loopback() {
        for registry in ["localhost", "localhost:5000", "127.0.0.1:80", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(registry), "{registry}");
        }
        for registry in ["quay.io", "localhost.example.com:80", "10.0.0.1:5000", "128.0.0.1"] {
            assert!(!is_loopback(registry), "{registry}");
        }
    }
}
