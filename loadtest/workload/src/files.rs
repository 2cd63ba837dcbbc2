//! The files that a workload names.

use std::sync::Arc;

/// Text of files by name. Each name is resolved once.
pub(crate) type Texts<'a> = dyn FnMut(&str) -> Result<Arc<str>, String> + 'a;
