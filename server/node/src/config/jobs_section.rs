//! `[jobs]`: rows of files through models, behind the requests of clients.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};
use units::{Size, TimeSpan};

/// `[jobs]`: files whose rows run through a model as requests of best effort (docs/jobs.md).
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Jobs {
    /// Folder for inputs, results and the journal. It should survive a restart. Default: none, jobs are refused. Example:
    /// `"/var/lib/tessera/jobs"`.
    pub folder: Option<PathBuf>,
    /// Bytes of the files of all jobs, those that ended included. A job whose input would exceed it is refused; results are written all the
    /// same.
    pub max_bytes: Size,
    /// Jobs that have not ended, at most. Further ones are refused.
    pub max_jobs: NonZeroUsize,
    /// How long the files of a job are kept after its end. At most 1000 jobs that ended are kept.
    #[serde(serialize_with = "units::text")]
    pub keep: TimeSpan,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            folder: None,
            max_bytes: Size(64 << 30),
            max_jobs: NonZeroUsize::MIN.saturating_add(99),
            keep: TimeSpan(Duration::from_secs(7 * 24 * 3_600)),
        }
    }
}
