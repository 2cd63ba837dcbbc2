//! Paths: which model they name.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use node::reason::{Reason, Refusal};

use super::response::Refused;

/// A model, and a version if the path names one. Both are as sent and not validated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Model name.
    pub model: &'a str,
    /// Version, if the path names one.
    pub version: Option<&'a str>,
}

/// The target of `/v2/models/M[/versions/V]/infer`. Escapes are not decoded: no valid name needs them.
pub fn infer_target(path: &str) -> Option<Target<'_>> {
    let rest = path.strip_prefix("/v2/models/")?.strip_suffix("/infer")?;
    let (model, version) = match rest.split_once('/') {
        None => (rest, None),
        Some((model, rest)) => (model, Some(rest.strip_prefix("versions/")?)),
    };
    let is_segment = |text: &str| !text.is_empty() && !text.contains('/');
    (is_segment(model) && version.is_none_or(is_segment)).then_some(Target { model, version })
}

/// As [`Target`], for the routes that axum matches.
#[derive(Clone, Debug)]
pub struct OwnedTarget {
    /// Model name.
    pub model: String,
    /// Version, if the path names one.
    pub version: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for OwnedTarget {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| undecodable())?;
        let mut target = Self { model: String::new(), version: None };
        for (name, value) in &params {
            match name {
                "model" => value.clone_into(&mut target.model),
                "version" => target.version = Some(value.to_owned()),
                _ => {}
            }
        }
        if target.model.is_empty() || target.version.as_deref() == Some("") {
            let message = "path: expected a model name and a version, got an empty one";
            return Err(Refusal::new(Reason::UnknownPath, message).into());
        }
        Ok(target)
    }
}

/// Name of a shared-memory region in a path.
#[derive(Clone, Debug)]
pub struct RegionName(pub String);

impl<S: Send + Sync> FromRequestParts<S> for RegionName {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| undecodable())?;
        let region = params.iter().find(|(name, _)| *name == "region").map(|(_, value)| value.to_owned());
        Ok(Self(region.unwrap_or_default()))
    }
}

fn undecodable() -> Refused {
    Refusal::new(Reason::UnknownPath, "path: expected escapes that decode to UTF-8").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infer_paths_are_recognised_with_and_without_version() {
        let target = |path| infer_target(path).map(|target| (target.model, target.version));
        assert_eq!(target("/v2/models/m/infer"), Some(("m", None)));
        assert_eq!(target("/v2/models/m/versions/3/infer"), Some(("m", Some("3"))));
        assert_eq!(target("/v2/models/infer/infer"), Some(("infer", None)));
        for path in [
            "/v2/models//infer",
            "/v2/models/infer",
            "/v2/models/m/infer/",
            "/v2/models/m/versions//infer",
            "/v2/models/m/versions/1/2/infer",
            "/v2/models/m/3/infer",
            "/v2/models/m/ready",
            "/v1/models/m/infer",
        ] {
            assert_eq!(target(path), None, "{path}");
        }
    }
}
