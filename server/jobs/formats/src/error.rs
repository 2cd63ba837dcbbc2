//! Why a file cannot be read or written.

use std::io;

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The file is wrong: where, and what was expected.
    #[error("{0}")]
    Input(String),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}
