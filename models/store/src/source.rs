//! The object store that holds the repository.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use http::HeaderMap;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::{Error as PathError, Path as StorePath};
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectMeta, ObjectStore, RetryConfig};

use crate::error::Error;
use crate::key::Key;
use crate::limits::Limits;
use crate::listing::{Listed, Listing};
use crate::location::{Location, LocationError, Scheme};
use crate::redaction::Redaction;

/// The object store that holds the repository.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub store: Arc<dyn ObjectStore>,
    prefix: StorePath,
    url: Arc<str>,
    redaction: Redaction,
    /// The folder of the repository if it is local, without links.
    pub folder: Option<PathBuf>,
    /// Whether the store lists ETags without quotes and expects them with quotes.
    pub lists_bare_etags: bool,
    /// Whether each ETag of 32 hexadecimal digits is the MD5 of the content.
    pub etag_is_md5: bool,
    /// Whether a listing is a WebDAV request.
    is_webdav: bool,
}

impl Source {
    /// Opens the store of a location. Sends no request.
    pub(crate) fn open(location: &Location, limits: &Limits) -> Result<Self, Error> {
        let redaction = Redaction::new(location.options(), environment());
        let refuse = |error: &dyn std::fmt::Display| {
            let reason = redaction.apply(&error.to_string());
            Error::Location(LocationError::Url { url: location.url().to_owned(), reason })
        };
        let folder = match location.scheme() {
            Scheme::File => {
                let path = PathBuf::from(format!("/{}", location.prefix()));
                Some(path.canonicalize().map_err(|error| refuse(&error))?)
            }
            _ => None,
        };
        let store = connect(location, limits, folder.as_deref()).map_err(|error| refuse(&error))?;
        let prefix = if folder.is_some() { "" } else { location.prefix() };
        let prefix = StorePath::parse(prefix).map_err(|error| refuse(&error))?;
        Ok(Self {
            store,
            prefix,
            url: location.url().into(),
            redaction,
            folder,
            lists_bare_etags: location.scheme() == Scheme::Azure,
            etag_is_md5: location.options().get("etag_is_md5").is_some_and(|value| value == "true"),
            is_webdav: location.scheme() == Scheme::Http,
        })
    }

    /// A source with another store, for tests.
    #[cfg(test)]
    pub(crate) fn with_store(store: Arc<dyn ObjectStore>, prefix: &str, url: &str) -> Self {
        Self {
            store,
            prefix: StorePath::from(prefix),
            url: url.into(),
            redaction: Redaction::default(),
            folder: None,
            lists_bare_etags: false,
            etag_is_md5: false,
            is_webdav: false,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where the store has an object.
    pub(crate) fn path(&self, key: &Key) -> Result<StorePath, Error> {
        let path = match self.prefix.as_ref() {
            "" => key.to_string(),
            prefix => format!("{prefix}/{key}"),
        };
        StorePath::parse(path).map_err(|error| self.failed(error.into()))
    }

    /// Lists all objects. Fails on the first key that is not safe, so nothing of such a source is ever downloaded.
    pub(crate) async fn list(&self, limits: &Limits) -> Result<Listing, Error> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let mut stream = self.store.list(prefix);
        let mut listing = Listing::default();
        let mut count = 0_usize;
        loop {
            let next = tokio::time::timeout(limits.answer_timeout(), stream.next());
            let Ok(next) = next.await else {
                return Err(
                    self.unavailable(&format!("no listing within {} s", limits.answer_timeout().as_secs()))
                );
            };
            let Some(object) = next else { break };
            let object = object.map_err(|error| self.failed_listing(error))?;
            count += 1;
            if count > limits.objects_max {
                let (url, objects_max) = (self.url.to_string(), limits.objects_max);
                return Err(Error::TooManyObjects { url, objects_max });
            }
            let (key, listed) = self.listed(&object)?;
            // Some stores list the marker of the prefix itself.
            if !(key.is_empty() && listed.size == 0) {
                listing.add(&key, listed).map_err(|reason| self.key_refused(&key, reason))?;
            }
        }
        listing.finish().map_err(|(key, reason)| self.key_refused(key.as_str(), reason))?;
        if listing.objects().is_empty() {
            return Err(Error::Empty { url: self.url.to_string() });
        }
        Ok(listing)
    }

    fn listed(&self, object: &ObjectMeta) -> Result<(String, Listed), Error> {
        let whole = object.location.as_ref();
        let key = match self.prefix.as_ref() {
            "" => Some(whole),
            prefix if whole == prefix => Some(""),
            prefix => whole.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')),
        };
        let key = key.ok_or_else(|| self.key_refused(whole, "is not below the prefix".to_owned()))?;
        Ok((key.to_owned(), listed(object)))
    }

    fn key_refused(&self, key: &str, reason: String) -> Error {
        Error::Key { url: self.url.to_string(), key: key.to_owned(), reason }
    }

    pub(crate) fn unavailable(&self, reason: &str) -> Error {
        Error::Unavailable { url: self.url.to_string(), reason: self.redaction.apply(reason) }
    }

    fn failed_listing(&self, error: object_store::Error) -> Error {
        match self.failed(error) {
            Error::Unavailable { url, reason } if self.is_webdav => {
                let reason = format!("{reason}; listing needs a WebDAV server, which answers PROPFIND");
                Error::Unavailable { url, reason }
            }
            error => error,
        }
    }

    /// An error of the store, without credentials.
    pub(crate) fn failed(&self, error: object_store::Error) -> Error {
        if let object_store::Error::InvalidPath {
            source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. },
        } = &error
        {
            let relative = path.strip_prefix(self.prefix.as_ref()).unwrap_or(path);
            let key = relative.strip_prefix('/').unwrap_or(relative);
            let reason = Key::parse(key).err().unwrap_or_else(|| error.to_string());
            return self.key_refused(key, reason);
        }
        let mut reason = error.to_string();
        let mut cause = error.source();
        while let Some(found) = cause {
            // Most causes are part of the text already.
            if found.source().is_none() && !reason.contains(&found.to_string()) {
                reason = format!("{reason}: {found}");
            }
            cause = found.source();
        }
        let reason = self.redaction.apply(&reason);
        let url = self.url.to_string();
        // Errors of listings have no type that says so, only a text.
        let is_denied = ["status code: 401", "status code: 403"].iter().any(|text| reason.contains(text));
        match error {
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Error::Denied { url, reason }
            }
            _ if is_denied => Error::Denied { url, reason },
            _ => Error::Unavailable { url, reason },
        }
    }
}

