//! JSON Web Key Sets: the keys that sign tokens.

use std::collections::BTreeSet;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize as _;
use serde_json::Value;

/// Keys of a set.
const KEYS_MAX: usize = 64;
const RSA: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// One key and the algorithms that it may be used with.
pub struct SigningKey {
    /// `kid` of the set.
    pub id: Option<String>,
    /// The public key.
    pub key: DecodingKey,
    /// Asymmetric ones only: with HMAC, a server that checks tokens could also make them.
    pub algorithms: Vec<Algorithm>,
}

/// Reads a set. Keys for encryption are left out.
///
/// # Errors
/// What is wrong with which entry, and what would be right.
pub fn parse(text: &str) -> Result<Vec<SigningKey>, String> {
    let expected = "expected a JSON Web Key Set such as `{\"keys\": [...]}`";
    let set: Value = serde_json::from_str(text).map_err(|error| format!("{expected}: {error}"))?;
    let entries = set.get("keys").and_then(Value::as_array).ok_or(expected)?;
    if entries.len() > KEYS_MAX {
        return Err(format!("{} keys: expected at most {KEYS_MAX}", entries.len()));
    }
    let (mut keys, mut ids) = (Vec::new(), BTreeSet::new());
    for (index, entry) in entries.iter().enumerate() {
        let wrong = |message: String| format!("keys[{index}]: {message}");
        let jwk = Jwk::deserialize(entry).map_err(|_| {
            wrong("expected a JSON Web Key of type RSA, EC or OKP with its parameters".to_owned())
        })?;
        if jwk.common.public_key_use == Some(PublicKeyUse::Encryption) {
            continue;
        }
        let algorithms = algorithms(&jwk).map_err(wrong)?;
        let key =
            DecodingKey::from_jwk(&jwk).map_err(|error| wrong(format!("expected a public key: {error}")))?;
        if let Some(id) = &jwk.common.key_id
            && !ids.insert(id.clone())
        {
            return Err(wrong("the same `kid` as another key: expected each once".to_owned()));
        }
        keys.push(SigningKey { id: jwk.common.key_id, key, algorithms });
    }
    if keys.is_empty() { Err("no key for signatures: expected at least one".to_owned()) } else { Ok(keys) }
}

/// What tokens signed by this key may use: the `alg` of the key if it has one, otherwise all of its type.
fn algorithms(jwk: &Jwk) -> Result<Vec<Algorithm>, String> {
    let of_type = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => RSA,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256][..],
            EllipticCurve::P384 => &[Algorithm::ES384],
            EllipticCurve::P521 | EllipticCurve::Ed25519 => {
                return Err("curve: expected P-256 or P-384".to_owned());
            }
        },
        AlgorithmParameters::OctetKeyPair(key) => match key.curve {
            EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
            EllipticCurve::P256 | EllipticCurve::P384 | EllipticCurve::P521 => {
                return Err("curve: expected Ed25519".to_owned());
            }
        },
        AlgorithmParameters::OctetKey(_) => {
            return Err("a symmetric key (`oct`): expected a public key of type RSA, EC or OKP".to_owned());
        }
    };
    let Some(named) = jwk.common.key_algorithm else { return Ok(of_type.to_vec()) };
    let named = named.to_string();
    let only = of_type.iter().find(|algorithm| format!("{algorithm:?}") == named).copied();
    only.map(|only| vec![only]).ok_or_else(|| {
        let expected: Vec<String> = of_type.iter().map(|algorithm| format!("{algorithm:?}")).collect();
        format!("alg: expected one of {}, got {named}", expected.join(", "))
    })
}
