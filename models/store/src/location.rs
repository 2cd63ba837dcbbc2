//! Where a repository is: a URL and options, checked.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use object_store::ClientConfigKey;
use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

use crate::key::Key;
use crate::redaction::is_secret;

/// Type of the store, from the scheme of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `s3://bucket/prefix`: Amazon S3 and servers with its protocol.
    S3,
    /// `gs://bucket/prefix`: Google Cloud Storage.
    Gcs,
    /// `az://container/prefix` and `abfs[s]://container@account.host/prefix`: Azure Blob Storage.
    Azure,
    /// `https://host/path`, or `http://` with the option `allow_http`: a WebDAV server.
    Http,
    /// `file:///folder`.
    File,
}

/// The URL or an option of a source is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The URL is wrong.
    #[error("repository URL `{url}`: {reason}")]
    Url {
        /// The URL, without credentials.
        url: String,
        /// What was wrong, and what would be right.
        reason: String,
    },
    /// An option is wrong.
    #[error("repository option `{option}`: {reason}")]
    Option {
        /// Name of the option.
        option: String,
        /// What was wrong, and what would be right.
        reason: String,
    },
}

/// Where a repository is. Shows no credentials.
#[derive(Clone)]
pub struct Location {
    scheme: Scheme,
    url: String,
    authority: String,
    prefix: String,
    options: BTreeMap<String, String>,
}

impl Location {
    /// Whether a text is a URL and not a path: it starts with a scheme and `://`.
    pub fn is_url(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        })
    }

    /// Checks a URL and options such as `endpoint`, `region` and `allow_http`.
    ///
    /// Credentials come from the environment of the process as usual for the store: variables, instance metadata and web
    /// identities. An option takes precedence over a variable.
    ///
    /// # Errors
    /// Says what was wrong and what would be right.
    pub fn parse(url: &str, options: &BTreeMap<String, String>) -> Result<Self, LocationError> {
        let refuse =
            |reason: &str| LocationError::Url { url: without_credentials(url), reason: reason.to_owned() };
        let (scheme_name, rest) = url
            .split_once("://")
            .ok_or_else(|| refuse("expected a scheme, for example `s3://bucket/prefix`"))?;
        let scheme = match scheme_name {
            "s3" => Scheme::S3,
            "gs" => Scheme::Gcs,
            "az" | "abfs" | "abfss" => Scheme::Azure,
            "http" | "https" => Scheme::Http,
            "file" => Scheme::File,
            _ => return Err(refuse("unknown scheme: expected s3, gs, az, abfs, abfss, https, http or file")),
        };
        if rest.contains(['?', '#']) {
            return Err(refuse("expected no `?` and no `#`: set options and credentials separately"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if scheme == Scheme::File && !authority.is_empty() {
            return Err(refuse(
                "expected an absolute path after `file://`, for example `file:///srv/models`",
            ));
        }
        if scheme != Scheme::File {
            check_authority(scheme_name, authority).map_err(|reason| refuse(&reason))?;
        }
        let prefix = path.trim_end_matches('/');
        if matches!(scheme, Scheme::Http | Scheme::File) && prefix.contains('%') {
            return Err(refuse("expected a path without percent-encoding"));
        }
        if !prefix.is_empty() {
            Key::parse(prefix).map_err(|reason| refuse(&format!("the path {reason}")))?;
        } else if scheme == Scheme::File {
            return Err(refuse("expected a folder below the root"));
        }
        check_options(scheme, options)?;
        if scheme_name == "http" && options.get("allow_http").map(String::as_str) != Some("true") {
            return Err(refuse("is not encrypted: expected https, or the option allow_http = true"));
        }
        let url = format!("{scheme_name}://{authority}/{prefix}");
        let (authority, prefix) = (authority.to_owned(), prefix.to_owned());
        Ok(Self { scheme, url, authority, prefix, options: options.clone() })
    }

    /// Type of the store.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The URL in its normal form.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Bucket, container or host.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Path of the repository inside the bucket. Empty for a whole bucket.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn options(&self) -> &BTreeMap<String, String> {
        &self.options
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&String, &String)| {
            (name.clone(), if is_secret(name) { "***".to_owned() } else { value.clone() })
        };
        let options: BTreeMap<_, _> = self.options.iter().map(shown).collect();
        f.debug_struct("Location").field("url", &self.url).field("options", &options).finish()
    }
}

/// A URL in which what may be credentials is replaced.
fn without_credentials(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (shown, hidden) = url.split_at(end);
    let hidden = if hidden.is_empty() { "" } else { "?***" };
    let Some((scheme, rest)) = shown.split_once("://") else { return format!("{shown}{hidden}") };
    match rest.split_once('/').unwrap_or((rest, "")).0.rsplit_once('@') {
        Some((user, _)) if !scheme.starts_with("abfs") || user.contains(':') => {
            let (_, host_and_path) = rest.split_at(user.len());
            format!("{scheme}://***{host_and_path}{hidden}")
        }
        _ => format!("{shown}{hidden}"),
    }
}

fn check_authority(scheme: &str, authority: &str) -> Result<(), String> {
    let noun = match scheme {
        "s3" | "gs" => "bucket",
        "http" | "https" => "host",
        _ => "container",
    };
    if authority.is_empty() {
        return Err(format!("expected a {noun} after `{scheme}://`"));
    }
    let (name, host) = match authority.split_once('@') {
        Some((container, host)) if scheme.starts_with("abfs") => (container, Some(host)),
        Some(_) => {
            return Err("expected no credentials: set them as options or in the environment".to_owned());
        }
        None => (authority, None),
    };
    let valid = |text: &str, more: &[u8]| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b) || more.contains(&b))
    };
    let more: &[u8] = if noun == "host" { b":[]" } else { b"" };
    if !valid(name, more) || !host.is_none_or(|host| valid(host, b"")) {
        return Err(format!("expected a {noun} of letters, digits, `-`, `.` and `_`"));
    }
    Ok(())
}

fn check_options(scheme: Scheme, options: &BTreeMap<String, String>) -> Result<(), LocationError> {
    for (option, value) in options {
        let refuse =
            |reason: &str| LocationError::Option { option: option.clone(), reason: reason.to_owned() };
        let (known, examples) = match scheme {
            Scheme::S3 => {
                (AmazonS3ConfigKey::from_str(option).is_ok(), "endpoint, region, allow_http, skip_signature")
            }
            Scheme::Gcs => {
                (GoogleConfigKey::from_str(option).is_ok(), "base_url, allow_http, skip_signature")
            }
            Scheme::Azure => (AzureConfigKey::from_str(option).is_ok(), "account_name, endpoint, allow_http"),
            Scheme::Http => (
                option == "authorization" || ClientConfigKey::from_str(option).is_ok(),
                "authorization, allow_http",
            ),
            Scheme::File => (false, "none"),
        };
        let is_ours = option == "etag_is_md5" && scheme == Scheme::S3;
        if !known && !is_ours {
            return Err(refuse(&format!("unknown for this URL: expected for example {examples}")));
        }
        let is_flag = ["allow_http", "etag_is_md5", "skip_signature"].contains(&option.as_str());
        if is_flag && !["true", "false"].contains(&value.as_str()) {
            return Err(refuse("expected true or false"));
        }
        if option.contains("endpoint") || option.ends_with("_url") {
            let host = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
            if host.split('/').next().unwrap_or_default().contains('@') {
                return Err(refuse("expected a URL without credentials"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
