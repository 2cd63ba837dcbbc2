//! New API keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::api_keys::{PREFIX, hash};

/// Random bytes of a key. They are as hard to guess as its hash, so the hash needs no salt and no slow function.
const RANDOM_BYTES: usize = 32;

/// A new key, and what the file of keys holds of it.
pub struct NewKey {
    /// What clients send.
    pub key: String,
    /// SHA-256 of the key in hexadecimal digits.
    pub sha256: String,
}

/// A new key from the random numbers of the system.
///
/// # Errors
/// The system has no random numbers.
pub fn new_key() -> Result<NewKey, String> {
    let mut random = [0_u8; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| format!("the system gives no random numbers: {error}"))?;
    let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    let sha256 = hash(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(NewKey { key, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiKeys;

    #[test]
    fn a_new_key_works_with_its_line_and_no_two_are_the_same() {
        let (first, second) = (new_key().unwrap(), new_key().unwrap());
        assert_ne!(first.key, second.key);
        assert_eq!(first.key.len(), PREFIX.len() + 43);
        let keys = ApiKeys::parse(&format!("{} infer search", first.sha256)).unwrap();
        assert!(keys.find(first.key.as_bytes()).is_some() && keys.find(second.key.as_bytes()).is_none());
    }
}
