//! The files that hold credentials and certificates.

/// One of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// API keys.
    Keys,
    /// Keys of tokens.
    Jwks,
    /// Certificate of the server.
    Cert,
    /// Its private key.
    Key,
    /// Authorities of client certificates.
    ClientCa,
}

impl File {
    /// Every file.
    pub const ALL: [Self; 5] = [Self::Keys, Self::Jwks, Self::Cert, Self::Key, Self::ClientCa];

    /// Value of the label `file` of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Jwks => "jwks",
            Self::Cert => "cert",
            Self::Key => "key",
            Self::ClientCa => "client_ca",
        }
    }

    /// The setting that names it.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Keys => "identity.keys",
            Self::Jwks => "identity.jwks",
            Self::Cert => "tls.cert",
            Self::Key => "tls.key",
            Self::ClientCa => "tls.client_ca",
        }
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Which one.
    pub file: File,
    /// What is wrong, and what would be right.
    pub message: String,
}
