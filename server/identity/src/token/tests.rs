//! Tokens that real keys signed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header, encode};
use proptest::prelude::*;
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, SigningKey as _};
use serde_json::json;
use x509_parser::prelude::FromDer as _;

use super::*;

const NOW: u64 = 1_800_000_000;

struct Issuer {
    key: EncodingKey,
    set: Value,
}

impl Issuer {
    fn new() -> Self {
        let pair = KeyPair::generate().unwrap();
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap()).unwrap();
        jwk["kid"] = json!("k1");
        Self { key, set: json!({ "keys": [jwk] }) }
    }

    fn tokens(&self) -> Tokens {
        Tokens::new(&self.set.to_string(), settings()).unwrap()
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).unwrap()
    }
}

fn settings() -> TokenSettings {
    TokenSettings {
        jwks: "jwks.json".into(),
        issuer: "https://issuer".to_owned(),
        audiences: vec!["tessera".to_owned(), "other".to_owned()],
        leeway: Duration::from_secs(60),
        role_claim: "role".to_owned(),
        tenant_claim: "tenant".to_owned(),
    }
}

/// Claims that are accepted, with some of them replaced. `null` leaves one out.
fn claims(changes: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://issuer", "aud": "tessera", "exp": NOW + 600, "sub": "svc", "role": "infer", "tenant": "search",
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn claims_decide_who_is_accepted_and_as_whom() {
    let issuer = Issuer::new();
    let tokens = issuer.tokens();
    let caller = |changes: Value| tokens.caller(issuer.sign(&claims(&changes)).as_bytes(), at(NOW));
    let plain = caller(json!({})).unwrap();
    assert_eq!(plain, Caller { role: Role::Infer, tenant: "search".into(), name: "svc".into() });
    assert_eq!(caller(json!({ "aud": ["x", "other"] })).unwrap(), plain);
    for (role, expected) in [
        (json!("operate"), Ok(Role::Operate)),
        (json!("openid read"), Ok(Role::Read)),
        (json!(["read", "infer"]), Ok(Role::Infer)),
        (json!(["x"]), Err(Denied::NoRole)),
        (json!(3), Err(Denied::NoRole)),
        (json!(null), Err(Denied::NoRole)),
    ] {
        assert_eq!(caller(json!({ "role": role.clone() })).map(|caller| caller.role), expected, "{role}");
    }
    assert_eq!(caller(json!({ "tenant": null, "sub": null })).unwrap().tenant.as_ref(), DEFAULT_TENANT);
    assert_eq!(caller(json!({ "tenant": "a\nb" })).unwrap().tenant.as_ref(), DEFAULT_TENANT);
    for wrong in [
        json!({ "iss": "https://other" }),
        json!({ "iss": null }),
        json!({ "aud": "x" }),
        json!({ "aud": null }),
        json!({ "exp": null }),
        json!({ "exp": "2100-01-01" }),
        json!({ "nbf": NOW + 61 }),
        json!({ "nbf": "soon" }),
    ] {
        assert_eq!(caller(wrong.clone()), Err(Denied::Invalid), "{wrong}");
    }
}

#[test]
fn a_token_expires_also_after_it_was_checked() {
    let issuer = Issuer::new();
    let (tokens, token) = (issuer.tokens(), issuer.sign(&claims(&json!({ "nbf": NOW }))));
    for (time, expected) in [
        (NOW - 61, Some(Denied::Invalid)),
        (NOW - 59, None),
        (NOW + 659, None),
        (NOW + 660, Some(Denied::Expired)),
        (NOW, None),
    ] {
        assert_eq!(tokens.caller(token.as_bytes(), at(time)).err(), expected, "{time}");
    }
}

#[test]
fn only_signatures_of_the_set_are_accepted() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let tokens = issuer.tokens();
    let good = issuer.sign(&claims(&json!({})));
    assert!(tokens.caller(good.as_bytes(), at(NOW)).is_ok());
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let payload = part(&claims(&json!({ "role": "operate" })));
    let unsigned = format!("{}.{payload}.", part(&json!({ "alg": "none", "typ": "JWT" })));
    // The public key as the secret of a symmetric signature: the classic confusion of algorithms.
    let secret = EncodingKey::from_secret(issuer.set.to_string().as_bytes());
    let symmetric = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::HS256) };
    let symmetric = encode(&symmetric, &claims(&json!({})), &secret).unwrap();
    let swapped = good.split('.').enumerate().map(|(at, text)| if at == 1 { payload.as_str() } else { text });
    let swapped = swapped.collect::<Vec<_>>().join(".");
    let unknown = Header { kid: Some("k2".to_owned()), ..Header::new(Algorithm::ES256) };
    let unknown = encode(&unknown, &claims(&json!({})), &issuer.key).unwrap();
    for bad in [
        other.sign(&claims(&json!({}))),
        unsigned,
        symmetric,
        swapped,
        unknown,
        "a.b.c".to_owned(),
        "..".to_owned(),
    ] {
        assert_eq!(tokens.caller(bad.as_bytes(), at(NOW)), Err(Denied::Invalid), "{bad}");
    }
}

