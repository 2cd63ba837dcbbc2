//! The model repository: which models and versions are there, and their files.
//!
//! Layout, as Triton's:
//!
//! ```text
//! repository/
//!   resnet50/
//!     config.pbtxt         optional
//!     labels.txt           if config.pbtxt names it
//!     1/model.onnx         any number of versions
//!     3/model.onnx
//!   fake/1/model.toml      a synthetic model
//!   tiny.onnx              a model of one version, 1
//! ```
//!
//! **Publishing.** Write a version under a name that starts with a dot or ends with `.tmp`, then rename the
//! folder: such names are ignored, and a rename is atomic. A version copied straight into place may be seen
//! half-copied; its file then does not decode, the version is reported as unavailable with that reason, and
//! the next load tries again.
//!
//! **Confinement.** Every file is checked after it was opened. A file outside the repository is never read, even if links or
//! names change at the same time.

mod confined;
mod pbtxt;
mod scan;

pub use pbtxt::{
    ControlInput, FalseTrue, IgnoredField, Pbtxt, QueuePolicy, RateLimiter, SequenceBatching, Signal,
    StateFile, StateTensor, TensorDeclaration, WarmUp, WarmUpInput, WarmUpValues, config_text, fields_table,
};
pub use scan::{Found, Ignored, Repository, RepositoryError, Snapshot};

#[cfg(test)]
mod tests;
