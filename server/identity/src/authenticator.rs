//! Finds the caller of a request from its headers, or else from the certificate of its connection.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::api_keys::ApiKeys;
use crate::token::Tokens;
use crate::{Caller, Denied};

/// Header with an API key, for clients that cannot set `authorization`.
const API_KEY: &str = "x-api-key";
const BEARER: &[u8] = b"bearer ";

/// Knows the callers. Keys are replaced while it is in use, so each request is checked against the newest ones.
#[derive(Default)]
pub struct Authenticator {
    pub(crate) keys: ArcSwapOption<ApiKeys>,
    pub(crate) tokens: ArcSwapOption<Tokens>,
}

impl Authenticator {
    /// The caller of a request. A credential in the headers wins over the certificate of the connection, so that a caller can
    /// ask for another role than its machine has.
    ///
    /// # Errors
    /// Why the caller is not known.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Caller>,
        now: SystemTime,
    ) -> Result<Caller, Denied> {
        match credential(headers)? {
            Some(credential) => self.of_credential(credential, now),
            None => certificate.cloned().ok_or(Denied::Missing),
        }
    }

    fn of_credential(&self, credential: &[u8], now: SystemTime) -> Result<Caller, Denied> {
        if let Some(caller) = self.keys.load().as_ref().and_then(|keys| keys.find(credential).cloned()) {
            return Ok(caller);
        }
        match self.tokens.load().as_ref() {
            Some(tokens) => tokens.caller(credential, now),
            None => Err(Denied::Invalid),
        }
    }

    /// Tenants that the API keys name.
    pub fn tenants(&self) -> Vec<Arc<str>> {
        self.keys.load().iter().flat_map(|keys| keys.tenants().cloned().collect::<Vec<_>>()).collect()
    }
}

/// The credential of a request. `authorization` of another scheme than Bearer is for someone else.
fn credential(headers: &HeaderMap) -> Result<Option<&[u8]>, Denied> {
    let bearer = headers.get_all(AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes()));
    let keys = headers.get_all(API_KEY).iter().map(|value| value.as_bytes().trim_ascii());
    let mut found = None;
    for credential in bearer.chain(keys) {
        if found.is_some_and(|found| found != credential) {
            return Err(Denied::Several);
        }
        found = Some(credential);
    }
    Ok(found)
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, credential) = value.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| credential.trim_ascii())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::{Role, new_key};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn a_key_is_taken_from_either_header_and_an_unknown_one_is_refused() {
        let new = new_key().unwrap();
        let keys = ApiKeys::parse(&format!("{} read search", new.sha256)).unwrap();
        let authenticator = Authenticator::default();
        authenticator.keys.store(Some(Arc::new(keys)));
        let machine = Caller { role: Role::Infer, tenant: "a".into(), name: "machine".into() };
        let identify = |pairs: &[(&'static str, &str)], certificate| {
            let caller = authenticator.identify(&headers(pairs), certificate, SystemTime::now());
            caller.map(|caller| caller.role)
        };
        let bearer = format!("Bearer {}", new.key);
        let shouted = format!("BEARER  {}", new.key);
        assert_eq!(identify(&[("authorization", &bearer)], None), Ok(Role::Read));
        assert_eq!(identify(&[("authorization", &shouted)], None), Ok(Role::Read));
        assert_eq!(identify(&[("x-api-key", &new.key)], None), Ok(Role::Read));
        assert_eq!(identify(&[("authorization", &bearer), ("x-api-key", &new.key)], None), Ok(Role::Read));
        assert_eq!(identify(&[("authorization", &bearer)], Some(&machine)), Ok(Role::Read));
        assert_eq!(identify(&[], Some(&machine)), Ok(Role::Infer));
        assert_eq!(identify(&[("authorization", "Basic YTpi")], Some(&machine)), Ok(Role::Infer));
        assert_eq!(identify(&[], None), Err(Denied::Missing));
        assert_eq!(identify(&[("authorization", "Basic YTpi")], None), Err(Denied::Missing));
        assert_eq!(identify(&[("authorization", "Bearer x")], Some(&machine)), Err(Denied::Invalid));
        assert_eq!(identify(&[("authorization", "Bearer ")], None), Err(Denied::Invalid));
        assert_eq!(identify(&[("authorization", &bearer), ("x-api-key", "x")], None), Err(Denied::Several));
    }
}
