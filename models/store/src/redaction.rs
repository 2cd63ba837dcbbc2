//! Keeps credentials out of messages.

use std::collections::BTreeMap;
use std::fmt;

/// Longest reason in an error: stores answer with whole documents.
const REASON_CHARS_MAX: usize = 600;

/// Shorter values are not credentials, and replacing them would make messages unreadable.
const SECRET_CHARS_MIN: usize = 6;

/// Values that must not occur in any message.
#[derive(Clone, Default)]
pub(crate) struct Redaction {
    secrets: Vec<String>,
}

impl Redaction {
    /// Collects the credentials among options and environment variables.
    pub(crate) fn new(
        options: &BTreeMap<String, String>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Self {
        let from_store =
            |name: &str| ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix));
        let options = options.iter().map(|(name, value)| (name.clone(), value.clone()));
        let named = options.chain(variables.filter(|(name, _)| from_store(name)));
        let mut secrets: Vec<_> = named
            .filter(|(name, value)| is_secret(name) && value.chars().count() >= SECRET_CHARS_MIN)
            .map(|(_, value)| value)
            .collect();
        // The longest first: one value may contain another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// A message in one line, without credentials, shortened to a readable length.
    pub(crate) fn apply(&self, message: &str) -> String {
        let mut message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        for secret in &self.secrets {
            message = message.replace(secret, "***");
        }
        if message.chars().count() > REASON_CHARS_MAX {
            message = message.chars().take(REASON_CHARS_MAX).chain("...".chars()).collect();
        }
        message
    }
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").finish_non_exhaustive()
    }
}

/// Whether the value of an option or variable may be a credential.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_path = name.ends_with("_file") || name.ends_with("_path");
    let words = ["key", "secret", "token", "sas", "password", "authorization", "credentials"];
    !is_path && words.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_replaced() {
        let options = BTreeMap::from([("secret_access_key".to_owned(), "hunter2hunter2".to_owned())]);
        let variables = [
            ("AWS_SESSION_TOKEN", "session-of-mine"),
            ("AWS_REGION", "eu-west-1"),
            ("OTHER_KEY", "not of a store"),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redaction = Redaction::new(&options, variables);
        let message =
            redaction.apply("signed with hunter2hunter2 and\n session-of-mine in eu-west-1, not of a store");
        assert_eq!(message, "signed with *** and *** in eu-west-1, not of a store");
        assert!(!format!("{redaction:?}").contains("hunter2"));
    }

    #[test]
    fn long_answers_are_shortened() {
        assert_eq!(Redaction::default().apply(&"x".repeat(5000)).len(), REASON_CHARS_MAX + 3);
    }
}
