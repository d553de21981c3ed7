//! A request, and what handlers take from it.

use std::sync::Arc;
use std::time::Duration;

use api::{Entry, Registry};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

use crate::error::Error;
use crate::limits::{BODY_MAX_BYTES, BODY_TIMEOUT, WAIT_MAX_SECONDS};
use crate::shared::Shared;

/// See above.
pub struct Call {
    /// The server.
    pub shared: Arc<Shared>,
    /// What stands in the place of `{...}` in the path.
    pub parameter: String,
    /// The request.
    pub request: Request<Incoming>,
}

/// How long a request waits for the end of its job.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct Wait {
    /// Seconds that the answer may wait for the end of the job; 0 if that is left out.
    #[param(maximum = 600)]
    pub wait: u64,
}

impl Wait {
    /// The same, as far as it is allowed.
    #[must_use]
    pub fn span(&self) -> Duration {
        Duration::from_secs(self.wait.min(WAIT_MAX_SECONDS))
    }
}

impl Call {
    /// What follows the `?`.
    ///
    /// # Errors
    ///
    /// It is not that.
    pub fn query<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let query = self.request.uri().query().unwrap_or_default();
        serde_urlencoded::from_str(query).map_err(|error| Error::Request(error.to_string()))
    }

    /// The body, whatever it is.
    ///
    /// # Errors
    ///
    /// It is too long, or does not come.
    pub async fn bytes(&mut self) -> Result<Bytes, Error> {
        let body = Limited::new(self.request.body_mut(), BODY_MAX_BYTES).collect();
        match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::Body),
            Ok(Err(error)) => Err(Error::Request(error.to_string())),
            Err(_) => Err(Error::Late),
        }
    }

    /// The body as a value; an empty one says nothing.
    ///
    /// # Errors
    ///
    /// It is none.
    pub async fn value<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let bytes = self.bytes().await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| Error::Request(error.to_string()))
    }

    /// The domain that the path names.
    ///
    /// # Errors
    ///
    /// There is none.
    pub async fn entry(&self) -> Result<Entry, Error> {
        let name = self.parameter.clone();
        blocking(move || Ok(Registry::open()?.find(&name)?)).await
    }

    /// The right to one more answer that goes on.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn stream(&self) -> Result<OwnedSemaphorePermit, Error> {
        let streams = Arc::clone(&self.shared.streams);
        streams.try_acquire_owned().map_err(|_| Error::Busy("answers that go on"))
    }
}

/// Does what may block where it holds up nobody.
///
/// # Errors
///
/// Its own.
pub async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(act).await.unwrap_or(Err(Error::Ours))
}
