//! What is known about a caller, and what it may do.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Tenant of callers whose credential names none.
pub const DEFAULT_TENANT: &str = "default";
/// Bytes of a tenant or a caller's name.
const NAME_MAX: usize = 64;

/// What a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Run models.
    #[default]
    Infer,
    /// Read metrics and the state of the server.
    Read,
    /// Change the server; includes the other roles.
    Operate,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Infer, Self::Read, Self::Operate];

    /// Whether a caller of this role may do what `needed` allows.
    pub fn includes(self, needed: Self) -> bool {
        self == Self::Operate || self == needed
    }

    /// The role as files, tokens and settings write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.word() == text).ok_or_else(|| {
            let shown: String = text.chars().take(NAME_MAX).collect();
            format!("expected infer, read or operate, got `{shown}`")
        })
    }
}

/// Who sent a request. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What it may do.
    pub role: Role,
    /// Whose share of the server it uses.
    pub tenant: Arc<str>,
    /// Name for logs.
    pub name: Arc<str>,
}

/// Whether this can be the name of a tenant or a caller: it is shown in logs and used as the label of metrics.
///
/// # Errors
/// What was expected instead.
pub fn check_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@:/".contains(&byte);
    if !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(allowed) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_MAX).collect();
    Err(format!(
        "expected 1 to {NAME_MAX} letters, digits, `.`, `_`, `-`, `@`, `:` and `/`, got `{}`",
        shown.escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operate_includes_every_role_and_the_others_only_themselves() {
        for role in Role::ALL {
            for needed in Role::ALL {
                assert_eq!(role.includes(needed), role == needed || role == Role::Operate, "{role} {needed}");
            }
            assert_eq!(role.word().parse(), Ok(role));
        }
        assert_eq!("admin".parse::<Role>().unwrap_err(), "expected infer, read or operate, got `admin`");
    }

    #[test]
    fn names_are_short_and_visible() {
        for good in ["a", "search", "spiffe://cluster/ns/a", "svc@example.com", "a.b-c_1"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a\n", "\u{e9}", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
