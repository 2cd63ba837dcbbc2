//! Why a caller is turned away. Messages say what is missing and never repeat what was sent.

use std::fmt;

use crate::Role;

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The request carries no credential.
    Missing,
    /// The credential is not known, or not valid for this server.
    Invalid,
    /// The token was valid once.
    Expired,
    /// The request carries several different credentials.
    Several,
    /// The token is valid but grants no role.
    NoRole,
    /// The caller is known and lacks this role.
    Needs(Role),
}

impl Denied {
    /// Whether the caller is not known: 401 and UNAUTHENTICATED. Otherwise it is known and not allowed: 403 and PERMISSION_DENIED.
    pub fn is_unauthenticated(self) -> bool {
        match self {
            Self::Missing | Self::Invalid | Self::Expired | Self::Several => true,
            Self::NoRole | Self::Needs(_) => false,
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "credentials are missing: expected the header `authorization: Bearer KEY` or `x-api-key: KEY`",
            ),
            Self::Invalid => {
                f.write_str("credentials are not accepted: expected a key or token that is valid here")
            }
            Self::Expired => f.write_str("the token has expired: expected a current one"),
            Self::Several => f.write_str("several credentials: expected one of `authorization` and `x-api-key`"),
            Self::NoRole => f.write_str("the token grants no role: expected infer, read or operate"),
            Self::Needs(role) => write!(f, "this path needs role {role}"),
        }
    }
}

impl std::error::Error for Denied {}