/// What a store says about an object.
pub(crate) fn listed(object: &ObjectMeta) -> Listed {
    Listed {
        size: object.size,
        etag: object.e_tag.clone(),
        version: object.version.clone(),
        modified_us: object.last_modified.timestamp_micros(),
    }
}

fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn connect(
    location: &Location,
    limits: &Limits,
    folder: Option<&std::path::Path>,
) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: limits.retries_max,
        retry_timeout: limits.retry_timeout,
    };
    let seconds = |duration: std::time::Duration| format!("{}ms", duration.as_millis());
    let timeouts = [
        (ClientConfigKey::ConnectTimeout, seconds(limits.connect_timeout)),
        (ClientConfigKey::ReadTimeout, seconds(limits.stall_timeout)),
        // The default would end every download after 30 s. `download` has a limit for each attempt.
        (ClientConfigKey::Timeout, "1day".to_owned()),
    ];
    let options = location.options().iter().filter(|(name, _)| *name != "etag_is_md5");
    let bucket = location.authority();
    Ok(match location.scheme() {
        Scheme::S3 => {
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
            for (key, value) in timeouts {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
            }
            for (name, value) in options {
                builder = builder.with_config(name.parse()?, value);
            }
            Arc::new(builder.build()?)
        }
        Scheme::Gcs => {
            let mut builder =
                GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
            for (key, value) in timeouts {
                builder = builder.with_config(GoogleConfigKey::Client(key), value);
            }
            for (name, value) in options {
                builder = builder.with_config(name.parse()?, value);
            }
            Arc::new(builder.build()?)
        }
        Scheme::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_retry(retry);
            let mut builder = match bucket.contains('@') {
                true => builder.with_url(location.url()),
                false => builder.with_container_name(bucket),
            };
            for (key, value) in timeouts {
                builder = builder.with_config(AzureConfigKey::Client(key), value);
            }
            for (name, value) in options {
                builder = builder.with_config(name.parse()?, value);
            }
            Arc::new(builder.build()?)
        }
        Scheme::Http => {
            let mut client = ClientOptions::new();
            for (key, value) in timeouts {
                client = client.with_config(key, value);
            }
            for (name, value) in options {
                client = match name.as_str() {
                    "authorization" => client.with_default_headers(authorization(value)?),
                    _ => client.with_config(name.parse()?, value),
                };
            }
            let scheme = location.url().split("://").next().unwrap_or("https");
            let builder = HttpBuilder::new().with_url(format!("{scheme}://{bucket}"));
            Arc::new(builder.with_client_options(client).with_retry(retry).build()?)
        }
        Scheme::File => {
            Arc::new(LocalFileSystem::new_with_prefix(folder.unwrap_or(std::path::Path::new("/")))?)
        }
    })
}

fn authorization(value: &str) -> Result<HeaderMap, object_store::Error> {
    // The error of the conversion does not contain the value.
    let mut value: http::HeaderValue = value.parse().map_err(|error| object_store::Error::Generic {
        store: "option `authorization`",
        source: Box::new(error),
    })?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]))
}
