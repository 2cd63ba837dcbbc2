//! API keys: a file with the SHA-256 of each key, so that reading the file does not give access.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::{Caller, check_name};

/// Keys of a file.
pub const KEYS_MAX: usize = 100_000;
/// Bytes of a key that is sent.
const KEY_BYTES_MAX: usize = 4096;
/// Mistakes of a file that are listed.
const MISTAKES_MAX: usize = 20;
const EXPECTED: &str = "expected `SHA256 ROLE TENANT [NAME]`";

/// SHA-256 of a credential.
pub type Hash = [u8; 32];

/// First letters of a new key, by which people and scanners for leaked secrets recognise one.
pub const PREFIX: &str = "tsk_";

/// SHA-256 of a credential as it is sent.
pub fn hash(credential: &[u8]) -> Hash {
    Sha256::digest(credential).into()
}

/// The keys of a file, by their SHA-256. A caller who does not know a key cannot choose a hash, so the time of the look-up
/// tells nothing about the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiKeys {
    callers: HashMap<Hash, Caller>,
}

impl ApiKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// Each mistake with its line. What a line holds is not repeated where it could be a key.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let (mut callers, mut lines, mut mistakes) = (HashMap::new(), HashMap::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            match parse_line(content, number) {
                Err(mistake) => mistakes.push(format!("line {number}: {mistake}")),
                Ok((hash, _)) if lines.contains_key(&hash) => {
                    let first = lines.get(&hash).copied().unwrap_or(number);
                    mistakes.push(format!("line {number}: the key of line {first}: expected each key once"));
                }
                Ok(_) if callers.len() == KEYS_MAX => {
                    mistakes.push(format!("line {number}: expected at most {KEYS_MAX} keys"));
                }
                Ok((hash, caller)) => {
                    lines.insert(hash, number);
                    callers.insert(hash, caller);
                }
            }
            if mistakes.len() == MISTAKES_MAX {
                break;
            }
        }
        if mistakes.is_empty() { Ok(Self { callers }) } else { Err(mistakes) }
    }

    /// The caller that sends this key.
    pub fn find(&self, key: &[u8]) -> Option<&Caller> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return None;
        }
        self.callers.get(&hash(key))
    }

    /// Tenants that the keys name.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<str>> {
        self.callers.values().map(|caller| &caller.tenant)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.callers.len()
    }

    /// Whether the file has no key.
    pub fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }
}

fn parse_line(line: &str, number: usize) -> Result<(Hash, Caller), String> {
    let mut words = line.split_whitespace();
    let (Some(digits), Some(role), Some(tenant)) = (words.next(), words.next(), words.next()) else {
        return Err(format!("{EXPECTED}, got {} of them", line.split_whitespace().count()));
    };
    let hash = parse_hash(digits)?;
    let role = role.parse().map_err(|expected| format!("role: {expected}"))?;
    check_name(tenant).map_err(|expected| format!("tenant: {expected}"))?;
    let name = words.next();
    if words.next().is_some() {
        return Err(format!("{EXPECTED}, got more words"));
    }
    if let Some(name) = name {
        check_name(name).map_err(|expected| format!("name: {expected}"))?;
    }
    let name = name.map_or_else(|| format!("key-{number}").into(), Arc::from);
    Ok((hash, Caller { role, tenant: tenant.into(), name }))
}

fn parse_hash(digits: &str) -> Result<Hash, String> {
    if digits.starts_with(PREFIX) {
        return Err(
            "expected the SHA-256 of the key, got the key: `tessera key new` prints the line".to_owned()
        );
    }
    let wrong =
        || format!("SHA256: expected 64 hexadecimal digits, got {} characters", digits.chars().count());
    if digits.len() != 64 {
        return Err(wrong());
    }
    let mut hash = Hash::default();
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair =
            std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
        *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(wrong)?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Role, new_key};

    fn line(key: &str, rest: &str) -> String {
        let hash: String = hash(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hash} {rest}\n")
    }

    #[test]
    fn keys_are_found_by_what_is_sent_and_comments_are_skipped() {
        let text = format!(
            "# keys\n\n{}  {}",
            line("one", "infer search client-1"),
            line("two", "operate default").to_uppercase().replace("OPERATE DEFAULT", "operate default")
        );
        let keys = ApiKeys::parse(&text).unwrap();
        let caller =
            |role, tenant: &str, name: &str| Caller { role, tenant: tenant.into(), name: name.into() };
        assert_eq!(keys.find(b"one"), Some(&caller(Role::Infer, "search", "client-1")));
        assert_eq!(keys.find(b"two"), Some(&caller(Role::Operate, "default", "key-4")));
        assert_eq!(keys.len(), 2);
        for unknown in [&b""[..], b"on", b"one ", &[b'a'; KEY_BYTES_MAX + 1]] {
            assert_eq!(keys.find(unknown), None);
        }
    }

    #[test]
    fn mistakes_name_their_line_and_what_would_be_right_and_repeat_no_key() {
        let secret = new_key().unwrap().key;
        let hash = "0".repeat(64);
        for (text, expected) in [
            (format!("{secret} infer search"), "line 1: expected the SHA-256 of the key, got the key"),
            (format!("# c\n{hash} infer"), "line 2: expected `SHA256 ROLE TENANT [NAME]`, got 2 of them"),
            (format!("{hash} admin search"), "line 1: role: expected infer, read or operate, got `admin`"),
            (format!("{hash} infer sea=rch"), "line 1: tenant: expected 1 to 64 letters"),
            (format!("{hash} infer search na\u{e9}me"), "line 1: name: expected 1 to 64 letters"),
            (
                format!("{hash} infer search name more"),
                "line 1: expected `SHA256 ROLE TENANT [NAME]`, got more words",
            ),
            (format!("{}g infer search", "0".repeat(63)), "line 1: SHA256: expected 64 hexadecimal digits"),
            (format!("{}++ infer search", "0".repeat(62)), "line 1: SHA256: expected 64 hexadecimal digits"),
            (
                "abc infer search".to_owned(),
                "line 1: SHA256: expected 64 hexadecimal digits, got 3 characters",
            ),
            (format!("{hash} infer a\n{hash} read b"), "line 2: the key of line 1: expected each key once"),
        ] {
            let mistakes = ApiKeys::parse(&text).unwrap_err();
            assert!(mistakes[0].starts_with(expected), "{mistakes:?}");
            assert!(!mistakes[0].contains(&secret));
        }
        assert_eq!(ApiKeys::parse(&"x\n".repeat(1000)).unwrap_err().len(), MISTAKES_MAX);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(?s).{0,400}") {
            let _ = ApiKeys::parse(&text);
        }

        #[test]
        fn only_the_whole_key_is_found(key in "[!-~]{1,80}", other in "[!-~]{0,80}") {
            let keys = ApiKeys::parse(&line(&key, "infer t")).unwrap();
            prop_assert!(keys.find(key.as_bytes()).is_some());
            prop_assert_eq!(keys.find(other.as_bytes()).is_some(), other == key);
        }
    }
}
