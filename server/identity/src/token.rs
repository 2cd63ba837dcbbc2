//! Tokens (JWT): who signed them, for whom, until when, and which caller they stand for.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use lru::LruCache;
use serde_json::{Map, Value};

use crate::api_keys::{Hash, hash};
use crate::jwks::{self, SigningKey};
use crate::settings::TokenSettings;
use crate::{Caller, DEFAULT_TENANT, Denied, Role, check_name};

/// Bytes of a token.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Tokens whose signature was checked already. Checking one takes longer than a small inference.
const CHECKED_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// The claims of a token by name.
type Claims = Map<String, Value>;

/// A caller and when its token is valid, in seconds since 1970.
#[derive(Clone)]
struct Checked {
    caller: Result<Caller, Denied>,
    from: f64,
    until: f64,
}

/// Checks tokens with the keys of one set. New keys are a new value, so that nothing checked with old keys is remembered.
pub struct Tokens {
    keys: Vec<SigningKey>,
    settings: TokenSettings,
    checked: Mutex<LruCache<Hash, Checked>>,
}

impl Tokens {
    /// Accepts tokens that the keys of a JSON Web Key Set signed.
    ///
    /// # Errors
    /// What is wrong with the set.
    pub fn new(set: &str, settings: TokenSettings) -> Result<Self, String> {
        Ok(Self { keys: jwks::parse(set)?, settings, checked: Mutex::new(LruCache::new(CHECKED_MAX)) })
    }

    /// The caller that a token stands for at `now`.
    ///
    /// # Errors
    /// Why it is not accepted. That a token has expired is said only if it was valid.
    pub fn caller(&self, token: &[u8], now: SystemTime) -> Result<Caller, Denied> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Denied::Invalid);
        }
        let id = hash(token);
        let known = self.checked.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let checked = match known {
            Some(checked) => checked,
            None => {
                let checked = self.check(token)?;
                self.checked.lock().unwrap_or_else(PoisonError::into_inner).put(id, checked.clone());
                checked
            }
        };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        let leeway = self.settings.leeway.as_secs_f64();
        if now >= checked.until + leeway {
            return Err(Denied::Expired);
        }
        if now < checked.from - leeway {
            return Err(Denied::Invalid);
        }
        checked.caller
    }

    /// Everything about a token but the time.
    fn check(&self, token: &[u8]) -> Result<Checked, Denied> {
        // The algorithms are an enum without `none`, and no key allows HMAC.
        let header = decode_header(token).map_err(|_| Denied::Invalid)?;
        let key = self.key(header.kid.as_deref(), header.alg).ok_or(Denied::Invalid)?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&self.settings.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // The time changes between two uses of one token, so it is compared for each.
        validation.validate_exp = false;
        let claims: Claims = decode(token, &key.key, &validation).map_err(|_| Denied::Invalid)?.claims;
        // Strict: a time of the wrong type makes the token invalid, instead of valid for ever.
        let until = claims.get("exp").and_then(Value::as_f64).ok_or(Denied::Invalid)?;
        let from = claims.get("nbf").map_or(Some(0.0), Value::as_f64).ok_or(Denied::Invalid)?;
        Ok(Checked { caller: self.named(&claims), from, until })
    }

    /// The key that must have signed a token. Without an id, only one key may come into question.
    fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&SigningKey> {
        let mut fitting = self.keys.iter().filter(|key| {
            key.algorithms.contains(&algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id))
        });
        let key = fitting.next()?;
        fitting.next().is_none().then_some(key)
    }

    fn named(&self, claims: &Claims) -> Result<Caller, Denied> {
        let role = claim(claims, &self.settings.role_claim).and_then(role).ok_or(Denied::NoRole)?;
        let name = |text: &str| check_name(text).is_ok().then(|| Arc::from(text));
        let tenant = claim(claims, &self.settings.tenant_claim).and_then(Value::as_str);
        Ok(Caller {
            role,
            tenant: tenant.and_then(name).unwrap_or_else(|| DEFAULT_TENANT.into()),
            name: claims.get("sub").and_then(Value::as_str).and_then(name).unwrap_or_else(|| "token".into()),
        })
    }
}

/// A claim by name, or by a path such as `realm_access.roles`. Names may contain dots, as URLs do.
fn claim<'a>(claims: &'a Claims, path: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    claim(claims.get(first)?.as_object()?, rest)
}

/// The role in a claim: a word, words in a text (as in `scope`), or a list. Of several, `operate`, then `infer`, then `read`.
fn role(value: &Value) -> Option<Role> {
    let words: Vec<&str> = match value {
        Value::String(text) => text.split_whitespace().collect(),
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    [Role::Operate, Role::Infer, Role::Read].into_iter().find(|role| words.contains(&role.word()))
}

#[cfg(test)]
mod tests;