#[test]
fn rsa_keys_work_and_a_token_without_an_id_needs_the_only_key() {
    let pair = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let spki = pair.subject_public_key_info();
    let (_, spki) = x509_parser::x509::SubjectPublicKeyInfo::from_der(&spki).unwrap();
    let x509_parser::public_key::PublicKey::RSA(key) = spki.parsed().unwrap() else { panic!("expected RSA") };
    let modulus = key.modulus.strip_prefix(&[0]).unwrap_or(key.modulus);
    let jwk = json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode(modulus), "e": URL_SAFE_NO_PAD.encode(key.exponent) });
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let message = format!("{}.{}", part(&json!({ "alg": "RS256" })), part(&claims(&json!({}))));
    let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes()).unwrap()));
    let caller = |keys: Value| {
        let tokens = Tokens::new(&json!({ "keys": keys }).to_string(), settings()).unwrap();
        tokens.caller(token.as_bytes(), at(NOW)).map(|caller| caller.role)
    };
    assert_eq!(caller(json!([jwk])), Ok(Role::Infer));
    assert_eq!(caller(json!([jwk, jwk])), Err(Denied::Invalid));
    let mut other = jwk.clone();
    other["alg"] = json!("PS256");
    assert_eq!(caller(json!([other])), Err(Denied::Invalid));
}

#[test]
fn sets_that_are_not_of_public_keys_are_refused_by_entry() {
    let issuer = Issuer::new();
    let good = &issuer.set["keys"][0];
    for (set, expected) in [
        (
            json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0" }] }),
            "keys[0]: a symmetric key (`oct`): expected a public key",
        ),
        (json!({ "keys": [good, good] }), "keys[1]: the same `kid` as another key"),
        (json!({ "keys": [] }), "no key for signatures"),
        (json!({ "keys": [{ "kty": "RSA" }] }), "keys[0]: expected a JSON Web Key"),
        (json!([]), "expected a JSON Web Key Set"),
        (json!({ "keys": vec![good; 65] }), "65 keys: expected at most 64"),
    ] {
        let message = Tokens::new(&set.to_string(), settings()).err().unwrap();
        assert!(message.starts_with(expected), "{message}");
    }
    let mut wrong = good.clone();
    wrong["alg"] = json!("HS256");
    let message = Tokens::new(&json!({ "keys": [wrong] }).to_string(), settings()).err().unwrap();
    assert_eq!(message, "keys[0]: alg: expected one of ES256, got HS256");
}

#[test]
fn claims_are_found_by_name_and_by_path() {
    let claims = json!({ "https://a.b/role": 1, "realm": { "roles": 2 }, "a.b": 3, "a": { "b": 4 } });
    let found = |path: &str| claim(claims.as_object().unwrap(), path).and_then(Value::as_u64);
    assert_eq!(
        ["https://a.b/role", "realm.roles", "a.b", "a.c", "x"].map(found),
        [Some(1), Some(2), Some(3), None, None]
    );
}

proptest! {
    #[test]
    fn no_other_text_is_a_token(text in "[ -~]{0,60}(\\.[A-Za-z0-9_-]{0,40}){0,3}") {
        let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }] });
        let tokens = Tokens::new(&set.to_string(), settings()).unwrap();
        prop_assert_eq!(tokens.caller(text.as_bytes(), at(NOW)), Err(Denied::Invalid));
    }
}
